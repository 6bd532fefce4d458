"""A server's load test from its start to its last point: what is sent, read and recorded."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import importlib
import json
import sys
import urllib.request
from argparse import Namespace
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from nsight_prof.targets.serving import scrape, server_log, sglang_server, stopping
from nsight_prof.targets.serving.answers import Reading, read, request_fields, spread
from nsight_prof.targets.serving.failures import EngineFailure
from nsight_prof.targets.serving.healthy import Server
from nsight_prof.targets.serving.load import (
    Body,
    Client,
    Loaded,
    background,
    bodies,
    listed_bodies,
)
from nsight_prof.targets.serving.load_points import Point, closed_points, open_points
from nsight_prof.targets.serving.models import Model, vocabulary
from nsight_prof.targets.serving.options import EngineOptions
from nsight_prof.targets.serving.records import TOKEN_TIMES, Records
from nsight_prof.targets.serving.request_list import RequestList
from nsight_prof.targets.serving.running import Running

FEW_TOKENS = 8000
"""Ids below are taken where the vocabulary is not known: every current model's is larger."""
WARM_UP_TOKENS = 8
FIRST_SCRAPE_S = 0.3
SETTLE_S, SETTLE_POLL_S = 2.0, 0.1
"""How long the server may take to count what it has answered already, and how often it is asked."""
ENDING_S, ENDING_POLL_S = 0.5, 0.02
"""How long a server with failed requests may take to end, and how often it is looked at."""
SEED_STEP, WARM_UP_SEED = 1000, 500
"""Seeds of prompts: runs, their points and their warm-ups must differ, or prefixes are cached."""


