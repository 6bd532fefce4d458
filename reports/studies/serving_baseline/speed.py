"""Findings about speed: throughput over the batch, prompt length, CUDA graphs, latency."""

from __future__ import annotations

import math

from nsight_prof.reports.page import Evidence, Finding, Interval, Number, Text
from nsight_prof.reports.serving.points import TOKEN_RATE
from nsight_prof.reports.serving.scaling_fit import Scaling, exponents, fit_scaling
from nsight_prof.reports.studies.serving_baseline.points import Baseline, Point

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
        action = Text(
            "Cap batches at about {bend} requests (vLLM: --max-num-seqs), then measure latencies "
            "under load with the recipe vllm-serve.",
            bend=bend,
        )
    return Finding(
        "batch_scaling",
        Text(
            "{advice}: batch {batch} gives {rate} ({gain} of batch {first}) with a TTFT of {ttft} "
            "and a TPOT of {tpot}.",
            advice=advice, batch=best.batch, rate=best.number(RATE), gain=_gain(first, best),
            first=first.batch, ttft=best.number("ttft_p50_s"), tpot=best.number("tpot_p50_s"),
        ),
        (*_beyond(first, best, last), *_law(law, len(sweep)), *_added(first, last), *_steps(sweep)),
        action=action,
        disproof=Text(
            "For prompts of {prompt} and outputs of {output} tokens: longer outputs, with the same "
            "prompts, move the bend to larger batches.",
            prompt=last.prompt,
            output=last.output,
        ),
        lay_verdict=Text(
            "{advice}: {n} at once give {gain} the tokens per second of {first}.",
            advice=advice, n=best.batch, gain=_gain(first, best), first=first.batch,
        ),
    )  # fmt: skip


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


def _law(law: Scaling | None, batches: int) -> list[Evidence | Text]:
    """Return the fitted law of a batch's time, and how far its bend depends on any one batch."""
    if law is None:
        return []
    lines: list[Evidence | Text] = [
        Text(
            "a batch takes {fixed} and {each} more per request (least squares over {n} batches, "
            "root mean square error {error})",
            fixed=Number(law.fixed_s, "s"), each=Number(law.each_s, "s"), n=batches,
            error=Number(law.residual, "fraction"),
        )
    ]  # fmt: skip
    if law.flat_until > 0:
        lines.append(Evidence(Text("it grows from batch"), Number(law.flat_until)))
    if law.low < law.high:
        label = Text("the bend, when any one batch is left out:")
        lines.append(Evidence(label, Interval(law.low, law.high)))
    if law.last < law.bend < math.inf:
        lines.append(Evidence(Text("extrapolated bend at batch"), Number(law.bend)))
    return lines


def _added(first: Point, last: Point) -> list[Evidence | Text]:
    """Return the time that a further request adds to the prefill and to all decode steps."""
    more = last.batch - first.batch
    prefill = (last.value("prefill_s") - first.value("prefill_s")) / more
    steps = (last.step_s - first.step_s) * (last.output - 1) / more
    if math.isnan(prefill + steps):
        return []
    lines: list[Evidence | Text] = [
        Text(
            "a further request adds {prefill} of prefill and {steps} over all decode steps, which "
            "take {before} at batch {first} and {after} at batch {last}",
            prefill=Number(prefill, "s"), steps=Number(max(steps, 0.0), "s"), before=first.step,
            first=first.batch, after=last.step, last=last.batch,
        )
    ]  # fmt: skip
    if prefill > 0 and steps > 0:
        share = Number(prefill / (prefill + steps), "fraction")
        lines.append(Evidence(Text("share of prefill in that:"), share))
    return lines


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
            action = Text(
                "Shorten prompts of more than about {n} tokens: below that, TTFT is mostly its "
                "fixed part.",
                n=Number(law.bend),
            )
    evidence += _end_to_end(found, long)
    everyday = short[2] < 0.5 < long[2]
    return Finding(
        "doubled_prompt",
        Text("{head}: TTFT grows {growth}.", head=head, growth=growth),
        tuple(evidence),
        action=action,
        disproof=Text(
            "For one request at a time: where many wait, a longer prompt delays the others too."
        ),
        lay_verdict=Text(
            "A prompt twice as long makes the wait for the first word {factor} as long from {n} "
            "tokens on, and hardly longer where it is short.",
            factor=Number(2 ** long[2], "x"),
            n=round(long[0]),
        ),
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
            Text(
                "at batch {batch} NVML sees a kernel running for {eager} of the time in eager mode "
                "and for {graphs} with graphs",
                batch=eager.batch, eager=eager.number("gpu_util_pct_mean"),
                graphs=graph.number("gpu_util_pct_mean"),
            )
        )  # fmt: skip
    pays = (gain.value or 0.0) > MIN_GAIN
    return Finding(
        "cuda_graphs",
        Text("CUDA graphs make decode steps faster: {gains}.", gains=gains),
        tuple(evidence),
        action=Text("Keep CUDA graphs on: enforce_eager is for debugging.") if pays else None,
        disproof=Text(
            "The gain is also that of torch.compile, which vLLM's eager mode (enforce_eager) does "
            "without."
        ),
        lay_verdict=Text(
            "Starting the GPU's work from a recording (CUDA graphs) makes text generation {gain} "
            "as fast.",
            gain=gain,
        ),
        technical=not (pays and eager.batch == 1),
    )


def latency(found: Baseline) -> Finding | None:
    """State how long a single request takes, and how much that varies."""
    point = next(iter(found.of("latency")), None)
    if point is None or math.isnan(point.value("e2e_p50_s")):
        return None
    ttft, tpot = point.number("ttft_p50_s"), point.number("tpot_p50_s")
    return Finding(
        "single_request",
        Text(
            "A single request of {prompt} prompt and {output} output tokens takes {e2e}: a TTFT of "
            "{ttft}, then {tpot} per token.",
            prompt=point.prompt, output=point.output,
            e2e=point.number("e2e_p50_s").at_digits(3),
            ttft=ttft.at_digits(3), tpot=tpot.at_digits(3),
        ),
        (
            Text("medians of {n} requests, one at a time", n=point.number("requests")),
            point.mode_text,
            Evidence(Text("95 % of them took at most"), point.number("e2e_p95_s").at_digits(3)),
        ),
        lay_verdict=Text(
            "One user alone waits {ttft} for the first word and then gets {rate}.",
            ttft=ttft,
            rate=point.derived(1 / (tpot.value or math.nan), TOKEN_RATE),
        ),
    )  # fmt: skip
