"""What the points of the offline baseline answer, in sentences."""

from __future__ import annotations

import math
from statistics import median

from nsight_prof.reports.bench.models import BenchFinding
from nsight_prof.reports.bench.scaling_fit import Scaling, exponents, fit_scaling
from nsight_prof.reports.bench.serving_baseline_points import MODES, Baseline, Point, pairs
from nsight_prof.reports.formats import count, percent, seconds, share, speedup
from nsight_prof.reports.formats import significant as digits

SAME = 0.02
"""Relative change of a time that is as good as none."""
TWICE = 0.95
"""Exponent from which on a doubled prompt is said to cost twice."""


def rate(value: float) -> str:
    """Return tokens a second: "8,210 tokens/s"."""
    return f"{count(value) if value >= 100 else digits(value)} tokens/s"


def batch_law(found: Baseline) -> Scaling | None:
    """Return how the time of a whole batch grows with its size."""
    sweep = found.batches
    return fit_scaling([p.batch for p in sweep], [p.value("duration_s") for p in sweep])


def scaling(found: Baseline) -> BenchFinding | None:
    """Say what a larger batch brings, and where that bends."""
    sweep = [p for p in found.batches if not math.isnan(p.value("output_tokens_per_s"))]
    if len(sweep) < 2:
        return None
    first, last = sweep[0], sweep[-1]
    gain = last.value("output_tokens_per_s") / first.value("output_tokens_per_s")
    grown = (
        f"Throughput grows from {rate(first.value('output_tokens_per_s'))} at batch {first.batch} "
        f"to {rate(last.value('output_tokens_per_s'))} at batch {last.batch}, {speedup(gain)} for "
        f"{speedup(last.batch / first.batch)} the requests"
    )
    law = batch_law(found)
    bend, plain = _bend(law, last)
    prefill, steps = _added(first, last)
    if law is not None and law.seen and prefill > 0 and steps > 0:
        whose = "prefill" if prefill > steps else "the decode steps"
        part = max(prefill, steps) / (prefill + steps)
        bend += f", and {share(part)} of what a request adds is {whose}"
    return BenchFinding(
        f"{grown}{bend}.",
        _parts(sweep, law),
        f"For prompts of {count(last.prompt)} and outputs of {count(last.output)} tokens: longer "
        "outputs, with the same prompts, move the bend to larger batches.",
        f"{count(last.batch)} requests at once give {digits(gain)} times the tokens a second of "
        f"{'one' if first.batch == 1 else first.batch}{plain}.",
    )


def _bend(law: Scaling | None, last: Point) -> tuple[str, str]:
    if law is None:
        return "", ""
    if law.bend > law.last:
        far = "" if math.isinf(law.bend) else f" (extrapolated: batch {digits(law.bend, 2)})"
        return (
            f". Scaling does not bend up to batch {last.batch}{far}",
            ", and larger batches would still pay",
        )
    low, high = digits(law.low, 2), digits(law.high, 2)
    spread = f" ({low} to {high} when any one batch is left out)" if low != high else ""
    return (
        f". Scaling bends at batch {digits(law.bend, 2)}{spread}: from there on 1 % more "
        "requests bring less than 0.5 % more tokens/s",
        f"; beyond about {digits(law.bend, 2)} at once a further request brings less than half of "
        "what the first ones do",
    )


def _parts(sweep: list[Point], law: Scaling | None) -> str:
    """Say what a batch's time is made of, and which stage grows with the batch."""
    said = []
    if law is not None:
        flat = f" beyond batch {digits(law.flat_until, 2)}" if law.flat_until > 0 else ""
        said.append(
            f"a batch takes {seconds(law.fixed_s)} and {seconds(law.each_s)} more for each "
            f"request{flat} (least squares over {len(sweep)} batches, {share(law.residual)} off in "
            "the root mean square)"
        )
    first, last = sweep[0], sweep[-1]
    prefill, steps = _added(first, last)
    if not math.isnan(prefill + steps):
        said.append(
            f"a request adds {seconds(prefill)} of prefill and {seconds(max(steps, 0.0))} over all "
            f"decode steps, which take {seconds(first.step_s)} at batch {first.batch} and "
            f"{seconds(last.step_s)} at batch {last.batch}"
        )
    steps_law = fit_scaling([p.batch for p in sweep], [p.step_s for p in sweep])
    if steps_law is not None and steps_law.bend > steps_law.last:
        said.append(f"the decode step alone does not bend up to batch {last.batch}")
    elif steps_law is not None:
        said.append(f"the decode step alone bends at batch {digits(steps_law.bend, 2)}")
    return f"{capital('; '.join(said))}." if said else ""


def _added(first: Point, last: Point) -> tuple[float, float]:
    """Return the seconds that a further request adds: to the prefill, and to all decode steps."""
    more = last.batch - first.batch
    prefill = (last.value("prefill_s") - first.value("prefill_s")) / more
    return prefill, (last.step_s - first.step_s) * (last.output - 1) / more


def first_tokens(found: Baseline) -> dict[int, float]:
    """Return the median time to first token of a single request by prompt length, in seconds."""
    by_prompt: dict[int, list[float]] = {}
    for point in found.of("lengths", found.mode):
        if not math.isnan(point.value("ttft_p50_s")):
            by_prompt.setdefault(point.prompt, []).append(point.value("ttft_p50_s"))
    return {prompt: median(by_prompt[prompt]) for prompt in sorted(by_prompt)}


