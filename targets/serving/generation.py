"""Runs one batch through an engine, step by step, and times what comes out of each step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RequestTimes:
    """One request; its fields are those of a `request` record. Seconds since the process began."""

    request: int
    prompt_tokens: int
    output_tokens: int
    arrival_s: float
    first_token_s: float | None
    finish_s: float | None
    token_times_s: tuple[float, ...]  # of each token, after arrival
    queue_s: float | None  # vLLM's own: until it was scheduled first
    engine_ttft_s: float | None  # vLLM's own: arrival to first token
    engine_tpot_s: float | None  # vLLM's own: between tokens, the first left out
    status: str  # "ok" or "failed"
    reason: str


@dataclass(frozen=True)
class StepTimes:
    """One engine step as the host timed it; its fields are those of a `step` record."""

    index: int
    t_s: float  # when the step returned
    seconds: float  # since the one before it returned, the first: since it was called
    outputs: int  # requests that got tokens in it
    tokens: int  # tokens that they got in it


@dataclass(frozen=True)
class Generation:
    """One batch, all requests added before the first step. Seconds since the process began."""

    begin_s: float
    end_s: float
    requests: tuple[RequestTimes, ...]
    steps: tuple[StepTimes, ...]

    @property
    def seconds(self) -> float:
        """End to end: from before the first request is added to the return of the last step."""
        return self.end_s - self.begin_s

    @property
    def failed(self) -> str:
        """Why a request did not give all its tokens, "" if each did."""
        return next((r.reason for r in self.requests if r.status != "ok"), "")


@dataclass
class _Request:
    """A request that runs."""

    index: int
    arrival: float
    times: list[float] = field(default_factory=list)
    finish: float | None = None
    reason: str | None = None  # vLLM's finish_reason
    stats: Any = None


def run_batch(
    engine: Any,
    prompts: Sequence[Any],
    params: Any,
    output_tokens: int,
    name: str,
    begin: float,
    on_step: Callable[[StepTimes], None] | None = None,
    adapters: Sequence[Any] = (),
) -> Generation:
    """Add all prompts to the engine, step it until it is empty, and return the times.

    Args:
        engine: vLLM's LLMEngine: add_request, step, has_unfinished_requests, abort_request.
        prompts: what add_request takes, each with its `prompt_token_ids`.
        params: vLLM's SamplingParams; its outputs must be new tokens alone (DELTA).
        output_tokens: how many tokens each request has to give.
        name: that no other batch of the engine has.
        begin: the time.monotonic() that times count from.
        on_step: called after each step; the time it takes belongs to the next step.
        adapters: vLLM's LoRARequest of each, taken in turn; none: of the model alone.

    Raises:
        Whatever vLLM raises; what it had accepted until then is taken back.
    """
    ids = [f"{name}-{number}" for number in range(len(prompts))]
    running: dict[str, _Request] = {}
    steps: list[StepTimes] = []
    clock = time.monotonic
    started = clock()
    try:
        for number, (identity, prompt) in enumerate(zip(ids, prompts, strict=True)):
            running[identity] = _Request(number, clock())
            adapter = {"lora_request": adapters[number % len(adapters)]} if adapters else {}
            engine.add_request(identity, prompt, params, **adapter)
        last = clock()
        while engine.has_unfinished_requests():
            outputs = engine.step()
            now = clock()
            got = [_take(running, output, now) for output in outputs]
            step = StepTimes(len(steps), now - begin, now - last, sum(n > 0 for n in got), sum(got))
            steps.append(step)
            last = now
            if on_step is not None:
                on_step(step)
    except BaseException:
        _abort(engine, ids)
        raise
    sizes = [len(prompt["prompt_token_ids"]) for prompt in prompts]
    requests = tuple(
        _times(running[i], n, output_tokens, begin) for i, n in zip(ids, sizes, strict=True)
    )
    return Generation(started - begin, last - begin, requests, tuple(steps))


def _take(running: dict[str, _Request], output: Any, now: float) -> int:
    """Note the new tokens of one output of a step and return how many they are."""
    request = running.get(output.request_id)
    if request is None:  # of an earlier batch that was taken back
        return 0
    tokens = sum(len(completion.token_ids) for completion in output.outputs)
    request.times.extend([now] * tokens)
    if output.finished:
        request.finish = now
        request.reason = str(output.outputs[0].finish_reason) if output.outputs else None
        request.stats = getattr(output, "metrics", None)
    return tokens


def _abort(engine: Any, ids: list[str]) -> None:
    try:
        engine.abort_request(ids)
    except Exception:  # a dead engine has nothing to take back
        return


def _times(request: _Request, prompt: int, wanted: int, begin: float) -> RequestTimes:
    tokens = len(request.times)
    complete = tokens == wanted and request.finish is not None
    reason = "" if complete else f"ended after {tokens} of {wanted} tokens ({request.reason})"
    queue, ttft, tpot = _told(request.stats, tokens)
    return RequestTimes(
        request=request.index,
        prompt_tokens=prompt,
        output_tokens=tokens,
        arrival_s=request.arrival - begin,
        first_token_s=request.times[0] - begin if request.times else None,
        finish_s=None if request.finish is None else request.finish - begin,
        token_times_s=tuple(moment - request.arrival for moment in request.times),
        queue_s=queue,
        engine_ttft_s=ttft,
        engine_tpot_s=tpot,
        status="ok" if complete else "failed",
        reason=reason,
    )


def _told(stats: Any, tokens: int) -> tuple[float | None, float | None, float | None]:
    """Return vLLM's own queue time, TTFT and TPOT from its RequestStateStats, in seconds.

    Its moments are 0 where they were not taken.
    """

    def moment(name: str) -> float | None:
        value = getattr(stats, name, None)
        return float(value) if value else None

    def between(first: str, last: str) -> float | None:
        begin, end = moment(first), moment(last)
        return None if begin is None or end is None else end - begin

    decode = between("first_token_ts", "last_token_ts")
    tpot = None if decode is None or tokens < 2 else decode / (tokens - 1)
    return between("queued_ts", "scheduled_ts"), moment("first_token_latency"), tpot
