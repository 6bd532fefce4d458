"""Under what the cases of a run were measured: machine, statistics, throttling; and the doubts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import pandas as pd

from nsight_prof.parsers.bench import bench_files
from nsight_prof.parsers.bench_records import BenchRecords, join_records, read_records
from nsight_prof.parsers.cells import known, number, records, text
from nsight_prof.parsers.errors import ProfError
from nsight_prof.reports.cases.rows import roof_name
from nsight_prof.reports.formats import (
    clock,
    count,
    counted,
    data_size,
    listed,
    percent,
    share,
    significant,
)
from nsight_prof.reports.load import Run
from nsight_prof.reports.view_models import Caveat, Fact

STOPS = {
    "noise": "the noise was small enough",
    "stable": "the noise no longer fell",
    "time limit": "its time was over",
    "samples": "it had all samples that were asked for",
}
NOISY = 0.05
"""Relative standard deviation from which a case counts as noisy in the doubts."""
PROTOCOL = (
    "Each case was measured in fresh processes, one after another: warmed up until its time was "
    "stable, then timed with CUDA events; calls that are short were batched in a CUDA graph. A "
    "process stops a case when the noise is small enough, no longer falls, or its time is over. "
    "Outliers are kept.",
    "A value is the median of all samples of all processes; its interval (95 %) covers the spread "
    "between processes too. Cold: calls rotate over so many buffers that the L2 holds none of "
    "them. Hot: the same buffers again.",
    "The SM clock is taken in the kernel's own time, from its cycle counter and the global timer. "
    "Power and thermal limits are asked of the driver around each case.",
)
NOUN = "case"
TERMS = "roof, kernel, SM, DRAM, L2, L1"
"""Words that a report of cases explains anyway."""
DATA = (Fact("every case with its statistics", "[bench.csv](../tables/bench.csv)"),)
MOST_NAMED = 3
"""More roofs than these that counters could not judge are only counted."""


@lru_cache(maxsize=4)
def _records(files: tuple[Any, ...]) -> BenchRecords:
    parts = []
    for path in files:
        try:
            parts.append(read_records(path))
        except ProfError:
            continue  # Table gaps has it: the tables are made from the same files.
    return join_records(parts)


def raw_records(run: Run) -> BenchRecords:
    """Return the records of all processes of step `bench`; empty where there are no files."""
    return _records(tuple(bench_files(run.directory)))


def conditions(run: Run) -> tuple[Fact, ...]:
    """Return label and value of what was the same, or not, in all processes."""
    before, after = software(run)[:-2], software(run)[-2:]
    facts = [*machine(run), *before, Fact("Data", _data(run)), *after, *_statistics(run)]
    return tuple(fact for fact in facts if fact.value)


def machine(run: Run) -> list[Fact]:
    """Return the facts of the GPU that the processes told; the value of an unknown one is empty."""
    gpus = [head.get("gpu") or {} for head in raw_records(run).conditions]
    facts = [Fact(label, _all(gpus, key, show)) for label, key, show in _GPU]
    return [*facts, Fact("PCIe", _all_of([_pcie(gpu) for gpu in gpus]))]


def software(run: Run) -> list[Fact]:
    """Return the versions that the processes told, and at the end their seed and their time."""
    heads = raw_records(run).conditions
    told = [head.get("software") or {} for head in heads]
    facts = [Fact(label, _all(told, key, str)) for label, key in _SOFTWARE]
    facts.append(Fact("Seed", _all_of([str(head.get("seed", "")) for head in heads])))
    return [*facts, Fact("Measured", _times(heads))]


_GPU: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("GPU", "name", str),
    ("SMs", "sm_count", str),
    ("L2 cache", "l2_bytes", data_size),
    ("Memory", "memory_bytes", data_size),
    ("Maximum SM clock", "max_sm_clock_hz", clock),
    ("Maximum memory clock", "max_memory_clock_hz", clock),
    ("Power limit", "power_limit_w", lambda w: f"{significant(w)} W"),
    ("Temperature at the start", "temperature_c", lambda c: f"{significant(c)} °C"),
)
_SOFTWARE = (
    ("Driver", "driver"),
    ("CUDA", "cuda"),
    ("cuDNN", "cudnn"),
    ("PyTorch", "torch"),
    ("Triton", "triton"),
    ("Python", "python"),
)


def _all(parts: list[dict[str, Any]], key: str, show: Callable[[Any], str]) -> str:
    return _all_of([show(part[key]) for part in parts if part.get(key) is not None])


def _all_of(values: Iterable[str]) -> str:
    """Return the different values, in their order."""
    return ", ".join(dict.fromkeys(value for value in values if value))


def _pcie(gpu: Mapping[str, Any]) -> str:
    generation, width = gpu.get("pcie_generation"), gpu.get("pcie_width")
    return f"generation {generation}, {width} lanes" if generation and width else ""


def _data(run: Run) -> str:
    words = {"normal": "random, N(0, 1)", "zeros": "zeros"}
    kinds = Counter(text(data) for data in run.bench["data"])
    return listed([f"{words.get(k, k)} ({counted(n, 'case')})" for k, n in kinds.most_common()])


def _times(heads: Iterable[Mapping[str, Any]]) -> str:
    times = sorted(str(head.get("time", "")) for head in heads)
    return f"{times[0]} to {times[-1]}" if len(times) > 1 else "".join(times)


def _statistics(run: Run) -> list[Fact]:
    done = run.bench[run.bench["status"] == "ok"]
    if done.empty:
        return []
    repeats, processes = done["repeats"].max(), done["processes"].max()
    words = f"{counted(processes, 'fresh process')}"
    if number(repeats) > 1:
        words += f" in {counted(repeats, 'repeat')} of the whole recipe"
    middle = count(done["n"].median())
    each = f"{words}; {middle} samples of a case in all (median of the cases)"
    spread = done["relative_std"].median()
    return [
        Fact("Samples", each),
        Fact("Noise", f"{share(spread)} relative standard deviation in a process (median)"),
        Fact("A process stopped a case because", _stops(run)),
        Fact("Power and heat", throttled(done)),
    ]


def _stops(run: Run) -> str:
    stops = Counter(c.time.stop for c in raw_records(run).cases if c.time and c.time.stop)
    total = sum(stops.values())
    return listed([f"{STOPS.get(s, s)} ({share(n / total)})" for s, n in stops.most_common()])


def throttled(done: pd.DataFrame) -> str:
    """Return in words how many samples ran under a power cap or thermal throttling."""
    told = done[done["throttled_samples"].notna()]
    if told.empty:
        return "not known: nothing told whether the clocks were held down"
    samples, marked = told["n"].sum(), told["throttled_samples"].sum()
    if not marked:
        return f"none of {counted(samples, 'sample')} ran with the clocks held down"
    cases = int((told["throttled_samples"] > 0).sum())
    names = Counter(
        name for row in told["throttle_reasons"] for name in text(row).split(",") if name
    )
    why = f": {listed([n.replace('_', ' ') for n, _ in names.most_common(3)])}" if names else ""
    return (
        f"{counted(marked, 'sample')} ({share(marked / samples)}) of {counted(cases, 'case')} ran "
        f"with the clocks held down{why}"
    )


def overview(run: Run) -> tuple[Fact, ...]:
    """Return one line of numbers: cases, samples, processes, noise, samples under a cap."""
    bench = run.bench
    done = bench[bench["status"] == "ok"]
    told = done[done["throttled_samples"].notna()]
    capped = share(told["throttled_samples"].sum() / told["n"].sum()) if len(told) else "n/a"
    repeats = number(done["repeats"].max()) if len(done) else float("nan")
    heads = [Fact("Cases measured", f"{len(done):,} of {len(bench):,}")]
    if len(done):
        heads += [
            Fact("Samples", f"{int(done['n'].sum()):,}"),
            Fact("Fresh processes", f"{int(done['processes'].max())}"),
            Fact("Noise in a process", share(done["relative_std"].median())),
            Fact("Spread between processes", share(done["process_spread"].median())),
            Fact("Samples under a power cap", capped),
        ]
        if repeats > 1:
            heads.insert(2, Fact("Repeats", f"{repeats:.0f}"))
    return tuple(heads)


def doubts(run: Run) -> tuple[Caveat, ...]:
    """Return what a reader must know before he uses a number."""
    found = step_doubts(run)
    done = run.bench[run.bench["status"] == "ok"]
    if (done["processes"] == 1).any():
        alone = int((done["processes"] == 1).sum())
        words = (
            f"{counted(alone, 'case')} ran in one process only: the spread between processes, "
            "which is larger than that within one, is not in their intervals."
        )
        found.append(
            Caveat(words, (), f"{counted(alone, 'case')} of {len(done)} ran in one process.")
        )
    noisy = done[done["relative_std"] > NOISY]
    if len(noisy):
        worst = max(records(noisy), key=lambda row: number(row["relative_std"]))
        words = (
            f"{counted(len(noisy), 'case')} had a relative standard deviation above "
            f"{percent(100 * NOISY)}; the noisiest is {text(worst['case_id'])} with "
            f"{share(worst['relative_std'])}."
        )
        plain = f"{counted(len(noisy), 'case')} of {len(done)} were noisy; none of them is a roof."
        found.append(Caveat(words, (), "" if _noisy_roofs(run, noisy) else plain))
    return (*found, *_rejected(run), *_clocks(done))


def step_doubts(run: Run) -> list[Caveat]:
    """Return what went wrong with whole steps, and whether there was a GPU at all."""
    found = []
    if any(head.get("device") == "cpu" for head in raw_records(run).conditions):
        words = "The cases ran on a CPU: their times say nothing about a GPU."
        found.append(Caveat(words, (), words))
    for name in ("bench", "counters"):
        step = run.manifest.step(name)
        if step is not None and (step.error or step.state.value not in ("done", "pending")):
            why = step.error.rstrip(".") or f"it is {step.state.value}"
            words = f"Step {name} did not go well: {why}."
            found.append(Caveat(words, (), words))
    return found


def _noisy_roofs(run: Run, noisy: pd.DataFrame) -> bool:
    return bool(run.measured_roofs["case_id"].isin(noisy["case_id"]).any())


def _rejected(run: Run) -> list[Caveat]:
    roofs = run.measured_roofs
    if roofs.empty:
        return []
    roofs = roofs[roofs["unit"] != "cycles"]  # latencies stand in seconds too
    if run.bench["roof"].fillna("").eq("").all():  # of another run: only what is used here
        roofs = roofs[roofs["is_ceiling"].fillna(False)]
    lost = roofs[roofs["accepted"].eq(False).fillna(False)]
    own = roofs[roofs["level_or_pipe"] != "host"]
    open_ones = own[own["accepted"].isna()]
    said = []
    if len(lost):
        names = _named(lost)
        are = "these roofs, which are" if len(lost) > 1 else "one roof, which is"
        words = f"Counters contradict {are} not used: {'; '.join(names)}."
        plain = f"{counted(len(lost), 'number')} of {len(roofs)} did not stand its own check, "
        said.append(Caveat(words, (), f"{plain}and is not used."))
    if len(open_ones):
        many = len(open_ones) > MOST_NAMED
        which = "the table of roofs says why" if many else "; ".join(_named(open_ones))
        words = f"Counters could not confirm {len(open_ones)} of {len(own)} roofs: {which}."
        said.append(Caveat(words, ()))
    return said


def _named(roofs: pd.DataFrame) -> list[str]:
    """Return each roof with what the counters showed."""
    return [
        f"{roof_name(text(r['level_or_pipe']), text(r['dtype']), text(r['kind']))} "
        f"({text(r['reason'])})"
        for r in records(roofs)
    ]


def _clocks(done: pd.DataFrame) -> list[Caveat]:
    if known(done["clock_hz"].max()) is not None or done.empty:
        return []
    return [Caveat("The SM clock of the samples is not known: nothing is said per clock.", ())]
