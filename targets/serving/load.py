"""Sends requests to an OpenAI-compatible server, in closed and open loops, and times the answers.

As `vllm bench serve` does it: streamed completions of prompts of token ids, an end-of-sequence
token ignored so that all answers are equally long, every request counted from the first to the
last. Unlike it, requests of an open loop count from the moment when they were due.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from nsight_prof.targets.serving.answers import Answer
from nsight_prof.targets.serving.inputs import random_prompts
from nsight_prof.targets.serving.load_points import Point, arrivals
from nsight_prof.targets.serving.request_list import (
    COMPLETIONS,
    RequestList,
    made_up,
    request_body,
)
from nsight_prof.targets.serving.running import headers

KEEP_ALIVE_S = 2.0
"""Less than the 5 s after which vLLM closes an idle connection: a request sent just then fails."""
UNREACHABLE = 3
"""Requests in a row that cannot connect, after which no more are sent: the server is gone."""


@dataclass(frozen=True)
class Loaded:
    """What became of the requests of a point.

    Attributes:
        answers: to the requests that were sent, in the order of their number.
        begin: time.monotonic() of the first arrival.
        end: time.monotonic() of the last piece of an answer.
        cpu_s: CPU time of this process meanwhile, in seconds.
        unsent: requests for which there was no time, or no server.
    """

    answers: tuple[Answer, ...]
    begin: float
    end: float
    cpu_s: float
    unsent: int

    @property
    def late_s(self) -> float:
        """By how many seconds the latest request was sent after it was due."""
        return max((answer.sent - answer.arrival for answer in self.answers), default=0.0)


@dataclass(frozen=True)
class Body:
    """What is sent to a path of the server."""

    data: bytes
    path: str = COMPLETIONS


def bodies(point: Point, model: str, vocabulary: int, seed: int) -> list[Body]:
    """Return the body of each request: no two prompts are alike, so that no prefix is cached."""
    prompts = random_prompts(point.requests, point.prompt_tokens, vocabulary, seed)
    shared = _shared(model) | {"max_tokens": point.output_tokens}
    return [Body(json.dumps(shared | {"prompt": prompt}).encode()) for prompt in prompts]


def listed_bodies(
    point: Point, listed: RequestList, model: str, vocabulary: int, seed: int, first: int
) -> list[Body]:
    """Return the bodies of a point from the requests of a file, over and over from the n-th on.

    Prompts of a length alone are random, and alike for no two requests but in shared blocks.
    """
    found = []
    for number in range(point.requests):
        one = listed.requests[(first + number) % len(listed.requests)]
        length = one.prompt_tokens or point.prompt_tokens
        tokens = () if one.content else made_up(one, length, vocabulary, seed * STRIDE + number)
        path, own = request_body(one, tokens)
        output = one.output_tokens or point.output_tokens
        data = json.dumps({**_shared(model), "max_tokens": output, **own}).encode()
        found.append(Body(data, path))
    return found


STRIDE = 1_000_003
"""Seeds of requests of different points lie this far apart."""


def _shared(model: str) -> dict[str, Any]:
    return {
        "model": model,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
        # How many tokens each piece brings: a busy server sends several in one.
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


class Client:
    """Sends requests to one server. Use as an asynchronous context."""

    def __init__(self, url: str, request_timeout_s: float) -> None:
        """Keep where to send.

        Args:
            url: of the server, without a path.
            request_timeout_s: after which a request that is not answered has failed.
        """
        self._url = url
        self._timeout_s = request_timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._unreachable = 0

    async def __aenter__(self) -> Client:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            headers={"Content-Type": "application/json", **headers()},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, timeout_s: float = 5.0) -> str | None:
        """Return what the server has at a path, None where it does not answer with 200."""
        assert self._session is not None
        limit = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.get(self._url + path, timeout=limit) as response:
                return await response.text() if response.status == 200 else None
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
            return None

    async def post(self, path: str, body: Mapping[str, object], timeout_s: float = 60.0) -> bool:
        """Send a JSON object to a path; return whether the server answers with 200."""
        assert self._session is not None
        limit = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.post(self._url + path, json=body, timeout=limit) as response:
                return response.status == 200
        except (TimeoutError, aiohttp.ClientError, OSError):
            return False

    async def load(
        self, point: Point, requests: Sequence[Body], seed: int, point_time_s: float
    ) -> Loaded:
        """Put the load of a point on the server and return what came back.

        Args:
            point: how the requests are sent.
            requests: their bodies.
            seed: of the arrivals of an open loop.
            point_time_s: after which no further request is sent, but those of a trace.
        """
        self._unreachable = 0
        with _no_collection():
            cpu, begin = time.process_time(), time.monotonic()
            if point.concurrency is not None:
                answers = await self._closed(point.concurrency, requests, begin + point_time_s)
            else:
                after = point.due or _poisson(point, seed)
                deadline = begin + max((point_time_s, *point.due[-1:]))
                answers = await self._open([begin + s for s in after], requests, deadline)
            cpu_s = time.process_time() - cpu
        answers.sort(key=lambda answer: answer.request)
        ends = [answer.pieces[-1][0] for answer in answers if answer.pieces]
        return Loaded(
            answers=tuple(answers),
            begin=min((answer.arrival for answer in answers), default=begin),
            end=max(ends, default=time.monotonic()),
            cpu_s=cpu_s,
            unsent=len(requests) - len(answers),
        )

    async def _closed(
        self, clients: int, requests: Sequence[Body], deadline: float
    ) -> list[Answer]:
        answers: list[Answer] = []
        waiting = iter(enumerate(requests))

        async def client() -> None:
            for number, body in waiting:
                if time.monotonic() > deadline or self._unreachable >= UNREACHABLE:
                    return
                answers.append(await self._send(number, body, time.monotonic()))

        await asyncio.gather(*(client() for _ in range(clients)))
        return answers

    async def _open(
        self, due: Sequence[float], requests: Sequence[Body], deadline: float
    ) -> list[Answer]:
        tasks: list[asyncio.Task[Answer]] = []
        try:
            for number, (moment, body) in enumerate(zip(due, requests, strict=True)):
                await asyncio.sleep(max(0.0, moment - time.monotonic()))
                if moment > deadline or self._unreachable >= UNREACHABLE:
                    break
                tasks.append(asyncio.create_task(self._send(number, body, moment)))
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _send(self, number: int, body: Body, arrival: float) -> Answer:
        assert self._session is not None
        answer = Answer(number, arrival, time.monotonic())
        try:
            async with self._session.post(self._url + body.path, data=body.data) as response:
                answer.status = response.status
                async for piece in response.content.iter_any():
                    answer.pieces.append((time.monotonic(), piece))
            self._unreachable = 0
        except TimeoutError:
            answer.error = f"not answered within {self._timeout_s:g} s"
        except aiohttp.ClientConnectorError as error:
            self._unreachable += 1
            answer.error = f"no connection: {error}"
        except (aiohttp.ClientError, OSError) as error:
            answer.error = f"the connection broke: {type(error).__name__}: {error}".rstrip(": ")
        return answer


def _poisson(point: Point, seed: int) -> list[float]:
    """Return when the requests of an open loop arrive, in seconds from its begin."""
    assert point.request_rate is not None
    return arrivals(point.requests, point.requests / point.request_rate, seed)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python's garbage collector from stopping the client while it takes times."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.asynccontextmanager
async def background(*tasks: asyncio.Task[None]) -> AsyncIterator[None]:
    """Run tasks that have no end beside the body, and end them after it."""
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
