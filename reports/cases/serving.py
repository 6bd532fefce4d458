"""Under what a serving run was measured: engine, model, requests; and the caveats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pandas as pd

from nsight_prof.parsers.cells import Row, known, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.serving.engine import held_by
from nsight_prof.reports.cases.conditions import (
    NOISY,
    known_facts,
    machine,
    repeats_agree,
    software,
    step_caveats,
)
from nsight_prof.reports.page import Fact, Name, Number, Text, Value, Verbatim
from nsight_prof.reports.page.values import Confidence
from nsight_prof.reports.profile.view_models import Caveat
from nsight_prof.reports.profile.view_models import Fact as FileFact
from nsight_prof.reports.serving.engine import product

of_points = partial(Text, "{n} point", "{n} points")
of_requests = partial(Text, "{n} request", "{n} requests")
STARTED = Text(
    "Each point ran on an engine that was started for the run: first warm-ups that are not timed, "
    "then its repeats. All times are those of the host's clock; none comes from a profiler."
)
RUNNING = Text(
    "The server was running before: first came warm-ups that are not timed, then each point with "
    "its repeats. All times are those of the client's clock; none comes from a profiler."
)
PROTOCOL = (
    Text(
        "Latencies are of single requests, of all repeats together; percentiles interpolate "
        "linearly between them. Rates are of whole repeats, and the median of them is shown."
    ),
    Text(
        "NVML and the engine's own gauges were sampled beside the load. A mean of power or "
        "utilization leaves the first second of a phase out, since NVML averages."
    ),
)
MANY = 100
"""Requests at one rate from which on its P95 rests on more than some."""
TERMS = "kernel"
"""Words that a report of this kind explains anyway."""
FILES = (
    FileFact("all of the points", "[results.json](results.json)"),
    FileFact("the points as a table", "[serving_points.csv](../tables/serving_points.csv)"),
    FileFact("every request", "[requests.csv](../tables/requests.csv)"),
)


def is_serving(run: Run) -> bool:
    """Whether all that the run measured are points of serving targets."""
    targets = {text(target) for target in run.bench["target"].dropna()}
    return bool(targets) and targets <= {"vllm-baseline", "vllm-serve"}


def protocol(run: Run) -> tuple[Text, ...]:
    """Return how the points were measured."""
    return (RUNNING if _ran_before(run) else STARTED, *PROTOCOL)


def _ran_before(run: Run) -> bool:
    """Whether others had started the engines: how long that took is known of our own alone."""
    return not run.engines.empty and bool(run.engines["start_s"].isna().all())


def conditions(run: Run) -> tuple[Fact, ...]:
    """Return label and value of requests, engines, machine and software."""
    return (*_requests(run), *_engines(run), *machine(run), *software(run))


def _engines(run: Run) -> list[Fact]:
    rows = records(run.engines)
    known_versions = (row for row in rows if row["version"])
    engines = (f"{product(row['served_by'])} {text(row['version'])}" for row in known_versions)

    def values(column: str, show: Callable[[Any], Value | None] = str) -> list[Value]:
        found = (row[column] for row in rows)
        there = dict.fromkeys(v for v in found if isinstance(v, str | bool) or known(v) is not None)
        return [value for item in there if (value := show(item))]

    def count(value: Any) -> Number:
        return Number(number(value), "count")

    return known_facts(
        Fact(Text("Engine"), list(dict.fromkeys(engines))),
        Fact(Text("Model"), values("model")),
        Fact(
            Text("Weights"),
            values("load_format", lambda v: Text("random (dummy)") if v == "dummy" else str(v)),
        ),
        Fact(Text("Data type"), values("dtype")),
        Fact(Text("GPUs that share the model"), values("tensor_parallel", count)),
        Fact(
            Text("Modes of the engine"),
            values("mode", lambda v: Text("CUDA graphs") if v == "cuda-graphs" else str(v)),
        ),
        Fact(Text("Attention"), values("attention_backend")),
        Fact(Text("Maximum requests per batch"), values("max_num_seqs", count)),
        Fact(Text("Maximum tokens per step"), values("max_num_batched_tokens", count)),
        Fact(
            Text("Longest context"),
            values("max_model_len", lambda v: Text("{n} token", "{n} tokens", n=int(v))),
        ),
        Fact(
            Text("Scheduling"),
            values(
                "async_scheduling",
                lambda v: Text("asynchronous: the host runs a step ahead") if bool(v) else None,
            ),
        ),
        Fact(Text("Start of an engine"), values("start_s", lambda v: Number(number(v), "s"))),
        Fact(Text("KV cache"), _kv_caches(rows)),
    )


def _kv_caches(rows: list[Row]) -> list[Text]:
    """Return the size of the KV cache of each engine, alike ones once."""
    sizes = {}
    for row in rows:
        blocks, size, total = (known(row[key]) for key in ("kv_blocks", "block_size", "kv_bytes"))
        if blocks is not None and size is not None:
            sizes[blocks, size, total] = Text(
                "{tokens} tokens in blocks of {size}{bytes}",
                tokens=int(blocks * size),
                size=int(size),
                bytes="" if total is None else Text(", {bytes}", bytes=Number(total, "B")),
            )
    return list(sizes.values())


def _requests(run: Run) -> list[Fact]:
    done = run.serving_points[run.serving_points["status"] == "ok"]
    if done.empty:
        return []
    failed = int(done["failed_requests"].sum())
    requests = Text(
        "{requests} of {points}{failed}",
        requests=of_requests(n=int(done["requests"].sum())),
        points=of_points(n=len(done)),
        failed=Text("; {n} more did not finish", n=failed) if failed else "",
    )
    spread = known(run.bench[run.bench["status"] == "ok"]["relative_std"].median())
    noise = Text(
        "{share} relative standard deviation of the repeats (median)",
        share=Number(spread, "fraction"),
    )
    return known_facts(
        Fact(Text("Data"), _data(done)),
        Fact(Text("Requests"), requests),
        Fact(Text("Repeats of a point"), Text("{n} (median)", n=round(done["repeats"].median()))),
        Fact(Text("Noise"), "" if spread is None else noise),
        Fact(Text("Power and heat"), _limited_clocks(run)),
    )


def _data(points: pd.DataFrame) -> Text:
    files = [name for name in points["requests_of"].dropna().unique().tolist() if name]
    if files:
        left_out = int(points.groupby("requests_of")["too_long"].max().sum())
        return Text(
            "requests of {files}{left_out}",
            files=[Verbatim(name) for name in files],
            left_out=Text("; {n} more are longer than the server takes", n=left_out)
            if left_out
            else "",
        )
    return Text("prompts of random token ids")


def _limited_clocks(run: Run) -> Text:
    """Return during how many samples of NVML something limited the clocks."""
    samples = run.telemetry
    if samples.empty:
        return Text("not known: NVML was not sampled")
    limited = [names for row in samples["throttle"] if (names := held_by(text(row)))]
    if not limited:
        return Text("nothing limited the clocks in {n} samples of NVML", n=len(samples))
    return Text(
        "{share} of {n} samples of NVML were under {reasons}",
        share=Number(len(limited) / len(samples), "fraction"),
        n=len(samples),
        reasons=[
            name.replace("_", " ") for name in dict.fromkeys(n for row in limited for n in row)
        ],
    )


def overview(run: Run) -> tuple[Fact, ...]:
    """Return one line of numbers: points, requests, tokens, engines, noise."""
    points, bench = run.serving_points, run.bench
    done = bench[bench["status"] == "ok"]
    measured = Text("{done} of {all}", done=len(done), all=len(bench))
    if done.empty:
        return (Fact(Text("Points measured"), measured),)
    numbers = (
        (Text("Requests"), Number(points["requests"].sum(), "count")),
        (Text("Tokens generated"), Number(run.requests["output_tokens"].sum() or None, "count")),
        (
            Text("Engines") if _ran_before(run) else Text("Engines started"),
            Number(len(run.engines) or None, "count"),
        ),
        (Text("Noise of the repeats"), Number(done["relative_std"].median(), "fraction")),
    )
    repeats = number(done["repeats"].max())
    return (
        Fact(Text("Points measured"), measured),
        *(Fact(label, value) for label, value in numbers if value.value is not None),
        *([Fact(Text("Repeats of the recipe"), Number(repeats, "count"))] if repeats > 1 else []),
    )


def caveats(run: Run) -> Iterator[Caveat]:
    """Yield what a reader must know before using a number."""
    yield from step_caveats(run)
    done = run.bench[run.bench["status"] == "ok"]
    if not done.empty:
        words = Text("No profiler ran while times were taken.")
        yield Caveat(words, (), words)
    if (spread := known(done["relative_std"].median())) is not None:
        words = Text(
            "Repeats of a point have a relative standard deviation of {share} (median).",
            share=Number(spread, "fraction"),
        )
        yield Caveat(words, (), words)
    if run.engines["dummy_weights"].fillna(False).any():
        words = Text(
            "The weights are random: times and memory are those of the model's shape, but the text "
            "is noise, and whatever depends on it (ends of answers, experts that are chosen) is "
            "not real."
        )
        yield Caveat(words, (), Text("The model had random weights: speed is real, text is not."))
    if not done.empty and (done["processes"] == 1).all():
        yield _one_start(run)
    noisy = done[done["relative_std"] > NOISY]
    if not noisy.empty:
        worst = max(records(noisy), key=lambda row: number(row["relative_std"]))
        words = Text(
            "The repeats of {points} have a relative standard deviation above {limit}; the "
            "noisiest is {worst} with {share}.",
            points=of_points(n=len(noisy)),
            limit=Number(NOISY, "fraction"),
            worst=Name(text(worst["name"])),
            share=Number(number(worst["relative_std"]), "fraction"),
        )
        summary = Text("{n} of {all} measurements varied a lot.", n=len(noisy), all=len(done))
        yield Caveat(words, (), summary)
    failed = run.serving_points[run.serving_points["failed_requests"].fillna(0) > 0]
    if not failed.empty:
        requests = of_requests(n=int(failed["failed_requests"].sum()))
        words = Text(
            "{requests} of {points} did not finish and are in no latency; table requests has the "
            "reasons.",
            requests=requests,
            points=of_points(n=len(failed)),
        )
        yield Caveat(words, (), Text("{requests} did not finish.", requests=requests))


def _one_start(run: Run) -> Caveat:
    """Say that each point was measured on one start of its engine."""
    words = Text(
        "Each point was measured on one start of its engine: how far another start would differ is "
        "not in these numbers. Measure it: {command}.",
        command=Name("prof run RECIPE --repeat 3"),
    )
    if _ran_before(run):
        words = Text(
            "The server was started once, before the run: how far another start would differ is "
            "not in these numbers. Start it anew, and measure again."
        )
    summary = Text(
        "Each number comes from one start of the engine: how much it varies from start to start is "
        "not known."
    )
    return Caveat(words, (), summary)


def sure(run: Run) -> Confidence:
    """Return how sure the latencies are: of several starts, and of enough requests per rate."""
    points = run.serving_points[run.serving_points["status"] == "ok"]
    rates = points[points["experiment"] == "open"]
    if points.empty or (len(rates) and rates["requests"].max() < MANY):
        return "low"
    return repeats_agree(run.bench[run.bench["status"] == "ok"], "relative_std")
