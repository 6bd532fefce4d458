"""Points of the offline baseline, how close their stages come to the roofs, and its findings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from nsight_prof.parsers.bench.records import MEASURED
from nsight_prof.parsers.build.peaks import Peak, Peaks, peaks
from nsight_prof.parsers.cells import Row, count, grouped, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.sentences import Sentences
from nsight_prof.reports.page import Evidence, Finding, Interval, Number, Text, Value
from nsight_prof.reports.serving.engine import Engine, engine_of
from nsight_prof.reports.serving.formulas import decode, flops, prefill, traffic
from nsight_prof.reports.serving.points import TOKEN_RATE, ServingPoint, shape
from nsight_prof.reports.serving.roofs import roof_name
from nsight_prof.reports.serving.scaling_fit import Scaling, exponents, fit_scaling

SENTENCES = Sentences("serving_baseline")
TARGET = "vllm-baseline"
GRAPHS, EAGER = "cuda-graphs", "eager"
BATCH = 8
"""Batch size of the other vLLM recipes."""


@dataclass(frozen=True)
class Load:
    """What a step must compute and read by the model's shape, and how close it is to the roofs.

    `flops` and `bytes` are those of one GPU, `mfu` and `mbu` their rates over the roofs, and
    `floor_s` is the time at the roofs. NaN where something is not known.
    """

    seconds: float
    flops: float
    bytes: float
    mfu: float
    mbu: float
    floor_s: float

    @property
    def memory_bound(self) -> bool | None:
        """Whether reading takes longer than computing at the roofs; None where not known."""
        if math.isnan(self.mfu) or math.isnan(self.mbu):
            return None
        return self.mbu > self.mfu


@dataclass(frozen=True)
class Point(ServingPoint):
    """One measured point, and the loads of its two stages."""

    prefill: Load
    decode: Load

    @property
    def experiment(self) -> str:
        """latency, batch, lengths or graphs."""
        return text(self.row["experiment"])

    @property
    def mode(self) -> str:
        """How the engine ran: cuda-graphs or eager."""
        return text(self.row["engine"])

    @property
    def mode_text(self) -> Text:
        """The mode for readers."""
        return Text("CUDA graphs") if self.mode == GRAPHS else Text("eager mode")

    @property
    def batch(self) -> int:
        """Requests that were sent at once."""
        return count(self.row["batch"]) or 0

    @property
    def step_s(self) -> float:
        """Seconds of a decode step: as the host timed it, else the time per output token."""
        step = self.value("decode_step_s")
        return self.value("tpot_p50_s") if math.isnan(step) else step

    @property
    def step(self) -> Number:
        """Time of a decode step."""
        return self.derived(self.step_s, "s")


@dataclass(frozen=True)
class Baseline:
    """All points of a run with what their engine and GPU are."""

    points: tuple[Point, ...]
    engine: Engine | None
    roofs: Peaks

    def of(self, experiment: str, mode: str = "") -> list[Point]:
        """Return the points of an experiment, of one mode of the engine where it is given."""
        found = [p for p in self.points if p.experiment == experiment]
        return [p for p in found if not mode or p.mode == mode]

    @property
    def mode(self) -> str:
        """The mode that the sweeps ran in."""
        modes = [p.mode for p in self.points if p.experiment in ("batch", "latency", "lengths")]
        return max(dict.fromkeys(modes), key=modes.count) if modes else GRAPHS

    @cached_property
    def batches(self) -> list[Point]:
        """The batch sweep, smallest first."""
        return sorted(self.of("batch", self.mode), key=lambda p: p.batch)

    @cached_property
    def pairs(self) -> list[tuple[Point, Point]]:
        """(eager, CUDA graphs) of the same batch and lengths, the smallest batch first."""
        shapes: dict[tuple[int, int, int], dict[str, Point]] = {}
        for point in self.points:
            if point.experiment in ("batch", "graphs"):
                key = (point.batch, point.prompt, point.output)
                shapes.setdefault(key, {}).setdefault(point.mode, point)
        both = [shapes[key] for key in sorted(shapes) if {EAGER, GRAPHS} <= shapes[key].keys()]
        return [(modes[EAGER], modes[GRAPHS]) for modes in both]

    @cached_property
    def batch_law(self) -> Scaling | None:
        """How the time of a whole batch grows with its size."""
        sweep = self.batches
        return fit_scaling([p.batch for p in sweep], [p.value("duration_s") for p in sweep])

    @property
    def recommended(self) -> Point | None:
        """The largest batch before the bend; the largest of all where scaling does not bend."""
        law = self.batch_law
        below = [p for p in self.batches if law is None or p.batch <= law.bend]
        return next(iter((below or self.batches[:1])[-1:]), None)

    @cached_property
    def first_tokens(self) -> dict[int, float]:
        """Median TTFT of a single request by prompt length, in seconds."""
        points = (p for p in self.of("lengths", self.mode) if p.value("ttft_p50_s") >= 0)
        by_prompt = sorted(grouped(points, lambda point: point.prompt).items())
        return {prompt: median(p.value("ttft_p50_s") for p in of) for prompt, of in by_prompt}

    @cached_property
    def prompt_law(self) -> Scaling | None:
        """How TTFT of a single request grows with its prompt."""
        first = self.first_tokens
        return fit_scaling(list(first), list(first.values()))


def baseline(run: Run) -> Baseline:
    """Return the points of the run that have times."""
    engine = engine_of(run)
    roofs = peaks(run, engine.dtype if engine else "")
    rows = run.serving_points
    cases = run.bench[run.bench["target"] == TARGET]["case_id"]
    rows = rows[rows["source"].eq("bench") & rows["case_id"].isin(cases)]
    done = [row for row in records(rows) if text(row["status"]) == MEASURED]
    return Baseline(tuple(_point(row, engine, roofs) for row in done), engine, roofs)


def _point(row: Row, engine: Engine | None, roofs: Peaks) -> Point:
    batch, prompt = count(row["batch"]) or 0, count(row["prompt_tokens"]) or 0
    output = count(row["output_tokens"]) or 0
    unknown = Load(math.nan, math.nan, math.nan, math.nan, math.nan, math.nan)
    bare = Point(row, unknown, unknown)
    shard = engine.shard if engine else None
    if shard is None or not batch or not prompt:
        return bare
    # Attention and KV cache grow by a token per step: the step in the middle stands for all.
    first, middle = prefill(batch, prompt), decode(batch, prompt + output / 2)
    return Point(
        row,
        _load(
            number(row["prefill_s"]), flops(shard, first).total, traffic(shard, first).read, roofs
        ),
        _load(bare.step_s, flops(shard, middle).total, traffic(shard, middle).read, roofs),
    )


def _load(seconds: float, operations: float, read: float, roofs: Peaks) -> Load:
    compute, memory = _value(roofs.attained(operations / seconds)), _value(roofs.memory)
    return Load(
        seconds,
        operations,
        read,
        operations / seconds / compute,
        read / seconds / memory,
        max(operations / compute, read / memory),
    )


def _value(peak: Peak | None) -> float:
    return peak.value if peak is not None else math.nan


RATE = "output_tokens_per_s"
SAME = 0.02
"""Relative change of a time that counts as none."""
TWICE = 0.95
"""Exponent from which on a doubled prompt is said to cost twice."""
MIN_GAIN = 1.05
"""Speed-up by CUDA graphs below which it is of no interest to all readers."""

Doubling = tuple[float, float, float]


def scaling(found: Baseline) -> Finding | None:
    """State which batch to run, what it gives, and where scaling bends."""
    sweep = [p for p in found.batches if not math.isnan(p.value(RATE))]
    if len(sweep) < 2:
        return None
    first, last, law = sweep[0], sweep[-1], found.batch_law
    best, action = found.recommended or last, Text("Measure larger batches.")
    advice = Text("Throughput grows with the batch")
    if law is not None and law.bend > law.last:
        advice = Text("Larger batches still pay")
    elif law is not None:
        bend = Number(law.bend)
        advice = Text("Run batches of up to about {bend} requests", bend=bend)
        action = SENTENCES.text(
            "scaling",
            bend=bend,
        )
    return replace(
        SENTENCES.finding(
            "batch_scaling",
            (
                *_beyond(first, best, last),
                *_law(law, len(sweep)),
                *_added(first, last),
                *_steps(sweep),
            ),
            advice=advice,
            batch=best.batch,
            rate=best.number(RATE),
            gain=_gain(first, best),
            first=first.batch,
            ttft=best.number("ttft_p50_s"),
            tpot=best.number("tpot_p50_s"),
            prompt=last.prompt,
            output=last.output,
            n=best.batch,
        ),
        action=action,
    )


def _beyond(first: Point, best: Point, last: Point) -> list[Evidence | Text]:
    if best is last:
        return []
    label = Text("{more} the requests, batch {batch}, give", batch=last.batch,
                 more=Number(last.batch / first.batch, "x", digits=3))  # fmt: skip
    rule = Text("beyond the bend 1 % more requests bring less than 0.5 % more throughput")
    return [rule, Evidence(label, [last.number(RATE), _gain(first, last)])]


def _steps(sweep: list[Point]) -> list[Evidence]:
    """Return where the decode step alone bends."""
    law = fit_scaling([p.batch for p in sweep], [p.step_s for p in sweep])
    if law is None:
        return []
    if law.bend > law.last:
        return [Evidence(Text("the decode step alone does not bend up to batch"), round(law.last))]
    return [Evidence(Text("the decode step alone bends at batch"), Number(law.bend))]


def _gain(first: Point, point: Point) -> Number:
    return point.number(RATE).times(first.number(RATE))


def _law(law: Scaling | None, batches: int) -> Iterator[Evidence | Text]:
    """Yield the fitted law of a batch's time, and how far its bend depends on any one batch."""
    if law is None:
        return
    yield SENTENCES.text(
        "law",
        fixed=Number(law.fixed_s, "s"),
        each=Number(law.each_s, "s"),
        n=batches,
        error=Number(law.residual, "fraction"),
    )
    if law.flat_until > 0:
        yield Evidence(Text("it grows from batch"), Number(law.flat_until))
    if law.low < law.high:
        label = Text("the bend, when any one batch is left out:")
        yield Evidence(label, Interval(law.low, law.high))
    if law.last < law.bend < math.inf:
        yield Evidence(Text("extrapolated bend at batch"), Number(law.bend))