def doubled_prompt(found: Baseline) -> BenchFinding | None:
    """Say what a doubled prompt costs until the first token, and of the whole request."""
    first = first_tokens(found)
    between = exponents(list(first), list(first.values()))
    if not between:
        return None
    short, long = between[0], between[-1]
    head = "A doubled prompt does not cost twice"
    if long[2] >= TWICE:
        head = "A doubled prompt costs about twice where it is long, and less where it is short"
    if min(power for *_, power in between) >= TWICE:
        head = "A doubled prompt costs twice"
    sentence = f"{head}: the time to first token grows {_doubling(long)}"
    if len(between) > 1:
        sentence += f" and {_doubling(short)}"
    whole = _whole_request(found, long)
    law = fit_scaling(list(first), list(first.values()))
    listed = ", ".join(f"{seconds(t)} at {count(n)}" for n, t in first.items())
    evidence = f"Time to first token: {listed} tokens"
    if law is not None:
        flat = f" beyond {count(law.flat_until)}" if law.flat_until > 0 else ""
        evidence += (
            f"; the law is {seconds(law.fixed_s)} and {seconds(law.each_s)} a token{flat}, "
            f"{share(law.residual)} off in the root mean square"
        )
    return BenchFinding(
        f"{sentence}{whole}.",
        f"{evidence}.",
        "For one request at a time: where many wait, a longer prompt delays the others too.",
        f"A prompt twice as long makes the wait for the first word {digits(2 ** long[2])} times as "
        f"long from {count(long[0])} tokens on, and hardly longer where it is short."
        if short[2] < 0.5 < long[2]
        else "",
    )


def _doubling(pair: tuple[float, float, float]) -> str:
    low, high, power = pair
    if abs(2**power - 1) < SAME:
        return f"not at all from {count(low)} to {count(high)} tokens"
    return f"{speedup(2**power)} a doubling from {count(low)} to {count(high)} tokens"


def _whole_request(found: Baseline, pair: tuple[float, float, float]) -> str:
    """Say how much longer a whole request takes for a doubled prompt in the same range."""
    points = found.of("lengths", found.mode)
    longest = max((p.output for p in points), default=0)
    ends = {p.prompt: p.value("e2e_p50_s") for p in points if p.output == longest}
    if pair[0] not in ends or pair[1] not in ends:
        return ""
    ((_, _, power),) = exponents(pair[:2], [ends[int(pair[0])], ends[int(pair[1])]]) or [(0, 0, 0)]
    if power == 0:
        return ""
    return f". A whole request of {count(longest)} output tokens grows {speedup(2**power)} there"


def graphs(found: Baseline) -> BenchFinding | None:
    """Say what CUDA graphs save a decode step."""
    both = [(e, g) for e, g in pairs(found) if not math.isnan(e.step_s + g.step_s)]
    if not both:
        return None
    eager, graph = both[0]
    gain = eager.step_s / graph.step_s
    sentence = (
        f"CUDA graphs make a decode step {speedup(gain)} as fast at batch {eager.batch} "
        f"({seconds(eager.step_s)} to {seconds(graph.step_s)})"
    )
    if len(both) > 1:
        last, with_last = both[-1]
        sentence += f" and {speedup(last.step_s / with_last.step_s)} at batch {last.batch}"
    saved = [f"{seconds(e.step_s - g.step_s)} at batch {e.batch}" for e, g in both]
    return BenchFinding(
        f"{sentence}.",
        f"Without graphs the host launches each kernel; a step then takes {', '.join(saved)} more"
        f"{_host_bound(eager, graph)}.",
        "vLLM's eager mode (enforce_eager) has no torch.compile either: this is the gain of both.",
        f"Starting the GPU's work from a recording (CUDA graphs) makes it {digits(gain)} times as "
        "fast."
        if gain > 1.05 and eager.batch == 1
        else "",
    )


def _host_bound(eager: Point, graph: Point) -> str:
    """Say how busy NVML saw the GPU in both modes, where it did."""
    busy = [point.value("gpu_util_pct_mean") for point in (eager, graph)]
    if math.isnan(sum(busy)):
        return ""
    return (
        f"; NVML sees a kernel running for {percent(busy[0])} of the time in eager mode at batch "
        f"{eager.batch}, and for {percent(busy[1])} with graphs"
    )


def latency(found: Baseline) -> BenchFinding | None:
    """Say how long one request takes, and how much that varies."""
    point = next(iter(found.of("latency")), None)
    if point is None or math.isnan(point.value("e2e_p50_s")):
        return None
    n, mode = count(point.value("requests")), MODES.get(point.mode, point.mode)
    first, each = point.value("ttft_p50_s"), point.value("tpot_p50_s")
    whole, slow = point.value("e2e_p50_s"), point.value("e2e_p95_s")
    return BenchFinding(
        f"A single request of {count(point.prompt)} prompt and {count(point.output)} output tokens "
        f"takes {seconds(whole)}: {seconds(first)} until its first token, then {seconds(each)} "
        "a token.",
        f"Medians of {n} requests, one at a time ({mode}); 95 % of them took {seconds(slow)} or "
        "less.",
        "",
        f"One user alone waits {seconds(first)} for the first word and gets {rate(1 / each)}.",
    )


def capital(text: str) -> str:
    """Return a text that begins a sentence."""
    return text[:1].upper() + text[1:]