class LoadTest:
    """Measures all points on one server and writes their records.

    The server is started by `run` and ended by its owner.
    """

    def __init__(
        self,
        given: Namespace,
        model: Model,
        options: EngineOptions,
        server: Server | Running,
        records: Records,
        url: str,
        served: Mapping[str, Any],
        listed: RequestList | None = None,
    ) -> None:
        """Keep what is measured; `served` is what /v1/models says of a server that ran already.

        `listed` are the requests of a file, None: prompts are made up.
        """
        self._given, self._model, self._options = given, model, options
        self._server, self._records = server, records
        self._url, self._served, self._listed = url, served, listed
        self._sent = 0  # requests of the file so far: each point goes on behind the one before
        self._facts: dict[str, Any] = {}
        self._measured = 0
        self._points = 0
        self._failure: EngineFailure | None = None

    def run(self) -> None:
        """Start the server and measure the points; a point without times has a reason.

        Raises:
            EngineFailure: the server did not start, or answers no request.
        """
        begin = self._records.now()
        try:
            self._server.start()
            start_s = self._server.wait_healthy(self._healthy, self._given.start_timeout)
        finally:
            self._records.phase(None, "start engine", begin, self._records.now())
        stopping.run(_new_loop(), self._all(start_s))

    def conclude(self) -> None:
        """Say in the end what went wrong with the whole.

        Raises:
            EngineFailure: the server died, no point was chosen, or none has a time.
        """
        if self._failure is not None:
            raise self._failure
        if not self._points:
            raise EngineFailure(
                "no point was chosen",
                "--only is searched in the names of the points; --list shows them",
            )
        if not self._measured:
            raise EngineFailure("no point has a time", "see the reasons above")

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/health", timeout=2.0) as answer:
                return int(answer.status) == 200
        except (OSError, http.client.HTTPException):
            return False

    async def _all(self, start_s: float | None) -> None:
        async with Client(self._url, self._given.request_timeout) as client:
            self._facts = await self._engine(client, start_s)
            self._records.engine(self._facts)
            given, listed = self._given, self._fitting()
            closed = self._chosen(closed_points(given, listed))
            opened = self._chosen(open_points(given, None, listed))
            await self._warm_up(client, [*closed, *opened])
            async with self._profiled(client):
                highest = 0.0
                for point in closed:
                    highest = max(highest, await self._point(client, point) or 0.0)
                if given.rate is None:
                    opened = self._chosen(open_points(given, highest, listed))
                for point in opened:
                    await self._point(client, point)

    def _fitting(self) -> RequestList | None:
        """Leave out the requests of a file that are longer than the server takes, and say it."""
        given, most = self._given, self._facts["max_model_len"]
        if self._listed is not None and most is not None:
            self._listed = self._listed.within(most, given.prompt_tokens, given.output_tokens)
            if left_out := self._listed.too_long:
                print(
                    f"note: {left_out} of {left_out + len(self._listed.requests)} requests of "
                    f"{self._listed.name} are left out: they are longer than the {most} tokens "
                    "that the server takes",
                    file=sys.stderr,
                )
        return self._listed

    @contextlib.asynccontextmanager
    async def _profiled(self, client: Client) -> AsyncIterator[None]:
        """Let the server start the CUDA profiler before the points and stop it after them.

        Raises:
            EngineFailure: it does not.
        """
        if not self._given.profile:
            yield
            return
        if not await client.post("/start_profile", {"activities": ["CUDA_PROFILER"]}):
            raise EngineFailure(
                "the server does not start its profiler", "leave --profile out", "unsupported"
            )
        try:
            yield
        finally:
            await client.post("/stop_profile", {})

    @property
    def _mode(self) -> str | None:
        return None if self._served else self._options.mode

    def _chosen(self, points: Iterable[Point]) -> list[Point]:
        return [point for point in points if self._given.only.search(point.name)]

    async def _engine(self, client: Client, start_s: float | None) -> dict[str, Any]:
        """Return the fields of the `engine` record."""
        options, log = self._options, server_log.facts(self._server.lines)
        version = _json(await client.get("/version")).get("version")
        served = (_json(await client.get("/v1/models")).get("data") or [{}])[0]
        info = await self._sglang(client) if served.get("owned_by") == "sglang" else {}
        started = {
            "tensor_parallel": options.tensor_parallel,
            "max_num_seqs": options.max_num_seqs,
            "max_num_batched_tokens": options.max_num_batched_tokens,
            "attention_backend": options.attention_backend,
            "load_format": self._model.load_format,
            "dummy_weights": self._model.dummy,
        }
        # How a server of somebody else was started is not known.
        given = {"url": self._url} if self._served else started
        known = {name: value for name, value in log.items() if value is not None}
        return {
            "version": version,
            "model": self._model.name,
            "model_config": self._model.config,
            "dtype": None,
            "mode": self._mode,
            "engine_process": "server",
            "max_model_len": served.get("max_model_len"),
            "start_s": start_s,
            "args": {"server_args": self._given.server_args},
            **dict.fromkeys(log),
            **given,
            **known,
            **scrape.cache_facts(await client.get("/metrics") or ""),
            "served_by": served.get("owned_by"),
            **info,
        }

    async def _sglang(self, client: Client) -> dict[str, Any]:
        """Return what an SGLang server tells of itself; what it does not tell is left out."""
        for path in sglang_server.INFO:
            if info := _json(await client.get(path)):
                facts = sglang_server.facts(info, self._model.config or {})
                return {name: value for name, value in facts.items() if value is not None}
        return {}

    async def _warm_up(self, client: Client, points: Sequence[Point]) -> None:
        """Send one request, then as many at once as will ever be: both compile what is left.

        Raises:
            EngineFailure: the server answers none.
        """
        if not points and self._given.rate is not None:
            return
        given, begin = self._given, self._records.now()
        most = max((point.concurrency or 1 for point in points), default=1)
        for count, tokens in ((1, given.output_tokens), (most, WARM_UP_TOKENS)):
            point = Point(count, None, given.prompt_tokens, min(tokens, given.output_tokens), count)
            requests = self._bodies(point, WARM_UP_SEED + tokens)
            loaded = await client.load(point, requests, 0, given.point_time)
            readings = [read(answer) for answer in loaded.answers]
            if all(reading.reason for reading in readings):
                reason = readings[0].reason if readings else "none could be sent"
                if self._server.ended:
                    raise self._server.died("during the warm-up")
                raise EngineFailure(
                    f"the server is healthy and answers no request: {reason}",
                    "its log stands above; prompt and output must fit --max-model-len",
                )
        self._records.phase(None, "warm-up", begin, self._records.now())

    def _bodies(self, point: Point, number: int) -> list[Body]:
        known = vocabulary(self._model.config or {}) or FEW_TOKENS
        seed = SEED_STEP * self._given.seed + number
        if self._listed is None or not point.listed:
            return bodies(point, self._model.name, known, seed)
        first, self._sent = self._sent, self._sent + point.requests
        return listed_bodies(point, self._listed, self._model.name, known, seed, first)

    async def _point(self, client: Client, point: Point) -> float | None:
        """Measure a point, write its records; return requests per second, None without a time."""
        self._points += 1
        if self._failure is not None:
            self._row(point, reason=f"not measured: {self._failure.message}")
            return None
        requests, seed = self._bodies(point, self._points), self._given.seed + self._points
        begin = self._records.now()
        before = await self._scrape(client, point)
        async with background(asyncio.create_task(self._watch(client, point))):
            loaded = await client.load(point, requests, seed, self._given.point_time)
        end = self._records.now()
        readings = [read(answer) for answer in loaded.answers]
        good = sum(not reading.reason for reading in readings)
        after = await self._settled(client, point, before, good)
        self._records.phase(point.name, "measure", begin, end)
        self._write(point, loaded, readings, scrape.totals(before, after))
        if good < len(readings):
            await self._may_end()
        if self._server.ended:
            self._failure = self._server.died(f"while {point.name} was measured")
        seconds = loaded.end - loaded.begin
        reason = _reason(readings, loaded.unsent)
        if not good or not seconds > 0:
            self._row(point, reason=self._failure.message if self._failure else reason)
            return None
        self._measured += 1
        self._row(point, seconds, reason, _lengths(readings) if point.listed else {})
        self._show(point, readings, seconds, loaded)
        return good / seconds

    def _write(
        self, point: Point, loaded: Loaded, readings: list[Reading], totals: dict[str, Any]
    ) -> None:
        seconds = loaded.end - loaded.begin
        kept = spread([len(reading.times or ()) for reading in readings], TOKEN_TIMES)
        for place, (answer, reading) in enumerate(zip(loaded.answers, readings, strict=True)):
            fields = request_fields(answer, reading, self._records.begin)
            if fields["prompt_tokens"] is None and not point.listed:
                fields["prompt_tokens"] = point.prompt_tokens
            if place not in kept:
                fields["token_times_s"] = None
            self._records.request(point.name, 1, fields)
        client = {
            "client_late_s": loaded.late_s,
            "client_cpu": loaded.cpu_s / seconds if seconds > 0 else None,
        }
        self._records.vllm_totals(point.name, 1, totals | client | {"seconds": seconds})

    def _row(
        self,
        point: Point,
        seconds: float | None = None,
        reason: str = "",
        lengths: Mapping[str, int] | None = None,
    ) -> None:
        params = point.params(
            engine=self._mode,
            model=self._model.name,
            tensor_parallel=None if self._served else self._options.tensor_parallel,
            slo_ttft_s=self._given.slo_ttft,
            slo_tpot_s=self._given.slo_tpot,
            too_long=self._listed.too_long if self._listed and point.listed else None,
        )
        self._records.case(
            point.name,
            params | dict(lengths or {}),
            [] if seconds is None else [seconds],
            status="failed" if seconds is None else "ok",
            reason=reason,
            operation="serve",
            dtype=str(self._facts.get("dtype") or ""),
            eager=self._mode == "eager",
        )
        if seconds is None:
            print(f"{point.name}  failed: {reason}", file=sys.stderr, flush=True)

    @staticmethod
    def _show(point: Point, readings: Iterable[Reading], seconds: float, loaded: Loaded) -> None:
        good = [reading for reading in readings if not reading.reason]
        tokens = sum(reading.output_tokens for reading in good)
        print(
            f"{point.name}  {len(good)} of {point.requests} requests in {seconds:.3g} s, "
            f"{tokens / seconds:.5g} tokens/s, client at {loaded.cpu_s / seconds:.0%} of a core",
            file=sys.stderr,
            flush=True,
        )

    async def _scrape(self, client: Client, point: Point) -> dict[str, float]:
        """Return the server's metrics now, and write their record; {} where there are none."""
        text = await client.get("/metrics")
        if text is None:
            return {}
        metrics = scrape.parse(text)
        fields = scrape.stats(metrics) | {"t_s": self._records.now()}
        self._records.engine_stats(point.name, fields)
        return metrics

    async def _watch(self, client: Client, point: Point) -> None:
        await asyncio.sleep(FIRST_SCRAPE_S)
        while True:
            await self._scrape(client, point)
            await asyncio.sleep(self._given.scrape_interval)

    async def _may_end(self) -> None:
        """Wait a moment for the end of a server that fails: it hangs up before it is gone."""
        deadline = self._records.now() + ENDING_S
        while not self._server.ended and self._records.now() < deadline:
            await asyncio.sleep(ENDING_POLL_S)

    async def _settled(
        self, client: Client, point: Point, before: dict[str, float], answered: int
    ) -> dict[str, float]:
        """Return the metrics once they count every answered request, which they do a bit later."""
        for _ in range(round(SETTLE_S / SETTLE_POLL_S)):
            after = await self._scrape(client, point)
            ended = scrape.totals(before, after)["requests"]
            if ended is None or ended >= answered:
                break
            await asyncio.sleep(SETTLE_POLL_S)
        return after


def _lengths(readings: Sequence[Reading]) -> dict[str, int]:
    """Return the mean lengths of the requests of a file as the server counted them."""
    good = [reading for reading in readings if not reading.reason]
    prompts = [r.prompt_tokens for r in good if r.prompt_tokens is not None]
    found = {"output_tokens": round(sum(r.output_tokens for r in good) / len(good))}
    return found | ({"prompt_tokens": round(sum(prompts) / len(prompts))} if prompts else {})


def _reason(readings: Sequence[Reading], unsent: int) -> str:
    """Return what became of requests that were not answered, "" where all were."""
    failed = [reading.reason for reading in readings if reading.reason]
    words = []
    if failed:
        most = max(set(failed), key=failed.count)
        words.append(f"{len(failed)} of {len(readings)} requests failed, most: {most}")
    if unsent:
        words.append(f"{unsent} requests were not sent: the time of the point was over")
    return "; ".join(words)


def _json(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop where it is installed (vLLM needs it): it takes less CPU time."""
    try:
        make = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        make = asyncio.new_event_loop
    loop: asyncio.AbstractEventLoop = make()
    return loop
