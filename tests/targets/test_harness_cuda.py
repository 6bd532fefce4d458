"""What the harness asks of CUDA and NVML, against stand-ins that keep a simulated time."""

import ctypes
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from targets.harness import Case, CFloat, CInt32, Unsupported, Work
from targets.harness import cuda as own
from targets.harness.batches import capture, graphs
from targets.harness.nvml import Watch, make_nvml
from targets.harness.sampling import Limits, measure
from targets.harness.stamps import SOURCE, clocks
from targets.harness.timers import CudaTimer

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
    assert 0.5 < sum(s.seconds for s in done.samples) < 1.0
    assert gpu.now - starts[0] < 3.5
    assert done.busy == pytest.approx(1, abs=0.2)


def test_bursts_are_short_and_rest_between(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)

    def call() -> None:
        gpu.work(1e-3)

    done = measure(
        make_case(duration="burst"), [call], CudaTimer("cuda", None), Limits(), Watch(None)
    )
    assert len(pauses) == 3
    assert min(pauses) >= 0.3
    assert 10 <= len(done.samples) / 3 <= 50  # windows of under 50 ms


def test_a_failed_capture_raises_what_the_call_raised(gpu: Gpu) -> None:
    def broken() -> None:
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        capture([broken])
    assert gpu.recording is None


def test_clocks_are_cycles_over_the_timers_seconds() -> None:
    # Three of four slots written; SMs at 1.98, 1.98 and 1.5 GHz for 1 ms.
    before = [[100, 5_000_000], [200, 5_000_010], [300, 5_000_020], [0, 0]]
    gained = [(1_980_000, 1_000_000), (1_980_000, 1_000_000), (1_500_000, 1_000_000), (0, 0)]
    after = [[c + dc, t + dt] for (c, t), (dc, dt) in zip(before, gained, strict=True)]
    short = [[c + 3960, t + 2000] if t else [0, 0] for c, t in before]
    unwritten = [[0, 0]] * 4
    written = torch.tensor([before, after, before, short, before, unwritten], dtype=torch.int64)
    assert clocks(written, step_s=32e-9) == [pytest.approx(1.98e9), None, None]
    # 2 us is too short for a step of 32 ns, long enough for one of 1 ns.
    assert clocks(written, step_s=1e-9)[1] == pytest.approx(1.98e9)


class Driver:
    """What cuda.bindings.driver would do with a launch: read the arguments at their addresses."""

    CUfunction_attribute = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_NUM_REGS="registers",
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="shared",
    )

    def __init__(self) -> None:
        self.launched: list[tuple[Any, ...]] = []
        self.code = 0

    def cuModuleGetFunction(self, module: str, name: bytes) -> tuple[int, str]:  # noqa: N802
        return (0, f"{module}.{name.decode()}") if name == b"f" else (500, "")

    def cuLaunchKernel(self, *given: Any) -> tuple[int]:  # noqa: N802
        function, *shape, packed, extra = given
        kinds: tuple[Any, ...] = (
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_int32,
            ctypes.c_float,
            ctypes.c_double,
        )
        addresses = (ctypes.c_void_p * len(kinds)).from_address(packed)
        values = [kind.from_address(at).value for kind, at in zip(kinds, addresses, strict=True)]
        assert extra == 0
        self.launched.append((function, *shape, *values))
        return (self.code,)

    def cuFuncGetAttribute(self, name: str, function: str) -> tuple[int, int]:  # noqa: N802
        return 0, {"registers": 40}[name]

    def cuFuncSetAttribute(self, function: str, name: str, value: int) -> tuple[int]:  # noqa: N802
        return (0 if value <= 232448 else 1,)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    monkeypatch.setattr(own, "current_stream", lambda: 77)
    return Driver()


def kernel(driver: Driver, name: str = "f") -> own.Kernel:
    module: Any = SimpleNamespace(driver=driver, handle="m")
    return own.Kernel(module, name)