def _added(first: Point, last: Point) -> Iterator[Evidence | Text]:
    """Yield the time that a further request adds to the prefill and to all decode steps."""
    more = last.batch - first.batch
    prefill = (last.value("prefill_s") - first.value("prefill_s")) / more
    steps = (last.step_s - first.step_s) * (last.output - 1) / more
    if math.isnan(prefill + steps):
        return
    yield SENTENCES.text(
        "added",
        prefill=Number(prefill, "s"),
        steps=Number(max(steps, 0.0), "s"),
        before=first.step,
        first=first.batch,
        after=last.step,
        last=last.batch,
    )
    if prefill > 0 and steps > 0:
        share = Number(prefill / (prefill + steps), "fraction")
        yield Evidence(Text("share of prefill in that:"), share)


def doubled_prompt(found: Baseline) -> Finding | None:
    """State what a doubled prompt costs until the first token, and of the whole request."""
    first = found.first_tokens
    between = exponents(list(first), list(first.values()))
    if not between:
        return None
    short, long = between[0], between[-1]
    head = Text("A doubled prompt costs less than twice")
    if long[2] >= TWICE:
        head = Text("A doubled prompt doubles TTFT only where it is long")
    if min(power for *_, power in between) >= TWICE:
        head = Text("A doubled prompt doubles TTFT")
    growth = [_doubling(pair) for pair in dict.fromkeys((long, short))]
    times = [Text("{ttft} at {n}", ttft=Number(t, "s"), n=n) for n, t in first.items()]
    evidence: list[Evidence | Text] = [Evidence(Text("TTFT by prompt tokens:"), times)]
    law, action = found.prompt_law, None
    if law is not None:
        evidence.append(
            Text(
                "the law is {fixed} and {each} per token (root mean square error {error})",
                fixed=Number(law.fixed_s, "s"), each=Number(law.each_s, "s"),
                error=Number(law.residual, "fraction"),
            )
        )  # fmt: skip
        if law.flat_until > 0:
            evidence.append(Evidence(Text("it grows from token"), Number(law.flat_until)))
        if law.bend_measured:
            action = SENTENCES.text(
                "doubled_prompt",
                n=Number(law.bend),
            )
    evidence += _end_to_end(found, long)
    everyday = short[2] < 0.5 < long[2]
    return replace(
        SENTENCES.finding(
            "doubled_prompt",
            evidence,
            head=head,
            growth=growth,
            factor=Number(2 ** long[2], "x"),
            n=round(long[0]),
        ),
        action=action,
        technical=not everyday,
    )


