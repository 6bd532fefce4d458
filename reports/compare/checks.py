"""Says whether two runs may be compared: GPU, clocks, versions, program, how they were captured."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from nsight_prof.parsers.cells import number
from nsight_prof.parsers.errors import UsageError
from nsight_prof.reports.analysis.gpu_times import gpu_of
from nsight_prof.reports.compare.models import Check
from nsight_prof.reports.compare.sides import VARIABLE, Side, amount, arguments, mapping
from nsight_prof.reports.compare.wording import section, threshold
from nsight_prof.reports.formats import clock, listed, shorten
from nsight_prof.reports.load import Run
from nsight_prof.reports.profiled import kernel_time, profiled

SOFTWARE = ("driver", "torch", "torch_cuda", "triton", "cudnn", "vllm", "git_commit")
TOOLS = ("nsys", "ncu")
UNKNOWN = "unknown"
OPTIONAL = (
    "times",
    "throttled",
    "gpu_count",
    "mig",
    "stages",
    "trace_args",
    "clock_control",
    "cache_control",
    "vllm",
)
"""Facts that many runs have no use for: that they are absent says nothing."""
PROGRAM = ("target", "args")
"""Keys of checks that tell programs apart: repeats of one run agree in them."""
UUID = 12
"""Characters of a UUID that tell GPUs apart."""
WIDTH = 64
"""Characters of a fact in a table."""


def checks(a: Side, b: Side) -> tuple[tuple[Check, ...], tuple[Check, ...], str]:
    """Return the settings of the programs that differ, all else that does, and what nobody knows.

    The gravest come first. What only one of the runs tells is a note: whether it differs is not
    known. Settings of different programs are not held against each other.
    """
    ours, theirs = _facts(a.run), _facts(b.run)
    found = [_check(key, ours[key], theirs[key]) for key in ours if ours[key] != theirs[key]]
    found += _clocks(a.run, b.run)
    order = ("refuse", "warn", "note")
    found.sort(key=lambda check: order.index(check.level))
    settings = [] if any(c.key == "target" for c in found) else _settings(a.run, b.run)
    return tuple(settings), tuple(found), _untold(ours, theirs)


def _untold(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Name what must agree and neither run tells: imported files tell little."""
    rules = section("checks")
    untold = [
        rules[key]["label"]
        for key in ours
        if ours[key] == theirs[key] == UNKNOWN
        and rules[key]["level"] != "note"
        and key not in OPTIONAL
    ]
    return f"Neither run tells its {listed(untold)}." if untold else ""


def refuse(found: tuple[Check, ...], a: str, b: str) -> None:
    """Refuse what cannot be compared.

    Raises:
        UsageError: the runs differ in kind, kind of times, GPU, number of GPUs or MIG.
    """
    grave = [check for check in found if check.level == "refuse"]
    if grave:
        words = [f"{c.label}: {c.a} against {c.b} ({c.why})" for c in grave]
        raise UsageError(
            f"{a} and {b} cannot be compared: {'; '.join(words)}",
            "compare runs of one kind on one kind of GPU, or compare all the same with --force",
        )


def refuse_repeats(side: Side) -> None:
    """Refuse further runs of a side that ran another program: they would pass for its noise.

    Raises:
        UsageError: a repeat differs in what cannot be compared, in its program or its arguments.
    """
    for repeat in side.repeats:
        settings, found, _ = checks(Side("", side.run), Side("", repeat))
        other = [c for c in (*found, *settings) if c.level == "refuse" or c.key in PROGRAM]
        if other:
            words = "; ".join(f"{c.label}: {c.a} against {c.b}" for c in other)
            raise UsageError(
                f"{repeat.path} is no repeat of {side.run.path}: {words}",
                "a repeat is a further run of the same program with the same arguments; "
                "--force takes it all the same",
            )


def _check(key: str, a: str, b: str) -> Check:
    rule = section("checks")[key]
    level = "note" if UNKNOWN in (a, b) else rule["level"]
    return Check(key, level, rule["label"], a, b, rule["why"])


