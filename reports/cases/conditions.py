"""Under what the cases of a run were measured: machine, software, statistics; and the caveats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pandas as pd

from nsight_prof.parsers.bench.bench import bench_files
from nsight_prof.parsers.bench.records import BenchRecords, join_records, read_records
from nsight_prof.parsers.cells import known, number, records, text
from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.rows import roof_name
from nsight_prof.reports.page import Fact, Name, Number, Text, Value
from nsight_prof.reports.page.values import Confidence
from nsight_prof.reports.profile.view_models import Caveat
from nsight_prof.reports.profile.view_models import Fact as FileFact

of_cases = partial(Text, "{n} case", "{n} cases")
STOPS = {
    "noise": Text("the noise was small enough"),
    "stable": Text("the noise no longer fell"),
    "time limit": Text("its time was over"),
    "samples": Text("it had all samples that were asked for"),
}
DATA = {"normal": Text("random, N(0, 1)"), "zeros": Text("zeros")}
NOISY = 0.05
"""Relative standard deviation from which a case counts as noisy in the caveats."""
PROTOCOL = (
    Text(
        "Each case was measured in fresh processes, one after another: warmed up until its time "
        "was stable, then timed with CUDA events; short calls were batched in a CUDA graph. A "
        "process stops a case when the noise is small enough, no longer falls, or its time is "
        "over. Outliers are kept."
    ),
    Text(
        "A value is the median of all samples of all processes; its interval (95 %) covers the "
        "spread between processes too. Cold: calls rotate over so many buffers that the L2 holds "
        "none of them. Hot: the same buffers again."
    ),
    Text(
        "The SM clock is taken in the kernel's own time, from its cycle counter and the global "
        "timer. Power and thermal limits are asked of the driver around each case."
    ),
)
FILES = (FileFact("every case with its statistics", "[bench.csv](../tables/bench.csv)"),)
TERMS = "roof, kernel, SM, DRAM, L2, L1"
"""Words that a report of cases explains anyway."""
ENOUGH = 3
"""Fresh processes, or starts of an engine, from which on what differs between them is known."""
MOST_NAMED = 3
"""More roofs than these that counters could not judge are only counted."""
CONTRADICTED, UNCONFIRMED = "contradicted: ", "not confirmed: "
"""How the reasons of table `measured_roofs` begin."""


@lru_cache(maxsize=4)
def _records(files: tuple[Path, ...]) -> BenchRecords:
    read = []
    for path in files:
        try:
            read.append(read_records(path))
        except ProfError:
            continue  # Table gaps has it: the tables are made from the same files.
    return join_records(read)


def raw_records(run: Run) -> BenchRecords:
    """Return the records of all processes of step `bench`; empty where there are no files."""
    return _records(tuple(bench_files(run.directory)))


def conditions(run: Run) -> tuple[Fact, ...]:
    """Return label and value of what was the same, or not, in all processes."""
    kinds = Counter(text(data) for data in run.bench["data"])
    data = [
        Text("{data} ({cases})", data=DATA.get(kind, kind), cases=of_cases(n=n))
        for kind, n in kinds.most_common()
    ]
    of_data = known_facts(Fact(Text("Data"), data))
    return (*_statistics(run), *of_data, *machine(run), *software(run))


def machine(run: Run) -> list[Fact]:
    """Return what the processes recorded of the GPU."""
    gpus = [head.get("gpu") or {} for head in raw_records(run).conditions]

    def numbers(key: str, unit: str) -> list[Value]:
        return [Number(number(value), unit) for value in _distinct(gpu.get(key) for gpu in gpus)]

    pcie = [
        Text("generation {generation}, {width} lanes", generation=int(pair[0]), width=int(pair[1]))
        for pair in _distinct((g.get("pcie_generation"), g.get("pcie_width")) for g in gpus)
        if all(pair)
    ]
    return known_facts(
        Fact(Text("GPU"), _distinct(gpu.get("name") for gpu in gpus)),
        Fact(Text("SMs"), numbers("sm_count", "count")),
        Fact(Text("L2 cache"), numbers("l2_bytes", "B")),
        Fact(Text("Memory"), numbers("memory_bytes", "B")),
        Fact(Text("Maximum SM clock"), numbers("max_sm_clock_hz", "Hz")),
        Fact(Text("Maximum memory clock"), numbers("max_memory_clock_hz", "Hz")),
        Fact(Text("Power limit"), numbers("power_limit_w", "W")),
        Fact(Text("Temperature at the start"), numbers("temperature_c", "°C")),
        Fact(Text("PCIe"), pcie),
    )


def gpu_name(run: Run) -> str:
    """Return the name of the GPU, or of several; empty where none is known."""
    gpus = [head.get("gpu") or {} for head in raw_records(run).conditions] or run.manifest.gpus
    return ", ".join(map(str, _distinct(gpu.get("name") for gpu in gpus)))


def software(run: Run) -> list[Fact]:
    """Return the versions that the processes recorded, their seed and time."""
    heads = raw_records(run).conditions
    versions = [head.get("software") or {} for head in heads]

    def version(key: str) -> list[Value]:
        return _distinct(found.get(key) for found in versions)

    times = sorted(str(head.get("time", "")) for head in heads)
    measured: Value = times[0] if times else ""
    if len(times) > 1:
        measured = Text("{first} to {last}", first=times[0], last=times[-1])
    return known_facts(
        Fact(Text("Driver"), version("driver")),
        Fact(Text("CUDA"), version("cuda")),
        Fact(Text("cuDNN"), version("cudnn")),
        Fact(Text("PyTorch"), version("torch")),
        Fact(Text("Triton"), version("triton")),
        Fact(Text("Python"), version("python")),
        Fact(Text("Seed"), _distinct(str(head.get("seed", "")) for head in heads)),
        Fact(Text("Measured at"), measured),
    )


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(value for value in values if value not in (None, "")))


def known_facts(*facts: Fact) -> list[Fact]:
    """Return the facts that have a value."""
    return [fact for fact in facts if fact.value]


def _statistics(run: Run) -> list[Fact]:
    done = run.bench[run.bench["status"] == "ok"]
    if done.empty:
        return []
    repeats = int(done["repeats"].max())
    processes = Text("{n} fresh process", "{n} fresh processes", n=int(done["processes"].max()))
    if repeats > 1:
        processes = Text(
            "{processes} in {n} repeats of the whole recipe", processes=processes, n=repeats
        )
    stops = Counter(c.time.stop for c in raw_records(run).cases if c.time and c.time.stop)
    reasons = [
        Text(
            "{reason} ({share})",
            reason=STOPS.get(stop, stop),
            share=Number(n / stops.total(), "fraction"),
        )
        for stop, n in stops.most_common()
    ]
    return known_facts(
        Fact(
            Text("Samples"),
            Text(
                "{processes}; {n} samples per case (median)",
                processes=processes,
                n=round(done["n"].median()),
            ),
        ),
        Fact(
            Text("Noise"),
            Text(
                "{share} relative standard deviation in a process (median)",
                share=Number(done["relative_std"].median(), "fraction"),
            ),
        ),
        Fact(Text("A process stopped a case because"), reasons),
        Fact(Text("Power and heat"), throttled(done)),
    )


def throttled(done: pd.DataFrame) -> Text:
    """Return how many samples ran under a power cap or thermal throttling."""
    known_rows = done[done["throttled_samples"].notna()]
    if known_rows.empty:
        return Text("not known: nothing recorded whether the clocks were limited")
    samples, limited = int(known_rows["n"].sum()), int(known_rows["throttled_samples"].sum())
    if not limited:
        return Text("none of {n} samples ran with limited clocks", n=samples)
    names = Counter(
        name.replace("_", " ")
        for row in known_rows["throttle_reasons"]
        for name in text(row).split(",")
        if name
    )
    reasons = [name for name, _ in names.most_common(3)]
    return Text(
        "{n} samples ({share}) of {cases} ran with limited clocks{reasons}",
        n=limited,
        share=Number(limited / samples, "fraction"),
        cases=of_cases(n=int((known_rows["throttled_samples"] > 0).sum())),
        reasons=Text(": {reasons}", reasons=reasons) if reasons else "",
    )


def overview(run: Run) -> tuple[Fact, ...]:
    """Return one line of numbers: cases, samples, processes, noise, samples under a cap."""
    done = run.bench[run.bench["status"] == "ok"]
    of_all = Text("{done} of {all}", done=len(done), all=len(run.bench))
    if done.empty:
        return (Fact(Text("Cases measured"), of_all),)
    known_rows = done[done["throttled_samples"].notna()]
    capped = (
        known_rows["throttled_samples"].sum() / known_rows["n"].sum() if len(known_rows) else None
    )
    repeats = int(done["repeats"].max())
    return (
        Fact(Text("Cases measured"), of_all),
        Fact(Text("Samples"), Number(done["n"].sum(), "count")),
        *([Fact(Text("Repeats"), Number(repeats, "count"))] if repeats > 1 else []),
        Fact(Text("Fresh processes"), Number(done["processes"].max(), "count")),
        Fact(Text("Noise in a process"), Number(done["relative_std"].median(), "fraction")),
        Fact(Text("Spread between processes"), Number(done["process_spread"].median(), "fraction")),
        Fact(Text("Samples under a power cap"), Number(capped, "fraction")),
    )


def caveats(run: Run) -> Iterator[Caveat]:
    """Yield what a reader must know before using a number."""
    yield from step_caveats(run)
    done = run.bench[run.bench["status"] == "ok"]
    alone, spread = int((done["processes"] == 1).sum()), known(done["process_spread"].median())
    if alone:
        words = Text(
            "{cases} ran in one process only: the spread between processes, which is larger than "
            "that within one, is not in the intervals.",
            cases=of_cases(n=alone),
        )
        summary = Text(
            "{cases} of {all} ran in one process.", cases=of_cases(n=alone), all=len(done)
        )
        yield Caveat(words, (), summary)
    noisy = done[done["relative_std"] > NOISY]
    if not noisy.empty:
        yield _noise(run, noisy, len(done))
    yield from _roofs(run)
    if known(done["clock_hz"].max()) is None and not done.empty:
        yield Caveat(Text("The SM clock of the samples is not known: no rate per clock."), ())
    if spread is not None and not alone:
        words = Text(
            "Each case ran in {n} fresh processes, which differ by {spread} (median).",
            n=int(done["processes"].max()),
            spread=Number(spread, "fraction"),
        )
        yield Caveat(words, (), words)


def sure(run: Run) -> Confidence:
    """Return how sure the times of the cases are."""
    done = run.bench[run.bench["status"] == "ok"]
    if done.empty or any(head.get("device") == "cpu" for head in raw_records(run).conditions):
        return "low"
    return repeats_agree(done, "process_spread")


def repeats_agree(done: pd.DataFrame, spread: str) -> Confidence:
    """Return how sure times are by their processes or starts, which differ by column `spread`."""
    repeated = done["processes"].median() >= ENOUGH
    return "high" if repeated and done[spread].median() <= NOISY else "medium"


def step_caveats(run: Run) -> Iterator[Caveat]:
    """Yield what went wrong with whole steps, and whether there was a GPU at all."""
    if any(head.get("device") == "cpu" for head in raw_records(run).conditions):
        words = Text("The cases ran on a CPU: their times say nothing about a GPU.")
        yield Caveat(words, (), words)
    for name in ("bench", "counters"):
        step = run.manifest.step(name)
        if step is not None and (step.error or step.state.value not in ("done", "pending")):
            reason: Value = step.error.rstrip(".") or Text("it is {state}", state=step.state.value)
            words = Text("Step {name} did not go well: {reason}.", name=name, reason=reason)
            yield Caveat(words, (), words)


def _noise(run: Run, noisy: pd.DataFrame, cases: int) -> Caveat:
    """Say how many of all `cases` vary much, and which varies most."""
    worst = max(records(noisy), key=lambda row: number(row["relative_std"]))
    words = Text(
        "{cases} had a relative standard deviation above {limit}; the noisiest is {worst} with "
        "{share}.",
        cases=of_cases(n=len(noisy)),
        limit=Number(NOISY, "fraction"),
        worst=Name(text(worst["case_id"])),
        share=Number(number(worst["relative_std"]), "fraction"),
    )
    summary = Text(
        "{n} of {all} measurements varied a lot; none of them is used as a limit.",
        n=len(noisy),
        all=cases,
    )
    of_roofs = run.measured_roofs["case_id"].isin(noisy["case_id"]).any()
    return Caveat(words, (), "" if of_roofs else summary)


def _roofs(run: Run) -> Iterator[Caveat]:
    """Yield which measured roofs the counters contradict or could not confirm."""
    roofs = run.measured_roofs
    roofs = roofs[roofs["unit"] != "cycles"]  # latencies stand in seconds too
    if run.bench["roof"].fillna("").eq("").all():  # of another run: only what is used here
        roofs = roofs[roofs["is_ceiling"].fillna(False)]
    wrong = roofs[roofs["accepted"].eq(False).fillna(False)]
    on_gpu = roofs[roofs["level_or_pipe"] != "host"]
    unknown = on_gpu[on_gpu["accepted"].isna()]
    if len(wrong):
        words = Text(
            "Counters contradict a roof, which is not used: {roofs}.",
            "Counters contradict {n} roofs, which are not used: {roofs}.",
            n=len(wrong),
            roofs=_with_reasons(wrong, CONTRADICTED),
        )
        summary = Text(
            "{n} of {all} limits did not stand their own check, and are not used.",
            n=len(wrong),
            all=len(roofs),
        )
        yield Caveat(words, (), summary)
    if len(unknown):
        many = len(unknown) > MOST_NAMED
        reasons: Value = _with_reasons(unknown, UNCONFIRMED)
        words = Text(
            "Counters could not confirm {n} of {all} roofs: {reasons}.",
            n=len(unknown),
            all=len(on_gpu),
            reasons=Text("the table of roofs has the reasons") if many else reasons,
        )
        yield Caveat(words, ())


def _with_reasons(roofs: pd.DataFrame, prefix: str) -> Sequence[Text]:
    """Return each roof with what the counters showed; `prefix` goes from the reasons' front."""
    return [
        Text(
            "{roof} ({reason})",
            roof=roof_name(text(row["level_or_pipe"]), text(row["dtype"]), text(row["kind"])),
            reason=text(row["reason"]).removeprefix(prefix),
        )
        for row in records(roofs)
    ]
