"""How fast vLLM's offline engine serves: latency, batches, lengths, eager against CUDA graphs.

    python baseline.py --model qwen2.5-7b --batches 1 8 64

This process holds no GPU memory: it samples NVML and starts a process for each mode of the engine
(worker.py), and another for the points that are left where one dies. stdout (or --out) gets the
records, stderr vLLM's log and one line a point.
"""

from __future__ import annotations

import runpy
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parents[1] / "standalone.py"))
from nsight_prof.targets.harness.options import Parser, positive, regex, seconds
from nsight_prof.targets.harness.output import output
from nsight_prof.targets.serving.conditions import conditions, visible_gpus
from nsight_prof.targets.serving.engine_process import EngineProcess, TooLong
from nsight_prof.targets.serving.exit_code import exit_code
from nsight_prof.targets.serving.failures import EngineFailure, complain, explain_log
from nsight_prof.targets.serving.models import Model, find_model
from nsight_prof.targets.serving.options import EngineOptions, add_engine_arguments, engine_options
from nsight_prof.targets.serving.points import Point, add_point_arguments, points
from nsight_prof.targets.serving.records import BEGIN, Records
from nsight_prof.targets.serving.stopping import stoppable
from nsight_prof.targets.serving.telemetry import Telemetry
from nsight_prof.targets.standalone import need

TARGET = "vllm-baseline"
TOKEN_TIMES = 2048
END_S = 20.0
"""Seconds that an engine has to end by itself after its last point."""
NONE_CHOSEN = EngineFailure(
    "no point was chosen", "--only is searched in the names of the points; --list shows them"
)


