"""Turns joined ncu metrics into the tables `counters` and `stalls`, and the gaps they have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.parsers.metrics.columns import IMPOSSIBLE, NOT_COLLECTED, Evaluated, Hole, evaluate
from nsight_prof.parsers.metrics.formulas import ratio
from nsight_prof.parsers.run.sentences import stored
from nsight_prof.parsers.tables import check, empty, tables

# Not stalls of a warp that could not issue: the warp that issued.
ISSUED = "selected"
NO_STALLS = stored("not collected: metric set stalls")


@dataclass(frozen=True)
class CounterTables:
    """The tables `counters`, `stalls` and `gaps`."""

    counters: pd.DataFrame
    stalls: pd.DataFrame
    gaps: pd.DataFrame


def build_counters(
    metrics: pd.DataFrame, joins: pd.DataFrame, kernels: pd.DataFrame, chip: str
) -> CounterTables:
    """Compute all columns of the catalogue for the chosen launch of each profiled kernel.

    `metrics`, `joins` and `kernels` are the tables of those names; `chip` is as in `gpus.chip` and
    may be empty. Columns `bound_by` and `roof_share` are left empty: they need the roofs.
    """
    chosen = _chosen(joins, kernels)
    if chosen.empty:
        reason = (
            stored("no profiled kernel joined the trace")
            if len(joins)
            else stored("no counters were taken")
        )
        return CounterTables(
            empty("counters"), empty("stalls"), _gaps([Hole(None, "", reason)], "counters", [])
        )
    wide = _wide(metrics, chosen)
    evaluated = evaluate(wide, chip, catalogue())
    stalls, stall_holes = _stalls(wide)
    counters = _assemble(chosen, kernels, evaluated, stalls)
    rows = [str(row) for row in wide.index]
    holes = [
        *evaluated.holes,
        *_drop_impossible_occupancy(counters),
        *_missing(counters, "trace_duration_ns", stored("no trace of this kernel")),
        *_missing(counters, "top_stall", NO_STALLS, NOT_COLLECTED),
    ]
    gaps = [
        _gaps(holes, "counters", rows),
        _gaps(stall_holes, "stalls", rows),
    ]
    return CounterTables(
        check(counters, "counters"),
        check(stalls, "stalls"),
        check(pd.concat(gaps, ignore_index=True), "gaps"),
    )


def _chosen(joins: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """One row per kernel, in the order of `kernels` (most GPU time first)."""
    known = joins["chosen"].fillna(False) & joins["kernel_id"].fillna("").ne("")
    chosen = joins[known].drop_duplicates("kernel_id")
    order = {kernel_id: i for i, kernel_id in enumerate(kernels["kernel_id"])}
    position = chosen["kernel_id"].map(order).fillna(len(order))
    return chosen.iloc[position.argsort(kind="stable")]


def _wide(metrics: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """One row per kernel (index kernel_id), one column per metric that has numbers anywhere."""
    ids = dict(zip(chosen["profile"], chosen["kernel_id"], strict=True))
    numeric = metrics[metrics["profile"].isin(list(ids))]
    numeric = numeric[numeric["text"].fillna("").eq("")].drop_duplicates(["profile", "metric"])
    table = numeric.pivot(index="profile", columns="metric", values="value")
    table = table.reindex(list(ids)).astype("float64")
    table.index = pd.Index(list(ids.values()), name="kernel_id")
    return table


def _assemble(
    chosen: pd.DataFrame, kernels: pd.DataFrame, evaluated: Evaluated, stalls: pd.DataFrame
) -> pd.DataFrame:
    counters = evaluated.values.copy()
    by_id = kernels.drop_duplicates("kernel_id").set_index("kernel_id")["median_ns"]
    counters["launch"] = chosen.set_index("kernel_id")["launch"]
    counters["trace_duration_ns"] = by_id.reindex(counters.index).astype("float64")
    counters["duration_difference"] = (
        ratio(counters["duration_ns"], counters["trace_duration_ns"]) - 1.0
    )
    waiting = stalls[stalls["reason"] != ISSUED].sort_values("ratio", ascending=False)
    top = waiting.drop_duplicates("kernel_id").set_index("kernel_id")
    counters["top_stall"] = top["reason"].reindex(counters.index)
    counters["top_stall_ratio"] = top["ratio"].reindex(counters.index)
    counters[["bound_by", "bound_unit", "second_by"]] = pd.NA
    counters[["roof_share", "second_share"]] = float("nan")
    counters["registers"] = counters["registers"].round()
    counters["passes"] = counters["passes"].round()
    return counters.reset_index(names="kernel_id")[[c.name for c in tables()["counters"]]]


def _stalls(wide: pd.DataFrame) -> tuple[pd.DataFrame, list[Hole]]:
    """Ratio of each reason, counted, or sampled where the report holds samples alone."""
    reasons = catalogue().stalls
    counted = {s.reason: wide[s.metric] for s in reasons if s.metric in wide.columns}
    sampled = {s.reason: wide[s.sampled] for s in reasons if s.sampled in wide.columns}
    table = pd.DataFrame(counted, index=wide.index, dtype="float64")
    holes = []
    if not counted and ISSUED in sampled:
        issued = sampled[ISSUED]
        table = pd.DataFrame({name: ratio(s, issued) for name, s in sampled.items()})
        note = stored("from warp state samples, not counters: coarse for short kernels")
        holes = [Hole(row, "ratio", note) for row in wide.index]
    long = table.rename_axis("kernel_id").reset_index().melt("kernel_id", var_name="reason")
    long = long.rename(columns={"value": "ratio"}).dropna(subset="ratio")
    long["share"] = ratio(long["ratio"], long.groupby("kernel_id")["ratio"].transform("sum"))
    known = set(long["kernel_id"])
    missing = [row for row in wide.index if row not in known]
    holes += [Hole(row, "ratio", NO_STALLS, NOT_COLLECTED) for row in missing]
    order = {kernel_id: i for i, kernel_id in enumerate(wide.index)}
    long = long.sort_values("ratio", ascending=False, kind="stable")
    long = long.sort_values("kernel_id", key=lambda ids: ids.map(order), kind="stable")
    return long[["kernel_id", "reason", "ratio", "share"]], holes


def _drop_impossible_occupancy(counters: pd.DataFrame) -> list[Hole]:
    """Empty achieved occupancies above the theoretical one, beyond rounding.

    Seen on kernels of some microseconds (ncu 2025.3.1, H200): 24.7 % achieved of 18.8 % possible.
    Warps and active cycles are then not of the same moment.
    """
    achieved, possible = counters["achieved_occupancy_pct"], counters["theoretical_occupancy_pct"]
    impossible = achieved > possible * 1.05
    holes = [
        Hole(
            str(row["kernel_id"]),
            "achieved_occupancy_pct",
            stored(
                "{achieved_occupancy_pct:.1f} % came out, more than the "
                "{theoretical_occupancy_pct:.1f} % that its launch allows",
                achieved_occupancy_pct=row["achieved_occupancy_pct"],
                theoretical_occupancy_pct=row["theoretical_occupancy_pct"],
            ),
            IMPOSSIBLE,
        )
        for _, row in counters[impossible].iterrows()
    ]
    counters.loc[impossible, "achieved_occupancy_pct"] = float("nan")
    return holes


def _missing(counters: pd.DataFrame, column: str, reason: str, kind: str = "") -> list[Hole]:
    kernels = counters.loc[counters[column].isna(), "kernel_id"]
    return [Hole(kernel, column, reason, kind) for kernel in kernels]


def _gaps(holes: Iterable[Hole], table: str, rows: list[str]) -> pd.DataFrame:
    """One gap per column where all kernels share the reason, one per kernel otherwise."""
    by_reason: dict[tuple[str, str, str], list[str | None]] = {}
    for hole in holes:
        by_reason.setdefault((hole.column, hole.reason, hole.kind), []).append(hole.row)
    found = []
    for (column, reason, kind), where in by_reason.items():
        for_all = len(where) == len(rows) > 1 or where == [None]
        found += [(table, row, column, reason, kind) for row in ([""] if for_all else where)]
    return check(pd.DataFrame(found, columns=[c.name for c in tables()["gaps"]]), "gaps")
