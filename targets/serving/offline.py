"""Generates with vLLM's offline engine: the workload that a profiler watches.

    python offline.py --model qwen2.5-7b --batch 8 --prompt-tokens 1024 --output-tokens 32
    python offline.py --model qwen2.5-vl-7b --batch 6 --dataset-root ../inference/datasets/pages

It starts the engine, warms it up, times the batch some times, and once more between vLLM's own
start_profile and stop_profile: they call the CUDA profiler API, so that a profiler told to wait
for it records that batch alone, and vLLM puts an NVTX range round each engine step
(`execute_context_8(8192)_generation_0(0)`: a prefill of 8 requests and 8192 tokens). Other batches
(--also-batches) are timed after it.

Records go to the file PROF_RESULTS (or --out): steps and requests with `traced` true for the batch
between start_profile and stop_profile. stdout gets one JSON line, stderr vLLM's log and a line a
batch. Runs by itself in any Python that has vLLM 0.20 or newer.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import statistics
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parents[1] / "standalone.py"))
from nsight_prof.targets.harness.options import Parser, positive, whole
from nsight_prof.targets.serving.conditions import conditions, visible_gpus
from nsight_prof.targets.serving.ending import close, run_to_the_end
from nsight_prof.targets.serving.engine import (
    Engine,
    EngineOptions,
    Generation,
    add_engine_arguments,
    engine_options,
    make_engine,
)
from nsight_prof.targets.serving.failures import EngineFailure, complain
from nsight_prof.targets.serving.images import (
    TOKENS_OF_IMAGE,
    add_image_arguments,
    images_from,
    most_images,
)
from nsight_prof.targets.serving.records import Records

TARGET = "vllm-offline"
WARMUP_TOKENS = 8
"""Most tokens that a request of a warm-up generates."""
ESTIMATES = {
    "estimated_flops": "vllm:estimated_flops_per_gpu",
    "estimated_read_bytes": "vllm:estimated_read_bytes_per_gpu",
    "estimated_write_bytes": "vllm:estimated_write_bytes_per_gpu",
}
TOTALS = {
    "prompt_tokens": "vllm:prompt_tokens",
    "generation_tokens": "vllm:generation_tokens",
    **ESTIMATES,
}


@dataclass(frozen=True)
class Point:
    """A batch that is timed."""

    batch: int
    prompt_tokens: int
    output_tokens: int
    experiment: str = "prefill-decode"

    @property
    def case(self) -> str:
        """Its name in records."""
        return f"{self.experiment}/b{self.batch}/p{self.prompt_tokens}/o{self.output_tokens}"

    @property
    def tokens(self) -> int:
        """Tokens of the longest sequence."""
        return self.prompt_tokens + self.output_tokens

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV cache holds at its end."""
        return self.batch * self.tokens


