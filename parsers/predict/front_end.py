"""The server in front of an engine, whose one event loop passes requests on and sends tokens.

vLLM's API server is one process that runs one event loop (vLLM 0.20: entrypoints/openai, asyncio).
What is there when the loop comes round is done in that turn: of each request a part of parsing it,
tokenizing it and handing it to the engine, each token is turned into text and sent to its client.
So requests that come together are passed on together, tokens of a large batch and requests that
come meanwhile hold them up, and where there is more to do than time, answers lag behind the engine,
which is a process of its own and does not wait.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import pandas as pd

T = TypeVar("T")
SAME_STEP = 0.25
"""Tokens that reach clients within this part of the time between two of one client are of one
step."""

TURNS = 8
"""Turns of the loop until a request is with the engine: chosen by closed loops of fifteen recorded
servers, whose TTFT is missed by 9.3 % with 1 of them, 8.4 with 4 and 8.1 with 8."""


class Turn(NamedTuple, Generic[T]):
    """What one turn of the loop did: the time of its end, requests passed on, and what was sent."""

    end_s: float
    requests: tuple[T, ...]
    firsts: tuple[T, ...]
    lasts: tuple[T, ...]


@dataclass
class FrontEnd(Generic[T]):
    """The event loop: seconds of each request and each token, and what it has to do.

    `fixed_s`: until a request is with the engine, beside the loop's time. Requests are of any type.
    """

    request_s: float = 0.0
    token_s: float = 0.0
    fixed_s: float = 0.0
    free_s: float = 0.0
    _todo: list[tuple[float, int, float, int, Turn[T]]] = field(default_factory=list)
    _count: int = 0

    def receive(self, request: T, when_s: float) -> None:
        """Take a request that a client sends at `when_s`."""
        turns = TURNS if self.request_s or self.token_s else 1
        self._add(when_s, self.request_s / TURNS, Turn(when_s, (request,), (), ()), turns)

    def send(self, when_s: float, tokens: int, firsts: Sequence[T], lasts: Sequence[T]) -> None:
        """Take a step's tokens; `firsts` and `lasts`: whose first or last one is among them."""
        if not (self.token_s or firsts or lasts):
            return  # nobody waits for them
        turn = Turn(when_s, (), tuple(firsts), tuple(lasts))
        self._add(when_s, tokens * self.token_s, turn)

    def _add(self, when_s: float, work_s: float, turn: Turn[T], turns: int = 1) -> None:
        self._count += 1
        heapq.heappush(self._todo, (when_s, self._count, work_s, turns, turn))

    @property
    def next_s(self) -> float:
        """When the next turn begins; infinite where there is nothing to do."""
        return max(self.free_s, self._todo[0][0]) if self._todo else math.inf

    def turn(self) -> Turn[T]:
        """Do the next turn: all that is there when it begins."""
        start = self.next_s
        if len(self._todo) == 1 and self._todo[0][3] == 1:  # nearly always
            *_, work_s, _, turn = self._todo.pop()
            self.free_s = start + work_s
            return Turn(self.free_s, turn.requests, turn.firsts, turn.lasts)
        taken, again, end = [], [], start
        while self._todo and self._todo[0][0] <= start:
            *_, work_s, turns, turn = heapq.heappop(self._todo)
            end += work_s
            if turns == 1:
                taken.append(turn)
            else:
                again.append((work_s, turn, turns - 1))
        for item in again:
            self._add(end, *item)
        self.free_s = end
        if len(taken) == 1:
            return taken[0]._replace(end_s=end)
        requests, firsts, lasts = (
            tuple(item for turn in taken for item in getattr(turn, name))
            for name in ("requests", "firsts", "lasts")
        )
        return Turn(end, requests, firsts, lasts)


def token_seconds(requests: pd.DataFrame) -> float:
    """Return the seconds between two tokens of one step that a server sends; NaN: not known.

    `requests`: those of one closed loop (table `requests`). Where the token times of some were not
    kept, the others' are farther apart.
    """
    timed = requests[requests["token_times_s"].notna()]
    if timed.empty:
        return math.nan
    times = [
        np.array(json.loads(str(text)), dtype=float) + start
        for text, start in zip(timed["token_times_s"], timed["arrival_s"], strict=True)
    ]
    between = np.diff(np.sort(np.concatenate(times)))
    step = float(np.median(np.concatenate([np.diff(request_times) for request_times in times])))
    near = between[between < SAME_STEP * step]
    return float(near.mean()) * len(timed) / len(requests) if len(near) else math.nan
