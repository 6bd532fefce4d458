"""One engine and the points that it measures; `baseline.py` starts it and reads its records.

Records and events go to the pipe whose number `--fd` names, one JSON object a line; stdout and
stderr are vLLM's. The first line of stdin is the plan; its end means that nobody waits any more.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TextIO

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parents[1] / "standalone.py"))
from nsight_prof.targets.harness.failures import classify
from nsight_prof.targets.serving.engine import (
    Engine,
    EngineOptions,
    Generation,
    StepTimes,
    make_engine,
)
from nsight_prof.targets.serving.failures import EngineFailure
from nsight_prof.targets.serving.points import Point
from nsight_prof.targets.serving.records import Records

STATS = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "kv_usage": "vllm:kv_cache_usage_perc",
    "preemptions": "vllm:num_preemptions",
    "prompt_tokens": "vllm:prompt_tokens",
    "generation_tokens": "vllm:generation_tokens",
}
"""Fields of an `engine_stats` record and vLLM's names of them."""
TOTALS = {
    "prompt_tokens": "vllm:prompt_tokens",
    "generation_tokens": "vllm:generation_tokens",
    "estimated_flops": "vllm:estimated_flops_per_gpu",
    "estimated_read_bytes": "vllm:estimated_read_bytes_per_gpu",
    "estimated_write_bytes": "vllm:estimated_write_bytes_per_gpu",
}
"""Fields of a `vllm_totals` record and vLLM's counters that they are differences of."""
FAILED = 1

OnStep = Callable[[StepTimes], None]


@dataclass(frozen=True)
class Plan:
    """What a worker is to do.

    Attributes:
        options: of the engine.
        points: to measure, in this order.
        shared: target, process and repeat of the records.
        seed: of the prompts; each repeat has prompts of its own.
        point_time_s: no further repeat of a point starts after so many seconds of timed ones.
        stats_s: seconds between two looks at vLLM's gauges in a warm-up.
        token_times: most times of single tokens kept of a case.
    """

    options: EngineOptions
    points: tuple[Point, ...]
    shared: Mapping[str, Any]
    seed: int
    point_time_s: float
    stats_s: float
    token_times: int


def read_plan(text: str) -> Plan:
    """Return the plan that a line of JSON holds, as `dataclasses.asdict` made it."""
    fields = json.loads(text)
    options = fields.pop("options")
    for name in ("capture_sizes", "adapter_modules"):
        options[name] = tuple(options[name])
    points = tuple(Point(**point) for point in fields.pop("points"))
    return Plan(options=EngineOptions(**options), points=points, **fields)


class Worker:
    """Measures the points of a plan with one engine."""

    def __init__(self, plan: Plan, stream: TextIO, begin: float) -> None:
        self._plan, self._stream, self._begin = plan, stream, begin
        self._records = Records(stream, begin=begin, token_times=plan.token_times, **plan.shared)
        self._facts: dict[str, Any] = {}

    def run(self) -> int:
        """Start the engine, measure all points, end the engine; return the exit code."""
        try:
            engine = make_engine(self._plan.options, self._begin)
        except EngineFailure as failure:
            self._tell("failed", message=failure.message, hint=failure.hint, status=failure.status)
            return FAILED
        try:
            self._facts = engine.facts()
            self._records.engine(self._facts)
            self._tell("ready", t_s=self._records.now())
            for point in self._plan.points:
                self._tell("point", case=point.name)
                if not self._point(engine, point):
                    self._tell("dead")
                    return FAILED
            self._tell("done")
            return 0
        finally:
            engine.close()

    def _point(self, engine: Engine, point: Point) -> bool:
        """Measure a point and write its case; False where the engine cannot go on."""
        samples: list[float] = []
        try:
            stop = self._repeats(engine, point, samples)
        except EngineFailure as failure:
            self._case(point, [], failure.status, failure.message)
            return not failure.dead
        except Exception as error:  # whatever vLLM raises, the point has a row with a reason
            traceback.print_exc()
            self._case(point, [], *classify(error))
            return False
        self._case(point, samples, stop=stop)
        return True

    def _case(
        self,
        point: Point,
        samples: list[float],
        status: str = "ok",
        reason: str = "",
        stop: str = "samples",
    ) -> None:
        options = self._plan.options
        self._records.case(
            point.name,
            point.params(options.tensor_parallel, str(self._facts.get("model", options.model))),
            samples,
            status=status,
            reason=reason,
            dtype=str(self._facts.get("dtype") or ""),
            eager=point.mode == "eager",
            stop=stop,
        )

    def _repeats(self, engine: Engine, point: Point, samples: list[float]) -> str:
        """Warm up, then append the seconds of each repeat to samples; return why it ended."""
        records, name = self._records, point.name
        begin = records.now()
        for number in range(point.warmups):
            gauges = Gauges(engine, records, point, self._plan.stats_s)
            self._generate(engine, point, -1 - number, gauges)
        if point.warmups:
            records.phase(name, "warm-up", begin, records.now())
        begin = records.now()
        try:
            for repeat in range(1, point.repeats + 1):
                samples.append(self._repeat(engine, point, repeat))
                if sum(samples) > self._plan.point_time_s and repeat < point.repeats:
                    return "time limit"
            return "samples"
        finally:
            records.phase(name, "measure", begin, records.now())

    def _repeat(self, engine: Engine, point: Point, repeat: int) -> float:
        """Time one repeat, write its records afterwards, and return its seconds."""
        self._records.host_loop(point.name, repeat)
        records, name = self._records, point.name
        before = engine.metrics()
        records.engine_stats(name, stats(before, records.now()))
        done = self._generate(engine, point, repeat)
        after = engine.metrics()
        records.engine_stats(name, stats(after, records.now()))
        for request in done.requests:
            records.request(name, repeat, vars(request))
        for step in done.steps:
            records.step(name, repeat, vars(step))
        grown = {field: _grown(before, after, metric) for field, metric in TOTALS.items()}
        if after:
            records.vllm_totals(name, repeat, grown | {"seconds": done.seconds})
        return done.seconds

    def _generate(
        self, engine: Engine, point: Point, number: int, on_step: OnStep | None = None
    ) -> Generation:
        """Generate one batch.

        Raises:
            EngineFailure: a request of it failed, or the engine did.
        """
        seed = self._plan.seed * 1_000_003 + number
        done = engine.generate(
            point.batch, point.prompt_tokens, point.output_tokens, seed % 2**32, on_step
        )
        bad = [request for request in done.requests if request.status != "ok"]
        if bad:
            raise EngineFailure(
                f"{len(bad)} of {point.batch} requests failed: {bad[0].reason}",
                "see vLLM's log above",
                dead=False,
            )
        return done

    def _tell(self, event: str, **fields: Any) -> None:
        self._stream.write(json.dumps({"event": event, **fields}) + "\n")
        self._stream.flush()


