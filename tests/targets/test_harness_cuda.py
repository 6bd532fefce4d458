"""What the harness does on a GPU, against a stand-in that keeps a simulated time."""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nsight_prof.targets.harness import Case, Setup, Work, run_target
from nsight_prof.targets.harness.batches import capture, graphs
from nsight_prof.targets.harness.nvml import Watch
from nsight_prof.targets.harness.sampling import Limits, measure
from nsight_prof.targets.harness.session import Session
from nsight_prof.targets.harness.timers import CudaTimer

torch = pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")


class Gpu:
    """A stream whose work takes simulated seconds; the host costs nothing."""

    def __init__(self) -> None:
        self.now = 0.0
        self.recording: list[float] | None = None
        self.slept = 0

    def work(self, seconds: float) -> None:
        if self.recording is None:
            self.now += seconds
        else:
            self.recording.append(seconds)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu()

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            self.at = 0.0

        def record(self) -> None:
            self.at = gpu.now

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, end: "Event") -> float:
            return (end.at - self.at) * 1e3

    class Graph:
        def capture_begin(self, pool: Any) -> None:
            gpu.recording = []

        def capture_end(self) -> None:
            self.nodes, gpu.recording = gpu.recording or [], None

        def replay(self) -> None:
            gpu.now += sum(self.nodes)

    def sleep(cycles: int) -> None:
        gpu.slept += 1

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(torch.cuda, "_sleep", sleep)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    return gpu


def make_case(**fields: Any) -> Case:
    return Case(name="a", operation="a", prepare=lambda setup: [], work=Work(), **fields)