class Run:
    """Times batches with one engine and writes what it finds."""

    def __init__(
        self,
        engine: Engine,
        records: Records,
        args: Namespace,
        images: Sequence[list[Any]] = (),
    ) -> None:
        self._engine, self._records, self._args = engine, records, args
        self._facts = engine.facts()
        self._seed = args.seed
        self._images = images
        self.shown: list[dict[str, Any]] = []

    def warm_up(self, point: Point) -> None:
        """Run the batch for a few tokens: what is compiled or tuned at first use is done then."""
        begin = self._records.now()
        try:
            for _ in range(self._args.warmups):
                self._generate(point, min(WARMUP_TOKENS, point.output_tokens))
        except EngineFailure as failure:
            self._fail(point, failure)
            raise
        self._records.phase(point.case, "warm-up", begin, self._records.now())

    def untraced(self, point: Point) -> None:
        """Time the batch without a profiler."""
        self._measure(point, self._args.repeats, traced=False)

    def traced(self, points: Sequence[Point]) -> None:
        """Time the batches, one after the other, between start_profile and stop_profile."""
        self._engine.start_profile()
        try:
            for point in points:
                self._measure(point, 1, traced=True)
        except BaseException:
            with contextlib.suppress(EngineFailure):  # what led here is what is told
                self._engine.stop_profile()
            raise
        self._engine.stop_profile()

    def other(self, point: Point) -> None:
        """Time another batch, if the engine has room for it."""
        if self.fits(point):
            self.warm_up(point)
            self.untraced(point)

    def count_encoder(self, point: Point) -> None:
        """Count the work of the vision encoder in the batch's prefill, beside the records."""
        try:
            counted = self._engine.encoder_work(lambda: self._generate(point, 1))
        except EngineFailure as failure:
            print(f"note: {failure.message}", file=sys.stderr)
            return
        if counted:
            from nsight_prof.targets.static_compute import write_beside_records  # torch

            write_beside_records(counted)

    def fits(self, point: Point) -> bool:
        """Tell whether the engine has room for the batch; one that has not gets its record."""
        blocks, size = self._facts.get("kv_blocks"), self._facts.get("block_size")
        room = None if blocks is None or size is None else blocks * size
        longest = self._facts.get("max_model_len")
        if room is not None and point.kv_tokens > room:
            failure = EngineFailure(
                f"the KV cache has room for {room} tokens and the batch needs "
                f"{point.kv_tokens}: vLLM would preempt requests",
                "a larger --kv-cache-gib",
                "unsupported",
                dead=False,
            )
        elif longest is not None and point.tokens > longest:
            failure = EngineFailure(
                f"{point.tokens} tokens are more than a sequence may have ({longest})",
                "a larger --max-model-len, as far as the model's configuration allows",
                "unsupported",
                dead=False,
            )
        else:
            return True
        self._fail(point, failure)
        return False

    def _measure(self, point: Point, repeats: int, *, traced: bool) -> None:
        done: list[Generation] = []
        begin = self._records.now()
        try:
            for repeat in range(1, repeats + 1):
                done.append(self._repeat(point, repeat, traced))
        except EngineFailure as failure:
            self._fail(point, failure, traced)
            raise
        if done:
            name = "measure under the profiler" if traced else "measure"
            self._records.phase(point.case, name, begin, self._records.now())
            self._show(point, done, traced)

    def _repeat(self, point: Point, repeat: int, traced: bool) -> Generation:
        self._records.host_loop(point.case, repeat, traced=traced)
        before = self._engine.metrics()
        got = self._generate(point, point.output_tokens)
        after = self._engine.metrics()
        mark = {"traced": traced}
        for request in got.requests:
            self._records.request(point.case, repeat, asdict(request) | mark)
        for step in got.steps:
            self._records.step(point.case, repeat, asdict(step) | mark)
        totals = {
            field: after[name] - before[name]
            for field, name in TOTALS.items()
            if name in before and name in after
        }
        if totals:
            totals["seconds"] = got.seconds
            self._records.vllm_totals(point.case, repeat, totals | mark)
        if got.failed:
            raise EngineFailure(
                f"a request of a batch of {point.batch} {got.failed}",
                "vLLM's log above may say why",
                dead=False,
            )
        return got

    def _generate(self, point: Point, output_tokens: int) -> Generation:
        self._seed += 1  # other prompts each time
        return self._engine.generate(
            point.batch, point.prompt_tokens, output_tokens, self._seed, images=self._images
        )

    def _params(self, point: Point, traced: bool) -> dict[str, Any]:
        return params(point, self._args, traced) | {"model": self._facts["model"]}

    def _fail(self, point: Point, failure: EngineFailure, traced: bool = False) -> None:
        write_failure(self._records, point, self._params(point, traced), failure)

    def _show(self, point: Point, done: Sequence[Generation], traced: bool) -> None:
        """Write the record of a batch, and a line for people."""
        seconds = [generation.seconds for generation in done]
        self._records.case(
            point.case,
            self._params(point, traced) | {"repeats": len(done)},
            seconds,
            dtype=self._facts["dtype"] or "",
            eager=self._facts["mode"] == "eager",
        )
        step = decode_step(done, point.batch)
        told = "no decode step" if step is None else f"{step * 1e3:.3f} ms a decode step"
        where = "under the profiler" if traced else f"median of {len(done)}"
        print(
            f"{point.case}: {statistics.median(seconds):.4f} s, {told} ({where})", file=sys.stderr
        )
        self.shown.append(
            {"case": point.case, "traced": traced, "seconds": seconds, "decode_step_s": step}
        )


def params(point: Point, args: Namespace, traced: bool = False) -> dict[str, Any]:
    """Return the parameters of a batch for its record."""
    return {
        "experiment": point.experiment,
        "engine": args.mode,
        "batch": point.batch,
        "prompt_tokens": point.prompt_tokens,
        "output_tokens": point.output_tokens,
        "warmups": args.warmups,
        "tensor_parallel": args.tensor_parallel,
        "model": args.model,
        "traced": traced,
    }


def write_failure(
    records: Records, point: Point, parameters: dict[str, Any], failure: EngineFailure
) -> None:
    """Write the record of a batch that could not be timed, and a line for people."""
    records.case(
        point.case,
        parameters,
        status=failure.status,
        reason=failure.message,
        eager=parameters["engine"] == "eager",
    )
    print(f"{point.case}: {failure.status}: {failure.message}", file=sys.stderr)


