"""Works out which tokens each engine step computed, from its counts and the requests that ran.

The trace has the requests and new tokens of each step. What they had in the KV cache follows
from vLLM's scheduler: first come, first served, a prompt that does not fit is cut, and requests
that have a token go on (vllm/v1/core/sched/scheduler.py, 0.20).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nsight_prof.reports.serving.engine import Requests
from nsight_prof.reports.serving.formulas import Work


@dataclass(frozen=True)
class Counts:
    """Requests and new tokens of one step, of prompts and of requests that go on."""

    prefill_requests: int
    prefill_tokens: int
    decode_requests: int
    decode_tokens: int


@dataclass
class _Prompt:
    pending: int
    done: int
    outputs: int


def works(steps: Iterable[Counts], batches: Sequence[Requests]) -> list[Work | None]:
    """Return the work of each step; None from the step on that `batches` do not explain.

    So a trace that began in the middle of a batch gives no work rather than a wrong one.
    """
    waiting = deque(
        _Prompt(batch.prompt_tokens, 0, batch.output_tokens)
        for batch in batches
        for _ in range(batch.batch)
    )
    running: list[_Prompt] = []
    found: list[Work | None] = []
    explained = bool(batches)
    for step in steps:
        work = _step(step, waiting, running) if explained else None
        explained = work is not None
        found.append(work)
    return found


def _step(step: Counts, waiting: deque[_Prompt], running: list[_Prompt]) -> Work | None:
    if step.decode_requests > len(running) or step.decode_tokens != step.decode_requests:
        return None
    if step.prefill_requests > len(waiting):
        return None
    going_on = running[: step.decode_requests]
    decode = tuple(request.done for request in going_on)
    chunks = []
    tokens = step.prefill_tokens
    prompts = list(waiting)[: step.prefill_requests]
    for prompt in prompts:
        new = min(prompt.pending, tokens)
        # Only the last prompt of a step is cut.
        if new <= 0 or (new < prompt.pending and prompt is not prompts[-1]):
            return None
        chunks.append((new, prompt.done))
        tokens -= new
    if tokens:
        return None
    for request in going_on:
        request.done += 1
        request.outputs -= 1
    for new, _ in chunks:
        prompt = waiting[0]
        prompt.pending, prompt.done = prompt.pending - new, prompt.done + new
        if prompt.pending == 0:
            running.append(waiting.popleft())
            running[-1].outputs -= 1
    running[:] = [request for request in running if request.outputs != 0]
    return Work(tuple(chunks), decode)
