"""A made-up run of the offline baseline: its times follow known laws, its form is the target's."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.build.run_tables import build_tables
from nsight_prof.parsers.roofs.file import ROOFS_FILE, RoofsFile, write_roofs
from nsight_prof.parsers.run.directory import (
    Manifest,
    RunDir,
    StepRecord,
    StepState,
    write_manifest,
)
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.tables import tables
from nsight_prof.targets.serving.records import Records

CONFIGS = Path(__file__).parents[4] / "targets" / "serving" / "configs"
GPU = {"name": "NVIDIA H200", "uuid": "GPU-1", "sm_count": 132, "max_sm_clock_hz": 1.98e9,
       "power_limit_w": 700.0, "memory_bytes": 150_754_820_096, "l2_bytes": 62_914_560,
       "compute_capability": "9.0", "max_memory_clock_hz": 3.201e9}  # fmt: skip
SOFTWARE = {"driver": "580.1", "cuda": "13.0", "torch": "2.11.0", "python": "3.12.3"}
READ, STEADY = 4.6e12, 700e12
KV_TOKENS = 64_000


class Laws:
    """How long things take: prefill of a request, and a decode step of a batch at a context."""

    first_s, prompt_s, each_s = 8e-3, 22e-6, 12e-6
    step_s, kv_s = 4.5e-3, 12.5e-9
    eager_s = 9e-3

    def prefill(self, batch: int, prompt: int) -> float:
        return self.first_s + self.prompt_s * batch * prompt

    def step(self, mode: str, batch: int, context: int) -> float:
        if mode == "eager":
            return max(self.eager_s, self.step_s) + self.each_s * batch
        return self.step_s + self.each_s * batch + self.kv_s * batch * context


def write_baseline(
    path: Path,
    *,
    batches: tuple[int, ...] = (1, 4, 8, 16, 32, 64, 128),
    out_of_memory: tuple[int, ...] = (),
    preempt_from: int = 1000,
    telemetry: bool = True,
    requests: bool = True,
) -> None:
    """Write the records of one process that measured the whole baseline."""
    stream = io.StringIO()
    _Writer(Records(stream, "vllm-baseline", begin=0.0), telemetry, requests, preempt_from).all(
        batches, out_of_memory
    )
    path.write_text(stream.getvalue())


class _Writer:
    def __init__(self, records: Records, telemetry: bool, requests: bool, preempt: int) -> None:
        self.records, self.telemetry, self.requests = records, telemetry, requests
        self.preempt_from, self.preempted = preempt, 0
        self.now, self.laws = 0.0, Laws()

    def all(self, batches: tuple[int, ...], out_of_memory: tuple[int, ...]) -> None:
        self.records.conditions(
            {"argv": [], "time": "2026-11-22T10:00:00Z", "seed": 1, "device": "cuda", "gpu": GPU,
             "software": SOFTWARE}
        )  # fmt: skip
        self.engine("cuda-graphs", 57.0)
        self.point("latency", "cuda-graphs", 1, 512, 64, 20)
        for batch in batches:
            if batch in out_of_memory:
                self.lost("batch", batch, 512, 128)
            else:
                self.point("batch", "cuda-graphs", batch, 512, 128, 3)
        for prompt in (10, 50, 200, 1000, 4000):
            for output in (50, 100, 200):
                self.point("lengths", "cuda-graphs", 1, prompt, output, 3)
        self.engine("eager", 21.0)
        for batch in (1, 8, 64):
            self.point("graphs", "eager", batch, 512, 128, 3)

    def engine(self, mode: str, seconds: float) -> None:
        self.watch(seconds, 10.0)
        self.records.phase(None, "start engine", self.now - seconds, self.now)
        config = json.loads((CONFIGS / "qwen2.5-7b" / "config.json").read_text())
        self.records.engine(
            {"version": "0.20.2", "model": "qwen2.5-7b", "model_config": config, "mode": mode,
             "dtype": "bfloat16", "tensor_parallel": 1, "engine_process": "inline",
             "max_model_len": 4200, "max_num_seqs": 128, "max_num_batched_tokens": 16384,
             "kv_blocks": KV_TOKENS // 16, "block_size": 16, "kv_cache_dtype": "auto",
             "gpu_memory_utilization": 0.9, "attention_backend": "FLASH_ATTN",
             "load_format": "dummy", "dummy_weights": True, "start_s": seconds,
             "async_scheduling": True, "capture_sizes": [1, 2, 4, 8, 16], "args": {}}
        )  # fmt: skip

    def watch(self, seconds: float, load: float) -> None:
        """Let time pass, with NVML beside it."""
        for n in range(math.ceil(seconds * 10) if self.telemetry else 0):
            at = self.now + n / 10
            self.records.telemetry(
                {"t_s": at, "device": 0, "gpu_util_pct": load, "memory_util_pct": load / 2,
                 "memory_used_bytes": 120e9, "power_w": 100 + 5 * load,
                 "sm_clock_hz": 1.98e9 - 2e6 * load, "memory_clock_hz": 3.2e9,
                 "temperature_c": 30 + load / 5, "throttle": ["sw_power_cap"] if load > 95 else []}
            )  # fmt: skip
        self.now += seconds

    def params(self, experiment: str, mode: str, batch: int, prompt: int, output: int) -> Any:
        return {"experiment": experiment, "engine": mode, "batch": batch, "prompt_tokens": prompt,
                "output_tokens": output, "repeats": 3, "warmups": 1, "tensor_parallel": 1,
                "model": "qwen2.5-7b"}  # fmt: skip

    def lost(self, experiment: str, batch: int, prompt: int, output: int) -> None:
        name = f"{experiment}/cuda-graphs/b{batch}/p{prompt}/o{output}"
        params = self.params(experiment, "cuda-graphs", batch, prompt, output)
        self.records.case(
            name, params, status="out-of-memory", reason="CUDA out of memory: tried 9 GB"
        )

    def point(
        self, experiment: str, mode: str, batch: int, prompt: int, output: int, repeats: int
    ) -> None:
        name = f"{experiment}/{mode}/b{batch}/p{prompt}/o{output}"
        times = [self.laws.prefill(batch, prompt)]
        for done in range(1, output):
            times.append(times[-1] + self.laws.step(mode, batch, prompt + done))
        took = times[-1]
        start = self.now
        used = min(1.0, batch * (prompt + output) / KV_TOKENS)
        self.stats(name, self.now + took * 0.9, batch, used)
        self.watch(took, 99.0 if batch > 32 else 90.0)
        self.records.phase(name, "warm-up", start, self.now)
        start, samples = self.now, []
        for repeat in range(1, repeats + 1):
            # A little noise that no seed changes: the first repeat is slow, the next ones fast.
            factor = 1 + 0.002 * math.cos(repeat)
            self.repeat(name, repeat, batch, prompt, [factor * t for t in times])
            samples.append(factor * took)
            self.watch(samples[-1], 99.0 if batch > 32 else 90.0)
        self.records.phase(name, "measure", start, self.now)
        params = self.params(experiment, mode, batch, prompt, output)
        self.records.case(name, params, samples, dtype="bfloat16", eager=mode == "eager")

    def repeat(self, name: str, repeat: int, batch: int, prompt: int, times: list[float]) -> None:
        output = len(times)
        before = 0.0
        for index, at in enumerate(times):
            self.records.step(
                name, repeat,
                {"index": index, "t_s": self.now + at, "seconds": at - before, "outputs": batch,
                 "tokens": batch},
            )  # fmt: skip
            before = at
        for number in range(batch if self.requests else 0):
            self.records.request(
                name, repeat,
                {"request": number, "prompt_tokens": prompt, "output_tokens": output,
                 "arrival_s": self.now, "first_token_s": self.now + times[0],
                 "finish_s": self.now + times[-1], "token_times_s": times, "queue_s": 1e-4},
            )  # fmt: skip
        self.records.vllm_totals(
            name, repeat,
            {"prompt_tokens": batch * prompt, "generation_tokens": batch * output,
             "seconds": times[-1]},
        )  # fmt: skip

    def stats(self, name: str, at: float, batch: int, used: float) -> None:
        if batch >= self.preempt_from:
            self.preempted += batch // 8
        self.records.engine_stats(
            name,
            {"t_s": at, "running": batch, "waiting": 0, "kv_usage": used,
             "preemptions": self.preempted, "prompt_tokens": 0, "generation_tokens": 0},
        )  # fmt: skip


def _make_run(
    folder: Path,
    write: Callable[[Path], None] = write_baseline,
    *,
    roofs: bool = True,
    name: str = "vllm-baseline",
) -> Run:
    """Return a benchmark run with one process that `write` recorded, and its tables."""
    step = StepRecord("bench", "a", StepState.DONE, "steps/1-bench")
    (folder / step.directory).mkdir(parents=True)
    recipe = {"name": name, "question": "How fast does this engine serve?", "bench": {}}
    recipe["counters"] = {"enabled": False}
    manifest = Manifest(f"{name}-1", "2026-11-22T10:00:00Z", recipe, steps=[step])
    manifest.gpus = [{"name": "NVIDIA H200", "uuid": "GPU-1", "power_limit_w": 700.0}]
    manifest.software = {"driver": "580.1"}
    write_manifest(RunDir(folder), manifest)
    write(folder / step.directory / "result-1-1.jsonl")
    if roofs:
        facts = {"name": "NVIDIA H200", "uuid": "GPU-1", "sm_count": 132, "power_limit_w": 700.0}
        facts |= {"driver": "580.1", "clock_hz": 1.98e9}
        write_roofs(folder / ROOFS_FILE, RoofsFile("2026-11-21", "roofline-1", facts, _roofs(), {}))
    build_tables(RunDir(folder))
    return load_run(folder)


@pytest.fixture(scope="session")
def make_run() -> Callable[..., Run]:
    """Return what makes a run of records: make_run(folder, roofs=…, write=…, **of the records)."""

    def make(
        folder: Path,
        *,
        roofs: bool = True,
        write: Callable[..., None] = write_baseline,
        name: str = "vllm-baseline",
        **of_records: Any,
    ) -> Run:
        return _make_run(folder, partial(write, **of_records), roofs=roofs, name=name)

    return make


@pytest.fixture(scope="session")
def laws() -> Laws:
    """Return the laws that the made-up times follow."""
    return Laws()


def _roofs() -> pd.DataFrame:
    known = [("dram", "", "read", READ, "B/s"), ("tensor", "bf16", "steady", STEADY, "FLOP/s")]
    rows = [
        {"level_or_pipe": level, "dtype": dtype, "kind": kind, "value": value, "unit": unit,
         "is_ceiling": True, "accepted": True, "reason": ""}
        for level, dtype, kind, value, unit in known
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=[column.name for column in tables()["measured_roofs"]])