def _doubling(pair: Doubling) -> Text:
    low, high, power = pair
    if abs(2**power - 1) < SAME:
        return Text("not at all from {low} to {high} tokens", low=round(low), high=round(high))
    return Text(
        "{factor} per doubling from {low} to {high} tokens",
        factor=Number(2**power, "x"), low=round(low), high=round(high),
    )  # fmt: skip


def _end_to_end(found: Baseline, pair: Doubling) -> list[Evidence]:
    """Return how much longer a whole request takes for a doubled prompt in the same range."""
    points = found.of("lengths", found.mode)
    longest = max((p.output for p in points), default=0)
    ends = {p.prompt: p.value("e2e_p50_s") for p in points if p.output == longest}
    low, high = round(pair[0]), round(pair[1])
    if low not in ends or high not in ends:
        return []
    between = exponents((low, high), (ends[low], ends[high]))
    label = Text("a whole request with {n} output tokens, per doubling there:", n=longest)
    return [Evidence(label, Number(2**power, "x", digits=3)) for *_, power in between]


def graphs(found: Baseline) -> Finding | None:
    """State what CUDA graphs save per decode step."""
    both = [(e, g) for e, g in found.pairs if not math.isnan(e.step_s + g.step_s)]
    if not both:
        return None
    (eager, graph), *_ = both
    gain = eager.step.times(graph.step)
    gains = [
        Text(
            "{gain} at batch {n} ({eager} to {graphs})",
            gain=e.step.times(g.step), n=e.batch, eager=e.step, graphs=g.step,
        )
        for e, g in both
    ]  # fmt: skip
    evidence: list[Evidence | Text] = [Text("without graphs the host launches each kernel")]
    if not math.isnan(eager.value("gpu_util_pct_mean") + graph.value("gpu_util_pct_mean")):
        evidence.append(
            SENTENCES.text(
                "graphs",
                batch=eager.batch,
                eager=eager.number("gpu_util_pct_mean"),
                graphs=graph.number("gpu_util_pct_mean"),
            )
        )
    pays = (gain.value or 0.0) > MIN_GAIN
    return replace(
        SENTENCES.finding(
            "cuda_graphs",
            evidence,
            gains=gains,
            gain=gain,
        ),
        action=Text("Keep CUDA graphs on: enforce_eager is for debugging.") if pays else None,
        technical=not (pays and eager.batch == 1),
    )