def test_short_calls_are_captured_in_whole_rotations(gpu: Gpu) -> None:
    turns: list[int] = []

    def call(copy: int) -> None:
        turns.append(copy)
        gpu.work(3e-6)

    calls = [partial(call, copy) for copy in range(7)]
    done = measure(make_case(), calls, CudaTimer("cuda", None), Limits(), Watch(None))
    assert done.captured
    assert done.copies == 7
    assert done.calls_per_sample % 7 == 0
    assert done.calls_per_sample * 3e-6 >= 1e-3
    assert [s.seconds for s in done.samples] == pytest.approx([3e-6] * 10)
    assert done.stop == "noise"
    assert turns[-done.calls_per_sample :] == list(range(7)) * (done.calls_per_sample // 7)
    assert gpu.slept >= 2


def test_long_calls_are_timed_one_by_one(gpu: Gpu) -> None:
    def call() -> None:
        gpu.work(2e-3)

    timer = CudaTimer("cuda", None)
    done = measure(make_case(), [call], timer, Limits(), Watch(None))
    assert (done.captured, done.calls_per_sample) == (False, 1)
    assert done.samples[0].seconds == pytest.approx(2e-3)


def test_eager_calls_are_not_gated(gpu: Gpu) -> None:
    def call() -> None:
        gpu.work(1e-5)

    timer = CudaTimer("cuda", None)
    done = measure(make_case(launch="eager"), [call], timer, Limits(), Watch(None))
    assert not done.captured
    assert gpu.slept == 1  # for the estimate only


def test_what_cannot_be_captured_is_timed_in_a_loop_and_says_so(gpu: Gpu) -> None:
    def call() -> None:
        if gpu.recording is not None:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        gpu.work(1e-5)

    batches = graphs([call], 1e-5)
    assert not batches.captured
    assert batches.note == (
        "not captured in a graph: operation not permitted when stream is capturing"
    )
    batches.next()
    assert gpu.now == pytest.approx(1e-3)


def test_a_steady_case_is_sampled_after_two_seconds(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The host's clock runs with the stream's, as it does where the queue is kept full.
    monkeypatch.setattr(time, "perf_counter", lambda: gpu.now)
    starts: list[float] = []

    def call() -> None:
        starts.append(gpu.now)
        gpu.work(5e-3)

    timer = CudaTimer("cuda", None)
    case = make_case(duration="steady")
    done = measure(case, [call], timer, Limits(), Watch(None))
    assert done.stop == "samples"
    assert 0.3 < sum(s.seconds for s in done.samples) < 0.6
    assert 2.3 < gpu.now - starts[0] < 3.0
    assert done.busy == pytest.approx(1, abs=0.2)


def test_bursts_are_short_and_rest_between(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)

    def call() -> None:
        gpu.work(1e-3)

    done = measure(
        make_case(duration="burst"), [call], CudaTimer("cuda", None), Limits(), Watch(None)
    )
    assert done.stop == "samples"
    assert len(pauses) == 3
    assert min(pauses) >= 7 * 0.02  # at work an eighth of the time
    assert 10 <= len(done.samples) / 3 <= 20  # windows of 20 ms


def test_bursts_of_long_calls_say_that_the_time_ended_them(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", gpu.work)
    monkeypatch.setattr(time, "perf_counter", lambda: gpu.now)
    timer, limits = CudaTimer("cuda", None), Limits(case_time=0.01)
    done = measure(
        make_case(duration="burst"), [lambda: gpu.work(0.015)], timer, limits, Watch(None)
    )
    assert (done.stop, len(done.samples)) == ("time limit", 3)


def test_a_failed_capture_raises_what_the_call_raised(gpu: Gpu) -> None:
    def broken() -> None:
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        capture([broken])
    assert gpu.recording is None


@pytest.fixture
def session_gpu(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A device that torch describes, without NVML and NVRTC; gives what profilers are told."""
    told: list[str] = []
    facts = SimpleNamespace(
        name="Simulated",
        uuid="b1a9cb0c-ab29-6789-d416-d3395fe13f02",
        multi_processor_count=132,
        L2_cache_size=60 << 20,
        total_memory=141 << 30,
        major=9,
        minor=0,
    )
    answers: dict[str, Any] = {
        "is_available": True,
        "current_device": 0,
        "Stream": object(),
        "set_stream": None,
        "get_device_properties": facts,
        "mem_get_info": (140 << 30, 141 << 30),
        "reset_peak_memory_stats": None,
        "max_memory_allocated": 1 << 20,
        "max_memory_reserved": 2 << 20,
        "empty_cache": None,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: told.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: told.append("stop"))
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", told.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: told.append("pop"))
    monkeypatch.setattr(Session, "_flush", lambda self, l2: told.append("flush"))
    return told


def simulated(gpu: Gpu, tmp_path: Path, *options: str, **fields: Any) -> list[dict[str, Any]]:
    def prepare(setup: Setup) -> list[Callable[[], None]]:
        return [partial(gpu.work, 1e-5)] * setup.copies

    case = Case("a", "a", prepare, Work(flops=1e6), **fields)
    out = tmp_path / "records.jsonl"
    assert run_target("t", lambda args: [case], [*options, "--out", str(out)], description="") == 0
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def test_a_run_on_a_gpu_records_the_gpu_and_brackets_its_samples(
    gpu: Gpu, session_gpu: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conditions, record = simulated(gpu, tmp_path, footprint_bytes=30 << 20)
    assert conditions["gpu"]["uuid"] == "GPU-b1a9cb0c-ab29-6789-d416-d3395fe13f02"
    assert conditions["gpu"]["compute_capability"] == "9.0"
    assert conditions["gpu"]["power_limit_w"] is None
    assert record["time"]["captured"]
    assert record["time"]["copies"] == 7  # (7 - 1) x 30 MiB are 3 x 60 MiB
    assert record["time"]["median_s"] == pytest.approx(1e-5)
    assert record["memory"] == {"allocated_peak_bytes": 1 << 20, "reserved_peak_bytes": 2 << 20}
    assert record["clock"] is record["throttle"] is None
    assert session_gpu == ["start", "case:a|cold|normal", "pop", "stop"]
    assert "note: the SM clock is not measured: " in capsys.readouterr().err


def test_a_profiler_sees_a_counted_case_once_and_cold(
    gpu: Gpu, session_gpu: list[str], tmp_path: Path
) -> None:
    _, record = simulated(gpu, tmp_path, "--count", footprint_bytes=30 << 20)
    assert record["status"] == "counted"
    assert session_gpu == ["flush", "start", "case:a|cold|normal", "pop", "stop"]
    assert gpu.now == pytest.approx(2e-5)