def test_arguments_reach_the_kernel_as_its_types(driver: Driver) -> None:
    data = torch.zeros(4)
    arguments = [data, -(1 << 40), CInt32(-3), CFloat(0.5), 2.25]
    kernel(driver)(132, (32, 4, 1), arguments, shared=1024)
    expected = ("m.f", 132, 1, 1, 32, 4, 1, 1024, 77, data.data_ptr(), -(1 << 40), -3, 0.5, 2.25)
    assert driver.launched == [expected]


def test_a_bound_launch_keeps_its_arguments_alive(driver: Driver) -> None:
    call = kernel(driver).bind(1, 1, [torch.zeros(1), 1, CInt32(2), CFloat(3), 4.0])
    held = [torch.zeros(1) for _ in range(100)]
    call()
    call()
    assert driver.launched[0][-4:] == (1, 2, 3.0, 4.0)
    assert driver.launched[0] == driver.launched[1]
    assert driver.launched[0][9] not in {tensor.data_ptr() for tensor in held}


def test_errors_of_the_driver_name_the_call(driver: Driver) -> None:
    with pytest.raises(own.CudaError, match="cuModuleGetFunction: 500"):
        kernel(driver, "missing")
    found = kernel(driver)
    found.allow_shared(232448)
    with pytest.raises(own.CudaError, match="cuFuncSetAttribute"):
        found.allow_shared(232449)
    assert found.registers == 40
    driver.code = 719
    with pytest.raises(own.CudaError, match="cuLaunchKernel: 719"):
        found(1, 1, [torch.zeros(1), 1, CInt32(2), CFloat(3), 4.0])


def test_an_argument_of_no_c_type_is_refused(driver: Driver) -> None:
    with pytest.raises(TypeError, match="str"):
        kernel(driver)(1, 1, ["text"])


def test_own_kernels_need_a_gpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(Unsupported, match="CUDA device"):
        own.CudaModule(SOURCE)


def test_the_stamps_compile_without_headers() -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    try:
        cubin = own.compile_cubin(SOURCE, ("--gpu-architecture=sm_90a",))
    except Unsupported as error:
        pytest.skip(str(error))
    assert cubin.startswith(b"\x7fELF")
    with pytest.raises(own.CudaError, match="error"):
        own.compile_cubin("this is not CUDA C", ("--gpu-architecture=sm_90a",))


class Nvml:
    """A GPU that caps its power and draws 500 W of simulated time."""

    nvml = None
    uuid = "GPU-1"

    def __init__(self) -> None:
        self.now = 0.0
        self.bits = 0x1

    def reasons(self) -> int:
        return self.bits

    def violation_s(self, policy: int) -> float | None:
        return self.now if policy == 0 else None

    def energy_j(self) -> float:
        return 500 * (self.now // 0.02 * 0.02)  # the counter moves every 20 ms

    def temperature_c(self) -> float:
        return 41.0


def test_throttling_and_power_come_from_what_nvml_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu: Any = Nvml()
    monkeypatch.setattr(time, "perf_counter", lambda: gpu.now)
    with Watch(gpu) as watch:
        assert not watch.poll()
        for _ in range(50):
            gpu.now += 0.01
            gpu.bits = 0x4 if gpu.now > 0.2 else 0
            watch.poll()
        assert watch.poll()  # not asked again so soon, but still held down
    assert watch.reasons == ["sw_power_cap"]
    assert watch.power_s == pytest.approx(0.5)
    assert watch.thermal_s is None
    assert watch.power_w == pytest.approx(500, rel=0.05)
    assert watch.temperature_c == 41.0


def test_a_short_case_has_no_power(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu: Any = Nvml()
    monkeypatch.setattr(time, "perf_counter", lambda: gpu.now)
    with Watch(gpu) as watch:
        for _ in range(8):
            gpu.now += 0.01
            watch.poll()
    assert watch.power_w is None


def test_without_nvml_nothing_is_claimed() -> None:
    nvml, reason = make_nvml(None)
    assert nvml is None
    assert "UUID" in reason
    with Watch(None) as watch:
        assert not watch.poll()
    assert watch.power_s is watch.power_w is watch.temperature_c is None
    assert not watch.known