def decode_step(done: Sequence[Generation], batch: int) -> float | None:
    """Return the median time in s of steps that gave each of `batch` requests a token; None: none.

    The first step with tokens of a generation is its prefill and does not count.
    """
    times: list[float] = []
    for generation in done:
        given = 0
        for step in generation.steps:
            if given >= batch and step.outputs == batch:  # with drafts several tokens each
                times.append(step.seconds)
            given += step.tokens
    return statistics.median(times) if times else None


def parse_arguments(argv: Sequence[str]) -> Namespace:
    """Return the command line's values; exit code 2 with a reason where it is wrong."""
    parser = Parser(description=(__doc__ or "").split("\n\n")[0], allow_abbrev=False)
    add = parser.add_argument
    add("--batch", type=positive, default=8, metavar="N", help="requests (8)")
    add("--prompt-tokens", type=positive, default=1024, metavar="N", help="of each (1024)")
    add("--output-tokens", type=positive, default=32, metavar="N", help="that each gives (32)")
    add("--warmups", type=whole, default=2, metavar="N", help="short runs before (2)")
    add("--repeats", type=whole, default=3, metavar="N", help="timed before the profile (3)")
    add("--also-batches", type=positive, nargs="+", default=[], metavar="N", help="timed as well")
    add("--out", metavar="FILE", help="records go there (the variable PROF_RESULTS)")
    add_engine_arguments(parser, without=("profiler", "images"))
    add_image_arguments(parser)
    args = parser.parse_args(argv)
    args.argv = list(argv)
    most = max([args.batch, *args.also_batches])
    if args.max_num_seqs is not None and args.max_num_seqs < most:
        parser.error(f"--max-num-seqs {args.max_num_seqs} is less than a batch of {most}")
    return args


def options_of(args: Namespace) -> EngineOptions:
    """Return how the engine is made: as long as the batch needs, where nothing else was asked."""
    images = most_images(args)
    tokens = args.prompt_tokens + args.output_tokens + images * TOKENS_OF_IMAGE
    longest = args.max_model_len or -(-tokens // 256) * 256
    most = args.max_num_seqs or max([args.batch, *args.also_batches])
    return engine_options(
        args, profiler=True, max_model_len=longest, max_num_seqs=most, images=images
    )


def run(args: Namespace, records: Records) -> int:
    """Start the engine, time all batches, end the engine; 0 where the profiled batch was timed."""
    records.conditions(conditions(args.argv, args.seed, visible_gpus()))
    point = Point(args.batch, args.prompt_tokens, args.output_tokens)
    begin = records.now()
    try:
        engine = make_engine(options_of(args), records.begin)
    except EngineFailure as failure:
        write_failure(records, point, params(point, args), failure)
        raise
    records.phase(None, "start engine", begin, records.now())
    try:
        facts = engine.facts()
        records.engine(facts)
        timed = Run(engine, records, args, images_from(args))
        timed.warm_up(point)
        timed.untraced(point)
        timed.traced([point])
        for batch in dict.fromkeys(args.also_batches):
            if batch != args.batch:
                try:
                    timed.other(Point(batch, args.prompt_tokens, args.output_tokens))
                except EngineFailure as failure:
                    if failure.dead:  # the rest could not be timed either
                        break
        timed.count_encoder(point)
    finally:
        begin = records.now()
        close(engine)
        records.phase(None, "end engine", begin, records.now())
    print(json.dumps({"target": TARGET, "model": facts["model"], "cases": timed.shown}))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run; exit code 1 with a reason where vLLM fails, 3 where it is not installed."""
    args = parse_arguments(sys.argv[1:] if argv is None else argv)
    return run_to_the_end(lambda: _main(args), options_of(args).has_processes)


def _main(args: Namespace) -> int:
    return with_records(args, TARGET, run)


def with_records(args: Namespace, target: str, run: Callable[[Namespace, Records], int]) -> int:
    """Run with records that go where `args` or PROF_RESULTS say; 1 with a reason where it fails."""
    path = args.out or os.environ.get("PROF_RESULTS") or os.devnull
    try:
        with open(path, "a", encoding="utf-8") as stream:
            return run(args, Records(stream, target))
    except EngineFailure as failure:
        complain(failure)
    except OSError as error:
        if error.filename != path:
            raise
        complain(EngineFailure(f"the records cannot be written: {error}", "another --out"))
    return 1


if __name__ == "__main__":
    sys.exit(main())