def latency(found: Baseline) -> Finding | None:
    """State how long a single request takes, and how much that varies."""
    point = next(iter(found.of("latency")), None)
    if point is None or math.isnan(point.value("e2e_p50_s")):
        return None
    ttft, tpot = point.number("ttft_p50_s"), point.number("tpot_p50_s")
    return replace(
        SENTENCES.finding(
            "single_request",
            (
                Text("medians of {n} requests, one at a time", n=point.number("requests")),
                point.mode_text,
                Evidence(Text("95 % of them took at most"), point.number("e2e_p95_s").at_digits(3)),
            ),
            prompt=point.prompt,
            output=point.output,
            e2e=point.number("e2e_p50_s").at_digits(3),
            ttft=ttft.at_digits(3),
            tpot=tpot.at_digits(3),
        ),
        lay_verdict=Text(
            "One user alone waits {ttft} for the first word and then gets {rate}.",
            ttft=ttft,
            rate=point.derived(1 / (tpot.value or math.nan), TOKEN_RATE),
        ),
    )


UTILIZATION = "gpu_util_pct_mean"
SHORT_IDLE = 1.0
"""Per cent of idle time below which NVML sees no gap."""
MEMORY, COMPUTE, BOTH = "memory", "compute", "both"
BOUND = {
    MEMORY: Text("memory-bound"),
    COMPUTE: Text("compute-bound"),
    BOTH: Text("memory-bound at small batches and compute-bound at large ones"),
}
LIMIT = {
    MEMORY: Text("memory bandwidth"),
    COMPUTE: Text("arithmetic"),
    BOTH: Text("memory bandwidth at small batches and by arithmetic at large ones"),
}


