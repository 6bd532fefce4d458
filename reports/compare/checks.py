"""Says whether two runs may be compared: GPU, clocks, versions, program, how they were captured."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from nsight_prof.parsers.cells import number
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.gpu_times import gpu_of_launches
from nsight_prof.reports.analysis.profiled import kernel_time, profiled
from nsight_prof.reports.analysis.run_time import run_time
from nsight_prof.reports.compare import threshold
from nsight_prof.reports.compare.changes import Check
from nsight_prof.reports.compare.sides import VARIABLE, Side, amount, arguments, mapping
from nsight_prof.reports.page import Text
from nsight_prof.reports.page.formats import clock, listed, shorten
from nsight_prof.reports.page.writer import Writer


class Rule(NamedTuple):
    """A fact that must agree: how grave a difference is, what it is called, why it matters."""

    level: str
    label: Text
    reason: Text


RULES = {
    "kind": Rule("refuse", Text("kind of run"), Text("a trace and a benchmark share no number")),
    "times": Rule("refuse", Text("times"), Text(
        "the times of one are of all launches, those of the other of a single launch per kernel, "
        "or without those in CUDA graphs (trace with --cuda-graph-trace=node)")),
    "gpu": Rule("refuse", Text("GPU"), Text("differences show the hardware, not only the program")),
    "gpu_count": Rule("refuse", Text("number of GPUs"), Text("the work is divided differently")),
    "mig": Rule("refuse", Text("MIG"), Text("a slice of a GPU has other limits than the GPU")),
    "uuid": Rule("warn", Text("GPU specimen"), Text(
        "two GPUs of one model differ by a few per cent; another host may change wall and idle "
        "time by far more")),
    "power_limit": Rule("warn", Text("power limit"), Text("it caps the clocks under load")),
    "clock": Rule("warn", Text("SM clock under ncu"), Text(
        "the time of a compute-bound kernel follows the clock")),
    "throttled": Rule("warn", Text("throttling"), Text("one of the runs had its clocks lowered")),
    "target": Rule("warn", Text("program"), Text("the runs profiled different programs")),
    "stages": Rule("warn", Text("stages"), Text("kernels are matched stage by stage")),
    "capture": Rule("warn", Text("capture window"), Text(
        "the totals are of different parts of the program")),
    "trace_args": Rule("warn", Text("trace options"), Text(
        "tracing costs time, and options change how much")),
    "driver": Rule("warn", Text("driver"), Text("it sets the clock policy and ships libraries")),
    "torch": Rule("warn", Text("torch"), Text("another version picks other kernels")),
    "torch_cuda": Rule("warn", Text("CUDA of torch"), Text("cuBLAS and others come with it")),
    "triton": Rule("warn", Text("Triton"), Text("it compiles other code")),
    "cudnn": Rule("warn", Text("cuDNN"), Text("another version picks other kernels")),
    "vllm": Rule("warn", Text("vLLM"), Text("another version runs other kernels")),
    "sglang": Rule("warn", Text("SGLang"), Text("another version runs other kernels")),
    "nsys": Rule("note", Text("nsys"), Text("the cost of tracing may differ")),
    "ncu": Rule("note", Text("ncu"), Text("counters may be defined differently")),
    "clock_control": Rule("warn", Text("clock control of ncu"), Text(
        "counters were read at other clocks")),
    "cache_control": Rule("warn", Text("cache control of ncu"), Text(
        "counters were read with another state of the caches")),
    "imported": Rule("note", Text("origin"), Text(
        "how imported files were captured is not known")),
    "git_commit": Rule("note", Text("git commit"), Text("this may be the change under test")),
}  # fmt: skip
COUNTS_WORK = Text("the programs may do different amounts of work")
OPTION = Text("this may be the change under test")
SOFTWARE = ("driver", "torch", "torch_cuda", "triton", "cudnn", "vllm", "sglang", "git_commit")
TOOLS = ("nsys", "ncu")
UNKNOWN = "unknown"
OPTIONAL = frozenset({
    "times", "throttled", "gpu_count", "mig", "stages", "trace_args", "clock_control",
    "cache_control", "vllm", "sglang",
})  # fmt: skip
"""Facts that many runs have no use for: that they are absent says nothing."""
PROGRAM = ("target", "args")
"""Keys of checks that tell programs apart: repeats of one run agree in them."""
UUID = 12
"""Characters of a UUID that tell GPUs apart."""
WIDTH = 64
"""Characters of a fact in a table."""


def checks(a: Side, b: Side) -> tuple[tuple[Check, ...], tuple[Check, ...], tuple[Text, ...]]:
    """Return the settings of the programs that differ, all else that does, and what nobody knows.

    The gravest come first. What only one of the runs tells is a note: whether it differs is not
    known. Settings of different programs are not held against each other.
    """
    of_a, of_b = _facts(a.run), _facts(b.run)
    found = [_check(key, of_a[key], of_b[key]) for key in of_a if of_a[key] != of_b[key]]
    found += _clocks(a.run, b.run)
    found.sort(key=lambda check: ("refuse", "warn", "note").index(check.level))
    settings = [] if any(c.key == "target" for c in found) else _settings(a.run, b.run)
    unknown = [
        RULES[key].label
        for key in of_a
        if of_a[key] == of_b[key] == UNKNOWN and RULES[key].level != "note" and key not in OPTIONAL
    ]
    notes = (Text("Neither run tells its {facts}.", facts=unknown),) if unknown else ()
    return tuple(settings), tuple(found), notes


def refuse(found: tuple[Check, ...], a: str, b: str) -> None:
    """Refuse what cannot be compared.

    Raises:
        UsageError: the runs differ in kind, kind of times, GPU, number of GPUs or MIG.
    """
    grave = [check for check in found if check.level == "refuse"]
    if grave:
        words = [f"{_words(c)} ({Writer().text(c.reason)})" for c in grave]
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
        grave = [c for c in (*found, *settings) if c.level == "refuse" or c.key in PROGRAM]
        if grave:
            raise UsageError(
                f"{repeat.path} is no repeat of {side.run.path}: {'; '.join(map(_words, grave))}",
                "a repeat is a further run of the same program with the same arguments; "
                "--force takes it all the same",
            )


def _words(check: Check) -> str:
    return f"{Writer().value(check.label)}: {check.a} against {check.b}"


def _check(key: str, a: str, b: str) -> Check:
    rule = RULES[key]
    level = "note" if UNKNOWN in (a, b) else rule.level
    return Check(key, level, rule.label, a, b, rule.reason)


def _facts(run: Run) -> dict[str, str]:
    manifest, recipe = run.manifest, run.manifest.recipe
    target, trace, counters = (recipe.get(k) or {} for k in ("target", "trace", "counters"))
    gpus = manifest.gpus
    facts: dict[str, Any] = {
        "kind": "benchmark" if run.is_bench else "profile",
        "times": None if run.is_bench else _times(run),
        "gpu": listed(sorted({str(g["name"]) for g in gpus if g.get("name")})),
        "gpu_count": gpu_of_launches(run).nunique() or None,
        "mig": _common({g.get("mig") for g in gpus}),
        "uuid": ", ".join(sorted({str(g["uuid"])[:UUID] for g in gpus if g.get("uuid")})),
        "power_limit": _common({g.get("power_limit_w") for g in gpus}, " W"),
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
    return {key: _as_text(value) for key, value in facts.items()}


def _common(values: set[Any], unit: str = "") -> str | None:
    known = {value for value in values if value is not None}
    return f"{known.pop()}{unit}" if len(known) == 1 else None


def _as_text(value: Any) -> str:
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
        times = run_time(run)
        is_all = (times.graphs_ns or 0.0) <= threshold("graphs") * (times.kernels_ns or 0.0)
        return f"all launches of a trace{'' if is_all else ' but those in CUDA graphs'}"
    return None if run.counters.empty else "one launch of each kernel under ncu"


def _throttled(run: Run) -> str:
    """Say whether clocks were held down; unknown for a trace, which does not show it."""
    if run.bench.empty:
        return UNKNOWN
    samples = number(run.bench["throttled_samples"].sum(min_count=1))
    if math.isnan(samples):
        return UNKNOWN
    return "some samples" if samples > 0 else "none"


def _clocks(a: Run, b: Run) -> list[Check]:
    of_a, of_b = _clock(a), _clock(b)
    if not (of_a > 0 and of_b > 0) or abs(of_b / of_a - 1) < threshold("clock"):
        return []
    return [_check("clock", clock(of_a), clock(of_b))]


def _clock(run: Run) -> float:
    """Return the SM clock under ncu in Hz, mean weighted by GPU time; NaN without counters."""
    rows = [r for r in profiled(run) if number(r["sm_clock_hz"]) > 0 and number(r["total_ns"]) > 0]
    total = sum(number(r["total_ns"]) for r in rows)
    if not total:
        return math.nan
    return sum(number(r["sm_clock_hz"]) * number(r["total_ns"]) for r in rows) / total


def _settings(a: Run, b: Run) -> list[Check]:
    """Return the arguments and variables of the programs that differ."""
    of_a, of_b = _arguments(a), _arguments(b)
    return [
        Check(
            "args",
            "warn",
            key,
            of_a.get(key, "not set"),
            of_b.get(key, "not set"),
            COUNTS_WORK if amount(of_a.get(key)) or amount(of_b.get(key)) else OPTION,
        )
        for key in dict.fromkeys([*of_a, *of_b])
        if of_a.get(key) != of_b.get(key)
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
