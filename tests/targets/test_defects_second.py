"""The second set of planted defects: do both programs of a pair compute the same, and what?"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from targets.defects.pair import Pair, plans
from tests.targets.cuda_on_cpu import KernelOnCpu, compiled

torch = pytest.importorskip("torch")
from targets.defects import second, second_kernels, second_torch  # noqa: E402

SMALL_KERNELS = {
    "GEMV_COLUMNS": 96, "TOKENS": 128, "DIMS": 256, "PRODUCT_N": 64, "PRODUCT_K": 64,
    "KEY_CHUNKS": 4, "QUERIES": 3, "LABELS": 1 << 13, "SHORT": 64, "LONG": 1024,
    "LISTS_PER_SM": 8, "VISITS": 2, "DIGIT_STEPS": 2, "AXPY_STEPS": 3, "TABLE_ROWS": 100,
    "ROWS_PER_WARP": 2, "FEW_STEPS": 3, "MANY_STEPS": 40,
}  # fmt: skip
SMALL_PROGRAMS = {
    "VOCABULARY": 67, "PADDED": 128, "HIDDEN": 32, "PREDICTED": 48, "HEADS": (1, 2, 64, 16),
    "ACTIVATIONS": 1 << 12, "SOFTMAX": (16, 128), "OFFLOADED": (64, 32), "BATCH": 8,
    "SMALL_ROWS": 8, "SMALL_COLUMNS": 64, "PARAMETERS": 5, "VALUES": 64, "STEPS": 2,
    "RESIDUALS": 1 << 10,
}  # fmt: skip
KERNELS = [make.__name__ for make in second_kernels.MAKERS]
PROGRAMS = [make.__name__ for make in second_torch.MAKERS]


class OnCpu(torch.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
    """Makes on the CPU what a program asks for on the GPU."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        here = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        if getattr(function, "__name__", "") == "pin_memory":
            return args[0]
        return function(*map(_on_cpu, args), **here)


def _on_cpu(value: Any) -> Any:
    return "cpu" if isinstance(value, str) and value == "cuda" else value


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], KernelOnCpu]:
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    folder = tmp_path_factory.mktemp("cpu")
    libraries = {
        file: compiled(second_kernels.source(file), folder / file)
        for file in ("memory", "occupancy", "compute")
    }
    return lambda file, name: KernelOnCpu(libraries[file], name)


@pytest.fixture
def small(
    monkeypatch: pytest.MonkeyPatch, kernel: Callable[[str, str], KernelOnCpu]
) -> Iterator[None]:
    """Sizes that a CPU can do, on a GPU of one SM."""
    for module, sizes in ((second_kernels, SMALL_KERNELS), (second_torch, SMALL_PROGRAMS)):
        for name, value in sizes.items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(second_kernels, "sm_count", lambda: 1)
    monkeypatch.setattr(second_kernels, "_kernel", kernel)

    class Graph:
        def __init__(self, step: Callable[[], None]) -> None:
            self.replay = step

    monkeypatch.setattr(second_torch, "graph_of", Graph)
    torch.manual_seed(0)
    with OnCpu():
        yield


def made(name: str) -> Pair:
    """Return a pair whose programs were called once each."""
    pair = second.MAKERS[name]()
    pair.defect()
    pair.twin()
    return pair


@pytest.mark.parametrize("name", [*KERNELS, *(name for name in PROGRAMS if name != "small_grid")])
def test_defect_and_twin_compute_the_same(small: None, name: str) -> None:
    pair = made(name)
    assert pair.name == name
    assert pair.results is not None, "the program itself compares them on the GPU"
    pair.compare()


def test_every_plan_has_its_programs_and_the_first_sets_names() -> None:
    assert list(plans("second")) != []
    assert set(plans("second")) == set(second.MAKERS) == set(plans("first"))
    first = plans("first")
    for name, plan in plans("second").items():
        assert plan.expects == first[name].expects, "the same kind of defect"
        assert plan.measure == first[name].measure
        assert plan.defect != first[name].defect
        assert plan.defect.endswith(".")
        assert plan.twin.endswith(".")