def bound(found: Baseline) -> Finding | None:
    """State whether memory or arithmetic limits each stage."""
    sweep = [p for p in found.batches if not math.isnan(p.decode.seconds + p.decode.bytes)]
    if not sweep:
        return None
    point = _typical(sweep)
    load, prefill = point.decode, point.prefill
    memory = found.roofs.memory
    compute = found.roofs.attained(prefill.flops / prefill.seconds)
    if memory is None or compute is None:
        return _without_roofs(point)
    kind, prefill_kind = _kind([p.decode for p in sweep]), _kind([prefill])
    read, peak = roof_name(memory.name), roof_name(compute.name)
    recipe = Text("Which kernels miss the roof: prof run vllm-kernels.")
    action = Text("Faster decode needs fewer or cheaper FLOPs (FP8). {recipe}", recipe=recipe)
    if kind != COMPUTE:
        action = SENTENCES.text(
            "bound",
            recipe=recipe,
        )
    return replace(
        SENTENCES.finding(
            "bound",
            (
                *map(_utilization, sweep[:1] + sweep[1:][-1:]),
                Evidence(Text("{roof}:", roof=read), Number(memory.value, "B/s", digits=3)),
                Evidence(Text("{roof}:", roof=peak), Number(compute.value, "FLOP/s", digits=3)),
            ),
            decode=BOUND[kind],
            prefill=BOUND[prefill_kind],
            batch=point.batch,
            prompt=point.prompt,
            roof=read,
            peak=peak,
            time=point.derived(load.seconds, "s"),
            bytes=_bytes(point),
            floor=point.derived(load.bytes / memory.value, "s").by(
                Text("{a} / {b}", a=_bytes(point), b=Number(memory.value, "B/s", digits=3))
            ),
            mbu=point.derived(load.mbu, "fraction"),
            mfu=point.derived(prefill.mfu, "fraction"),
        ),
        action=action,
        lay_verdict=Text(
            "Generating text is limited by {decode}; reading the prompt by {prefill}.",
            decode=LIMIT[kind],
            prefill=LIMIT[prefill_kind],
        ),
    )