@dataclass
class Sweep:
    """The points of a run, measured engine by engine.

    Attributes:
        records: where all records go.
        options: of the engine; each point has a mode of its own.
        given: the command line.
        shared: target, process and repeat of the records.
        started: whether an engine has started.
        ready_s: when the engine that runs was ready, None while none is.
        measured: how many points have times.
        failures: what went wrong with whole engines.
    """

    records: Records
    options: EngineOptions
    given: Namespace
    shared: dict[str, Any]
    started: bool = False
    ready_s: float | None = None
    measured: int = 0
    failures: list[EngineFailure] = field(default_factory=list)

    def run(self, chosen: Sequence[Point]) -> None:
        """Measure the points; each gets a row, with a reason where it has no times.

        Raises:
            EngineFailure: the first engine did not start, and the next would fail alike.
        """
        # The same limits for all engines: they decide on sizes of steps and of captured graphs.
        self.options = replace(
            self.options,
            max_num_seqs=self.given.max_num_seqs or max(point.batch for point in chosen),
            max_model_len=self.given.max_model_len
            or max(point.tokens for point in chosen) + self.options.speculative_tokens,
        )
        for mode in dict.fromkeys(point.mode for point in chosen):
            left = [point for point in chosen if point.mode == mode]
            for _ in range(self.given.starts):
                left = self._engine(left)
                if not left:
                    break
            for point in left:
                last = self.failures[-1].message
                self.row(point, "failed", f"not tried after {self.given.starts} engines: {last}")

    def row(self, point: Point, status: str, reason: str) -> None:
        """Write the row of a point that has no times."""
        params = point.params(self.options.tensor_parallel, self.options.model)
        eager = point.mode == "eager"
        self.records.case(point.name, params, status=status, reason=reason, eager=eager)
        print(f"{point.name}  {status}: {reason}", file=sys.stderr, flush=True)

    def _engine(self, left: list[Point]) -> list[Point]:
        """Measure points with one engine and return those that it did not come to."""
        begin = self.records.now()
        with EngineProcess(self._plan(left), self.records.begin) as process:
            failure = self._started(process)
            self.records.phase(None, "start engine", begin, self.ready_s or self.records.now())
            if failure is not None:
                if not self.started:
                    raise failure
                self.failures.append(failure)
                for point in left:
                    self.row(point, failure.status, failure.message)
                return []
            self.started = True
            left = self._points(process, left)
            begin = self.records.now()
            process.wait(END_S)
        self.records.phase(None, "end engine", begin, self.records.now())
        return left

    def _plan(self, left: Sequence[Point]) -> dict[str, Any]:
        given = self.given
        return {
            "options": asdict(replace(self.options, mode=left[0].mode)),
            "points": [asdict(point) for point in left],
            "shared": self.shared,
            "seed": given.seed,
            "point_time_s": given.point_time,
            "stats_s": given.stats_interval,
            "token_times": TOKEN_TIMES,
        }

    def _started(self, process: EngineProcess) -> EngineFailure | None:
        """Wait for the engine; return why it did not start, None where it did."""
        self.ready_s = None
        deadline = time.monotonic() + self.given.start_timeout
        try:
            while (said := process.next(deadline - time.monotonic())) is not None:
                if said.get("event") == "ready":
                    self.ready_s = said["t_s"]
                    return None
                if said.get("event") == "failed":
                    return EngineFailure(said["message"], said["hint"], said["status"])
                self._forward(said)
        except TooLong:
            return EngineFailure(
                f"the engine did not start within {self.given.start_timeout:g} s",
                "vLLM's log says what it waits for; give it more with --start-timeout",
            )
        return self._death(process, "starting")

    def _points(self, process: EngineProcess, left: list[Point]) -> list[Point]:
        """Pass the records of the points on; return those that the process did not come to."""
        names = {point.name: point for point in left}
        now: Point | None = None
        bound = self.given.point_timeout
        deadline = time.monotonic() + bound
        try:
            while (said := process.next(deadline - time.monotonic())) is not None:
                if said.get("record") != "engine_stats":  # those come from an engine that hangs too
                    deadline = time.monotonic() + bound
                if said.get("event") in ("done", "dead"):
                    return list(names.values())
                if said.get("event") == "point":
                    now = names[said["case"]]
                elif said.get("record") == "case":
                    now = None
                    names.pop(said["case"])
                    self._case(said)
                self._forward(said)
            failure = self._death(process, "running")
        except TooLong:
            process.end()
            failure = EngineFailure(
                f"no batch was done within {bound:g} s",
                "give a batch more time with --point-timeout",
            )
        self.failures.append(failure)
        if now is not None:
            names.pop(now.name)
            self.row(now, failure.status, failure.message)
        return list(names.values())

    def _forward(self, said: dict[str, Any]) -> None:
        if "record" in said:
            self.records.forward(said)

    def _case(self, record: dict[str, Any]) -> None:
        timing = record["time"]
        if timing is None:
            self.failures.append(EngineFailure(record["reason"], "see vLLM's log above"))
            told = f"{record['status']}: {record['reason']}"
        else:
            self.measured += 1
            params = record["params"]
            tokens = params["batch"] * params["output_tokens"] / timing["median_s"]
            told = f"{timing['median_s']:.4g} s, {tokens:.5g} tokens/s, {timing['n']} repeats"
        print(f"{record['case']}  {told}", file=sys.stderr, flush=True)

    @staticmethod
    def _death(process: EngineProcess, doing: str) -> EngineFailure:
        """Return why a process ended without a word."""
        code = process.wait(END_S)
        known = explain_log(process.log(), doing)
        if known is not None:
            return known
        if code is not None and code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}"
        return EngineFailure(
            f"the engine's process {how} while {doing}",
            "vLLM's log above says more; SIGKILL is often too little host memory (see dmesg)",
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for.

    Returns:
        The exit code: 0, also where single points could not run; 1 where none could; 3 without
        vllm; 130 and 143 after SIGINT and SIGTERM.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    given = parse(words)
    return exit_code(lambda: _run(given, words))


def _run(given: Namespace, words: Sequence[str]) -> int:
    model = find_model(given.model, given.weights)
    chosen = [point for point in points(given) if given.only.search(point.name)]
    if not chosen:
        raise NONE_CHOSEN
    if given.list:
        print("\n".join(point.name for point in chosen))
        return 0
    need("vllm")
    with stoppable(), output(given.out) as stream:
        return _measure(given, words, model, chosen, stream)


def _measure(
    given: Namespace, words: Sequence[str], model: Model, chosen: list[Point], stream: TextIO
) -> int:
    shared = {"target": TARGET, "process": given.process_number, "repeat": given.repeat}
    records = Records(stream, begin=BEGIN, token_times=TOKEN_TIMES, **shared)
    gpus = visible_gpus()
    records.conditions(conditions(words, given.seed, gpus))
    sweep = Sweep(records, engine_options(given), given, shared)
    fitting = list(_fitting(sweep, model, chosen))
    uuids = [gpu["uuid"] for gpu in gpus[: given.tensor_parallel] if gpu["uuid"]]
    with Telemetry(records, uuids, given.telemetry_interval) as telemetry:
        if telemetry.problem:
            print(f"note: no telemetry: {telemetry.problem}", file=sys.stderr)
        if fitting:
            sweep.run(fitting)
    if sweep.measured:
        return 0
    if sweep.failures:
        complain(sweep.failures[0])
    else:
        complain(EngineFailure("no point fits the model", "see the reasons above"))
    return 1


def _fitting(sweep: Sweep, model: Model, chosen: Sequence[Point]) -> Iterator[Point]:
    """Give the points whose sequences the model can hold; the others get their row here."""
    said = (model.config or {}).get("max_position_embeddings")
    longest = sweep.given.max_model_len or said
    for point in chosen:
        if isinstance(longest, int) and point.tokens > longest:
            reason = f"{point.tokens} tokens a sequence, and the longest that fits has {longest}"
            sweep.row(point, "unsupported", reason)
        else:
            yield point


def parse(words: Sequence[str]) -> Namespace:
    """Return the parsed command line.

    Raises:
        SystemExit: with code 2 for a wrong one, 0 for --help.
    """
    parser = Parser(description=__doc__.split("\n", 1)[0], allow_abbrev=False)
    add_point_arguments(parser)
    add_engine_arguments(parser, without=("nvtx_scopes", "layer_ranges"))
    group = parser.add_argument_group("measurement")
    add = group.add_argument
    add("--out", metavar="FILE", help="records go there, not to stdout")
    add("--only", type=regex, default="", metavar="REGEX", help="points that it is found in")
    add("--list", action="store_true", help="print the names of the points and end")
    add(
        "--point-time",
        type=seconds,
        metavar="S",
        default=15.0,
        help="no repeat starts after so many s (15)",
    )
    add("--point-timeout", type=seconds, metavar="S", default=120.0, help="most s of a batch (120)")
    add(
        "--start-timeout",
        type=seconds,
        metavar="S",
        default=600.0,
        help="most s of an engine's start (600)",
    )
    add("--starts", type=positive, metavar="N", default=3, help="most engines of one mode (3)")
    add(
        "--telemetry-interval",
        type=seconds,
        metavar="S",
        default=0.1,
        help="s between NVML samples (0.1)",
    )
    add(
        "--stats-interval",
        type=seconds,
        metavar="S",
        default=0.05,
        help="s between gauges in warm-ups (0.05)",
    )
    add(
        "--process",
        dest="process_number",
        type=positive,
        metavar="N",
        default=1,
        help="of this process (1)",
    )
    add("--repeat", type=positive, metavar="N", default=1, help="number of this repeat of all (1)")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
