"""Own kernels: arguments, errors, compilation without headers, and the clocks of their stamps."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from nsight_prof.targets.harness import CFloat, CInt32, Unsupported
from nsight_prof.targets.harness import cuda as own
from nsight_prof.targets.harness.stamps import SOURCE, clocks

torch = pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")


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