def _typical(sweep: Sequence[Point]) -> Point:
    """Return the point of the batch that the other recipes use too, else the middle one."""
    return next((p for p in sweep if p.batch == BATCH), sweep[len(sweep) // 2])


def _bytes(point: Point) -> Number:
    """Return what a decode step must read."""
    formula = Text("bytes of the weights and of the KV cache that a step reads")
    return point.derived(point.decode.bytes, "B").by(formula)


def _kind(loads: Sequence[Load]) -> str:
    kinds = [load.memory_bound for load in loads]
    if all(kinds):
        return MEMORY
    return BOTH if any(kinds) else COMPUTE


def _utilization(point: Point) -> Text:
    return Text(
        "batch {batch}: decode MBU {mbu} and MFU {mfu}, prefill MFU {prefill}",
        batch=point.batch, mbu=point.derived(point.decode.mbu, "fraction"),
        mfu=point.derived(point.decode.mfu, "fraction"),
        prefill=point.derived(point.prefill.mfu, "fraction"),
    )  # fmt: skip


def _without_roofs(point: Point) -> Finding:
    load = point.decode
    return SENTENCES.finding(
        "decode_rate",
        batch=point.batch,
        bytes=_bytes(point),
        time=point.derived(load.seconds, "s"),
        rate=_bytes(point).per(point.derived(load.seconds, "s"), "B/s"),
    )


def idle(found: Baseline) -> Finding | None:
    """State what NVML and the time of a step show of the GPU's idle time, where it sees any."""
    sampled = [p for p in found.batches if not math.isnan(p.value(UTILIZATION))]
    if not sampled:
        return None
    first, last, typical = sampled[0], sampled[-1], _typical(sampled)
    free, busy = max(0.0, 100 - first.value(UTILIZATION)), first.number(UTILIZATION)
    if free < SHORT_IDLE:
        return None
    evidence: list[Evidence | Text] = []
    if last is not first:
        label = Text("at batch {batch} a kernel runs for", batch=last.batch)
        evidence.append(Evidence(label, last.number(UTILIZATION)))
    if not math.isnan(typical.decode.floor_s):
        over = typical.derived(typical.decode.seconds - typical.decode.floor_s, "s")
        label = Text(
            "gaps and kernels below their roof make a decode step at batch {batch} longer by",
            batch=typical.batch,
        )
        evidence.append(Evidence(label, over))
    evidence.append(Text("means of NVML's samples, without the first second of each batch"))
    return SENTENCES.finding(
        "idle",
        evidence,
        free=first.derived(free, "%").by(Text("{a} - {b}", a=Number(100, "%"), b=busy)),
        batch=first.batch,
        busy=busy,
    )


def cache(found: Baseline) -> Finding | None:
    """State how full the KV cache was, and how many requests had to wait for it."""
    gauged = [p for p in found.points if not math.isnan(p.value("kv_usage_max"))]
    if not gauged:
        return None
    fullest = max(gauged, key=lambda p: p.value("kv_usage_max"))
    preempted = [p for p in gauged if p.value("preemptions") > 0]
    evidence: list[Evidence | Text] = [Evidence(Text("each with"), shape(fullest))]
    if found.engine and found.engine.kv_tokens:
        evidence.append(Evidence(Text("tokens that it holds:"), found.engine.kv_tokens))
    evidence.append(Text("vLLM's gauges, read in the warm-ups and between the timed repeats"))
    values: dict[str, Value] = {"used": fullest.number("kv_usage_max"), "batch": fullest.batch}
    if not preempted:
        return SENTENCES.finding("kv_cache", evidence, **values)
    verdict = Text(
        "The KV cache is too small from batch {smallest} on: {n} request was preempted, and it was "
        "{used} full at batch {batch}.",
        "The KV cache is too small from batch {smallest} on: {n} requests were preempted, and it "
        "was {used} full at batch {batch}.",
        n=round(sum(p.value("preemptions") for p in preempted)),
        smallest=min(p.batch for p in preempted),
        **values,
    )
    action, disproof = SENTENCES.text("preempted"), SENTENCES.text("again")
    return Finding("kv_cache", verdict, tuple(evidence), action, disproof, technical=True)


def agreement(found: Baseline) -> Finding | None:
    """State how well the throughput agrees with vLLM's own counters."""
    both = [
        (p, p.value(RATE) / p.value("vllm_output_tokens_per_s") - 1)
        for p in found.points
        if p.value("vllm_output_tokens_per_s") > 0 and not math.isnan(p.value(RATE))
    ]
    if not both:
        return None
    point, difference = max(both, key=lambda pair: abs(pair[1]))
    return SENTENCES.finding(
        "agreement",
        (
            Text("medians of the repeats at {n} points", n=len(both)),
            Evidence(Text("the largest difference is that of"), point.name),
        ),
        difference=point.derived(abs(difference), "fraction").by(
            Text("tokens/s / tokens/s by the counters - 1")
        ),
    )
