"""Under what a serving run was measured: engine, model, requests; and the doubts about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nsight_prof.parsers.cells import Row, known, number, records, text
from nsight_prof.parsers.serving_engine import held_by
from nsight_prof.reports.cases.conditions import (
    NOISY,
    machine,
    software,
    step_caveats,
)
from nsight_prof.reports.formats import count, counted, data_size, listed, percent, seconds, share
from nsight_prof.reports.load import Run
from nsight_prof.reports.page import Fact as PageFact
from nsight_prof.reports.view_models import Caveat, Fact

PROTOCOL = (
    "Each point ran on an engine that was started for the run: first warm-ups that are not timed, "
    "then its repeats. All times are those of the host's clock; none comes from a profiler.",
    "Latencies are of single requests, of all repeats together; percentiles interpolate linearly "
    "between them. Rates are of whole repeats, and the median of them is shown.",
    "NVML and the engine's own gauges were sampled beside the load. A mean of power or utilization "
    "leaves the first second of a phase out, since NVML averages.",
)
NOUN = "point"
TERMS = "kernel"
"""Words that a report of this kind explains anyway."""
DATA = (
    Fact("all of the points", "[results.json](results.json)"),
    Fact("the points as a table", "[serving_points.csv](../tables/serving_points.csv)"),
    Fact("every request", "[requests.csv](../tables/requests.csv)"),
)


def is_serving(run: Run) -> bool:
    """Whether all that the run measured are points of serving targets."""
    targets = {text(target) for target in run.bench["target"].dropna()}
    return bool(targets) and targets <= {"vllm-baseline", "vllm-serve"}


def conditions(run: Run) -> tuple[PageFact | Fact, ...]:
    """Return label and value of machine, software, model, engines and requests."""
    facts: list[PageFact | Fact] = [*machine(run), *_engines(run), *software(run), *_requests(run)]
    return tuple(fact for fact in facts if fact.value)


def _engines(run: Run) -> list[Fact]:
    rows = records(run.engines)
    facts = [Fact(label, _distinct(rows, column, show)) for label, column, show in _ENGINE]
    sizes = dict.fromkeys(kv for row in rows if (kv := _kv(row)))
    facts.append(Fact("KV cache", "; ".join(sizes)))
    return facts


def _flag(words: str) -> Callable[[Any], str]:
    return lambda value: words if bool(value) else ""


_ENGINE: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("vLLM", "version", str),
    ("Model", "model", str),
    ("Weights", "load_format", lambda v: "random (dummy)" if v == "dummy" else str(v)),
    ("Type", "dtype", str),
    ("GPUs that share the model", "tensor_parallel", count),
    ("Modes of the engine", "mode", lambda v: "CUDA graphs" if v == "cuda-graphs" else str(v)),
    ("Attention", "attention_backend", str),
    ("Most requests in a batch", "max_num_seqs", count),
    ("Most tokens in a step", "max_num_batched_tokens", count),
    ("Longest context", "max_model_len", lambda v: f"{count(v)} tokens"),
    ("Scheduling", "async_scheduling", _flag("asynchronous: the host runs a step ahead")),
    ("Start of an engine", "start_s", seconds),
)


def _distinct(rows: list[Row], column: str, show: Callable[[Any], str]) -> str:
    values = [row[column] for row in rows]
    known_ones = [show(v) for v in values if isinstance(v, str | bool) or known(v) is not None]
    return "; ".join(dict.fromkeys(v for v in known_ones if v))


def _kv(row: Row) -> str:
    blocks, size = known(row["kv_blocks"]), known(row["block_size"])
    if blocks is None or size is None:
        return ""
    held = "" if known(row["kv_bytes"]) is None else f", {data_size(row['kv_bytes'])}"
    return f"{count(blocks * size)} tokens in blocks of {count(size)}{held}"


def _requests(run: Run) -> list[Fact]:
    done = run.serving_points[run.serving_points["status"] == "ok"]
    if done.empty:
        return []
    finished, failed = done["requests"].sum(), done["failed_requests"].sum()
    words = f"{counted(finished, 'request')} of {counted(len(done), 'point')}"
    if failed:
        words += f"; {count(failed)} more did not finish"
    ours = run.bench[run.bench["status"] == "ok"]
    spread = known(ours["relative_std"].median())
    noise = f"{share(spread)} relative standard deviation of the repeats (median)"
    return [
        Fact("Data", "prompts of random token ids"),
        Fact("Requests", words),
        Fact("Repeats of a point", f"{count(done['repeats'].median())} (median)"),
        Fact("Noise", "" if spread is None else noise),
        Fact("Power and heat", _held(run)),
    ]


def _held(run: Run) -> str:
    """Say during how many samples of NVML something held the clock down."""
    samples = run.telemetry
    if samples.empty:
        return "not known: NVML was not sampled"
    held = [names for row in samples["throttle"] if (names := held_by(text(row)))]
    if not held:
        return f"nothing held the clocks down in {counted(len(samples), 'sample')} of NVML"
    why = listed([name.replace("_", " ") for name in dict.fromkeys(n for row in held for n in row)])
    part = share(len(held) / len(samples))
    return f"{part} of {counted(len(samples), 'sample')} of NVML were under {why}"


def overview(run: Run) -> tuple[Fact, ...]:
    """Return one line of numbers: points, requests, tokens, engines, noise."""
    points, bench = run.serving_points, run.bench
    done = bench[bench["status"] == "ok"]
    heads = [Fact("Points measured", f"{len(done):,} of {len(bench):,}")]
    if done.empty:
        return tuple(heads)
    heads.append(Fact("Requests", count(points["requests"].sum())))
    tokens = run.requests["output_tokens"].sum()
    if tokens:
        heads.append(Fact("Tokens generated", count(tokens)))
    if len(run.engines):
        heads.append(Fact("Engines started", count(len(run.engines))))
    if known(done["relative_std"].median()) is not None:
        heads.append(Fact("Noise of the repeats", share(done["relative_std"].median())))
    repeats = number(done["repeats"].max())
    if repeats > 1:
        heads.append(Fact("Repeats of the recipe", count(repeats)))
    return tuple(heads)


def doubts(run: Run) -> tuple[Caveat, ...]:
    """Return what a reader must know before he uses a number."""
    return (*step_caveats(run), *_weights(run), *_alone(run), *_noisy(run), *_failed(run))


def _weights(run: Run) -> list[Caveat]:
    if not run.engines["dummy_weights"].fillna(False).any():
        return []
    words = (
        "The weights are random: times and memory are those of the model's shape, but the text is "
        "noise, and whatever depends on it (ends of answers, experts that are chosen) is not real."
    )
    return [Caveat(words, (), "The model had random weights: speed is real, text is not.")]


def _alone(run: Run) -> list[Caveat]:
    done = run.bench[run.bench["status"] == "ok"]
    if done.empty or (done["processes"] != 1).any():
        return []
    words = (
        "Each point was measured on one start of its engine: how far another start would differ is "
        "not in these numbers; prof run RECIPE --repeat 3 tells."
    )
    return [Caveat(words, (), "Each number comes from one start of the engine.")]


def _noisy(run: Run) -> list[Caveat]:
    done = run.bench[run.bench["status"] == "ok"]
    noisy = done[done["relative_std"] > NOISY]
    if noisy.empty:
        return []
    worst = max(records(noisy), key=lambda row: number(row["relative_std"]))
    many = counted(len(noisy), "point")
    words = (
        f"The repeats of {many} have a relative standard deviation above {percent(100 * NOISY)}; "
        f"the noisiest is {text(worst['name'])} with {share(worst['relative_std'])}."
    )
    return [Caveat(words, (), f"{len(noisy)} of {len(done)} points varied a lot.")]


def _failed(run: Run) -> list[Caveat]:
    points = run.serving_points
    bad = points[points["failed_requests"].fillna(0) > 0]
    if bad.empty:
        return []
    total = int(bad["failed_requests"].sum())
    words = (
        f"{counted(total, 'request')} of {counted(len(bad), 'point')} did not finish and are in no "
        "latency; table requests says why."
    )
    return [Caveat(words, (), f"{counted(total, 'request')} did not finish.")]
