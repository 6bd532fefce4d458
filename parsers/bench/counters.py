"""Sums the counters of a counting run over the launches of each case.

The target opens the NVTX range ``case:<case id>`` around the launches of a case; libraries may open
ranges of their own inside and outside of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.parsers.metrics.columns import evaluate
from nsight_prof.parsers.names.kernel_names import classify
from nsight_prof.parsers.ncu import NcuCapture
from nsight_prof.parsers.run.sentences import stored

# The name of a case may hold "/", which also joins ranges; mode and data end it.
_CASE = re.compile(r"case:([a-z0-9.+x/_-]+\|(?:cold|hot)\|(?:normal|zeros))")
_NUMBER = re.compile(r"\d[\d.,]*(?:e[+-]?\d+)?")
SUMS = {
    "counted_s": "duration_ns",
    "dram_bytes": "dram_bytes",
    "dram_read_bytes": "dram_read_bytes",
    "dram_write_bytes": "dram_write_bytes",
    "l2_bytes": "l2_bytes",
    "l1_bytes": "l1_bytes",
    "shared_memory_bytes": "shared_memory_bytes",
    "counted_flops": "flops",
}
"""Column of `bench` -> column of the catalogue that is summed over the launches."""
MEANS = {
    "tensor_pct": ("tensor_pct", "duration_ns"),
    "l2_hit_pct": ("l2_hit_pct", "l2_bytes"),
    "l1_hit_pct": ("l1_hit_pct", "l1_bytes"),
}
"""Column of `bench` -> what is averaged, and what weighs it."""
EXAMPLES = 3


@dataclass(frozen=True)
class CaseCounters:
    """`frame`: index case_id, columns of `bench`. `gaps`: (case or "", column, reason)."""

    frame: pd.DataFrame
    gaps: tuple[tuple[str, str, str], ...]


def case_counters(capture: NcuCapture, chip: str, calls: int = 1) -> CaseCounters:
    """Evaluate the catalogue for each profiled launch and add it up by case.

    `calls`: how often the counting run called each case. A sum is unknown where it is unknown for
    one of its launches; means are over those where it is known.
    """
    cases = launches_of_cases(capture)
    if cases.empty:
        empty = pd.DataFrame(columns=[*SUMS, *MEANS], index=pd.Index([], name="case_id"))
        reason = stored("no profiled launch lies in an NVTX range of a case")
        return CaseCounters(empty, (("", "counted_launches", reason),))
    evaluated = evaluate(_wide(capture, cases.index), chip, catalogue())
    values = evaluated.values
    numbers = {name: pd.to_numeric(values[name], errors="coerce") for name in _required()}
    by_case = pd.DataFrame(numbers).groupby(cases, sort=False)
    frame = pd.DataFrame(
        {name: by_case[of].agg(_known_sum) for name, of in SUMS.items()}
        | {name: _weighted(numbers[v], numbers[w], cases) for name, (v, w) in MEANS.items()}
    )
    frame["counted_s"] /= 1e9
    frame["counted_launches"] = by_case.size()
    frame["counted_calls"] = calls
    frame["kernel_names"] = _kernel_names(capture, cases)
    holes = [(hole.column, str(hole.row), hole.reason) for hole in evaluated.holes]
    return CaseCounters(frame, tuple(_gaps(frame, holes, cases)))


def launches_of_cases(capture: NcuCapture) -> pd.Series:
    """Return the case of each profiled kernel (index: profile as text), in the order they ran."""
    launches = capture.launches[capture.launches["workload"].eq("kernel")]
    paths = launches["nvtx"].fillna("").astype(str)
    found = [matches[-1] if (matches := _CASE.findall(path)) else None for path in paths]
    cases = pd.Series(found, index=launches["profile"].astype(str), dtype=object).dropna()
    return cases.rename("case_id").rename_axis("profile")


def counted_calls(conditions: Sequence[Mapping[str, Any]]) -> int:
    """Return how often the counting run called each case: its option --launches, 1 by default."""
    words = [str(word) for condition in conditions for word in condition.get("argv") or ()]
    for word, following in zip(words, [*words[1:], ""], strict=False):
        option, _, value = word.partition("=")
        value = value or following
        if option == "--launches" and value.isdigit():
            return int(value)
    return 1


def _required() -> set[str]:
    return {*SUMS.values(), *(name for pair in MEANS.values() for name in pair)}


def _wide(capture: NcuCapture, profiles: pd.Index) -> pd.DataFrame:
    """One row a profiled launch (index: profile as text), one column a metric with numbers."""
    metrics = capture.metrics
    numeric = metrics[metrics["text"].fillna("").eq("")].drop_duplicates(["profile", "metric"])
    table = numeric.pivot(index="profile", columns="metric", values="value").astype("float64")
    table.index = table.index.astype(str)
    return table.reindex(profiles)


def _known_sum(values: pd.Series) -> float:
    return float(values.sum(skipna=False))


def _weighted(values: pd.Series, weights: pd.Series, cases: pd.Series) -> pd.Series:
    known = values.notna() & weights.notna()
    weighed = (values * weights).where(known).groupby(cases, sort=False).sum()
    total = weights.where(known).groupby(cases, sort=False).sum()
    return weighed / total.replace(0.0, np.nan)


def _kernel_names(capture: NcuCapture, cases: pd.Series) -> pd.Series:
    launches = capture.launches.assign(profile=capture.launches["profile"].astype(str))
    full = launches.set_index("profile")["name"].fillna("").astype(str).reindex(cases.index)
    short = full.map({name: classify(name).short_name for name in full.unique()})
    joined = short.groupby(cases, sort=False).agg(lambda names: " + ".join(dict.fromkeys(names)))
    return joined.astype(object)


def _gaps(
    frame: pd.DataFrame, holes: Sequence[tuple[str, str, str]], cases: pd.Series
) -> list[tuple[str, str, str]]:
    """Say of each empty cell why: one gap a column and reason."""
    columns = {of: name for name, of in SUMS.items()} | {v: name for name, (v, _) in MEANS.items()}
    unknown = {name: set(frame.index[frame[name].isna()]) for name in columns.values()}
    found: dict[tuple[str, str], tuple[str, dict[str, None]]] = {}
    for column, profile, reason in holes:
        name, case = columns.get(column), str(cases[profile])
        if name is not None and case in unknown[name]:
            found.setdefault((name, without_numbers(reason)), (reason, {}))[1][case] = None
    return [_who(list(who), len(frame), reason, name) for (name, _), (reason, who) in found.items()]


def without_numbers(reason: str) -> str:
    """Return what reasons have in common that differ in their numbers alone."""
    return _NUMBER.sub("#", reason)


def _who(cases: list[str], everything: int, reason: str, column: str) -> tuple[str, str, str]:
    if len(cases) == 1:
        return cases[0], column, reason
    if len(cases) == everything:
        return "", column, reason
    examples = ", ".join(cases[:EXAMPLES]) + (", …" if len(cases) > EXAMPLES else "")
    words = stored(
        "{reason} ({cases} cases: {examples})", reason=reason, cases=len(cases), examples=examples
    )
    return "", column, words