class Gauges:
    """Writes vLLM's gauges after steps of a batch: every `every_s` seconds, and before its last.

    Before its last step a batch of equal requests fills most of the KV cache. For warm-ups: to
    read all metrics takes a millisecond, which would show in the times of steps.
    """

    def __init__(self, engine: Engine, records: Records, point: Point, every_s: float) -> None:
        self._engine, self._records, self._case = engine, records, point.name
        self._every_s, self._due = every_s, 0.0
        self._left = point.batch * point.output_tokens
        self._last = point.batch

    def __call__(self, step: StepTimes) -> None:
        """Look after a step; `on_step` of Engine.generate."""
        before, self._left = self._left, self._left - step.tokens
        full = before > self._last >= self._left
        if step.t_s < self._due and not full:
            return
        self._due = step.t_s + self._every_s
        metrics = self._engine.metrics()
        if metrics:
            self._records.engine_stats(self._case, stats(metrics, self._records.now()))


def stats(metrics: Mapping[str, float], t_s: float) -> dict[str, Any]:
    """Return the fields of an `engine_stats` record from vLLM's metrics; None where unknown."""
    return {"t_s": t_s} | {field: metrics.get(metric) for field, metric in STATS.items()}


def _grown(before: Mapping[str, float], after: Mapping[str, float], metric: str) -> float | None:
    return after[metric] - before[metric] if metric in before and metric in after else None


def _stay_for(reader: int) -> None:
    """End this process and its children when nobody holds the other end of stdin any more."""

    def watch() -> NoReturn:
        while os.read(reader, 4096):
            pass
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(FAILED)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def _first_line(reader: int) -> str:
    """Read byte by byte: what is buffered by a file object would be lost to the lifeline."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(reader, 1)
        if not byte:
            break
        line += byte
    return line.decode()


def main() -> int:
    """Measure what stdin asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="of the pipe for records")
    parser.add_argument("--begin", type=float, default=time.monotonic(), help="all times from here")
    given = parser.parse_args()
    os.set_inheritable(given.fd, False)  # or its end would not be seen while a child lives
    # What vLLM logs of its throughput every 10 s would fall into the times of steps.
    os.environ.setdefault("VLLM_LOG_STATS_INTERVAL", "86400")
    plan = read_plan(_first_line(0))
    _stay_for(0)
    with open(given.fd, "w", encoding="utf-8") as stream:
        code = Worker(plan, stream, given.begin).run()
    sys.stdout.flush()
    sys.stderr.flush()
    # Without the interpreter's own end: libraries with threads and CUDA hang or complain in it.
    os._exit(code)


if __name__ == "__main__":
    main()