def _facts(run: Run) -> dict[str, str]:
    manifest, recipe = run.manifest, run.manifest.recipe
    target, trace, counters = (recipe.get(k) or {} for k in ("target", "trace", "counters"))
    gpus = manifest.gpus
    facts: dict[str, Any] = {
        "kind": "benchmark" if run.is_bench else "profile",
        "times": None if run.is_bench else _times(run),
        "gpu": listed(sorted({str(g["name"]) for g in gpus if g.get("name")})),
        "gpu_count": _gpu_count(run),
        "mig": _one({g.get("mig") for g in gpus}),
        "uuid": ", ".join(sorted({str(g["uuid"])[:UUID] for g in gpus if g.get("uuid")})),
        "power_limit": _one({g.get("power_limit_w") for g in gpus}, " W"),
        "throttled": _throttled(run),
        "target": target.get("file") or target.get("command"),
        "stages": recipe.get("stages"),
        "capture": recipe.get("capture"),
        "trace_args": trace.get("extra_args"),
        "clock_control": counters.get("clock_control"),
        "cache_control": counters.get("cache_control"),
        "imported": "imported" if manifest.imported else "captured by prof",
    }
    facts |= {key: manifest.software.get(key) for key in SOFTWARE}
    facts |= {key: manifest.tools.get(key) for key in TOOLS}
    return {key: _shown(value) for key, value in facts.items()}


def _one(values: set[Any], unit: str = "") -> str | None:
    known = {value for value in values if value is not None}
    return f"{known.pop()}{unit}" if len(known) == 1 else None


def _shown(value: Any) -> str:
    if value is None or value == "" or (isinstance(value, (dict, list)) and not value):
        return UNKNOWN
    if isinstance(value, dict):
        value = list(value)
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    return shorten(value, WIDTH) if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _times(run: Run) -> str | None:
    """Say what the times of a profile are those of; None where it has none."""
    if not math.isnan(kernel_time(run)):
        return "all launches of a trace"
    return None if run.counters.empty else "one launch of each kernel under ncu"


def _gpu_count(run: Run) -> str | None:
    gpus = gpu_of(run, run.launches).nunique()
    return str(gpus) if gpus else None


def _throttled(run: Run) -> str:
    """Say whether clocks were held down; unknown for a trace, which does not show it."""
    if run.bench.empty:
        return UNKNOWN
    samples = number(run.bench["throttled_samples"].sum(min_count=1))
    if math.isnan(samples):
        return UNKNOWN
    return "some samples" if samples > 0 else "none"


def _clocks(a: Run, b: Run) -> list[Check]:
    ours, theirs = _clock(a), _clock(b)
    if not (ours > 0 and theirs > 0) or abs(theirs / ours - 1) < threshold("clock"):
        return []
    return [_check("clock", clock(ours), clock(theirs))]


def _clock(run: Run) -> float:
    """Return the SM clock under ncu in Hz, mean weighted by GPU time; NaN without counters."""
    rows = [r for r in profiled(run) if number(r["sm_clock_hz"]) > 0 and number(r["total_ns"]) > 0]
    total = sum(number(r["total_ns"]) for r in rows)
    if not total:
        return math.nan
    return sum(number(r["sm_clock_hz"]) * number(r["total_ns"]) for r in rows) / total


def _settings(a: Run, b: Run) -> list[Check]:
    """Return the arguments and variables of the programs that differ."""
    counts, other = (section("checks")[key]["why"] for key in ("args", "option"))
    ours, theirs = _arguments(a), _arguments(b)
    keys = [*ours, *(key for key in theirs if key not in ours)]
    return [
        Check(
            "args",
            "warn",
            key,
            ours.get(key, "not set"),
            theirs.get(key, "not set"),
            counts if amount(ours.get(key)) or amount(theirs.get(key)) else other,
        )
        for key in keys
        if ours.get(key) != theirs.get(key)
    ]


def _arguments(run: Run) -> dict[str, str]:
    """Return arguments and variables of the program as text."""
    target: Mapping[str, Any] = run.manifest.recipe.get("target") or {}
    given = arguments(run)
    variables = {f"{VARIABLE}{key}": value for key, value in mapping(target.get("env")).items()}
    return {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in {**given, **variables}.items()
        if key != f"{VARIABLE}REPEAT"
    }
