"""The second set of planted defects: do both programs of a pair compute the same, and what?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.targets.defects.pair import Mismatch, Pair, plans
from nsight_prof.targets.defects.run import checked_pairs

torch = pytest.importorskip("torch")
from nsight_prof.targets.defects import second, second_kernels, second_torch  # noqa: E402
from nsight_prof.targets.defects.own_kernels import source  # noqa: E402
from tests.targets.on_cpu import KernelOnCpu, OnCpu, compiled  # noqa: E402

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
    "RECORDS": 50, "SQUARE": 64, "IMAGES": (2, 8, 6, 6), "WEIGHTS": (8, 8, 3, 3),
    "RESIDUALS": 1 << 10,
}  # fmt: skip
KERNELS = [make.__name__ for make in second_kernels.MAKERS]
PROGRAMS = [make.__name__ for make in second_torch.MAKERS]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], KernelOnCpu]:
    folder = tmp_path_factory.mktemp("cpu")
    libraries = {
        file: compiled(source(f"second_{file}"), folder / file)
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


ORACLES: dict[str, Callable[..., Any]] = {
    "uncoalesced_loads": lambda a, x, *_: a @ x,
    "uncoalesced_stores": lambda keys, *_: keys.T,
    "bank_conflicts": lambda a, b, *_: a @ b.T,
    "l2_thrashing": lambda keys, queries, *_: queries @ keys.float().T,
    "atomics": lambda labels, *_: torch.bincount(labels, minlength=16),
    "shared_limited": lambda keys, *_: torch.bincount(keys >> 8 & 255, minlength=256),
    "few_blocks": lambda x, y, *_: 1.5 * x + y,
    "block_limited": lambda table, ids, *_: table[ids],
}
"""What the programs of a pair compute, by torch's own means, from a kernel's first arguments."""


@pytest.mark.parametrize("name", ORACLES)
def test_the_programs_compute_what_they_say(small: None, name: str) -> None:
    pair = second.MAKERS[name]()
    arguments = pair.twin()
    assert isinstance(arguments, tuple)
    assert pair.results is not None
    wanted = ORACLES[name](*arguments)
    torch.testing.assert_close(pair.results()[1], wanted.to(pair.results()[1].dtype))


def test_linked_pages_are_walked_once_each() -> None:
    lists, length = 5, 7
    pages, heads = second_kernels.linked_pages(lists, length, "cpu")
    following = pages.view(torch.int32)[:, 0]
    seen = []
    for head in heads.tolist():
        page = head
        for _ in range(length):
            seen.append(page)
            page = int(following[page])
        assert page == 0
    assert sorted(seen) == list(range(lists * length))


def test_pieces_cover_all_sequences_without_overlap() -> None:
    of = [3, 10, 4]
    first, owner = second_kernels.pieces(of, 4)
    assert first == [0, 3, 7, 11, 13, 17]
    assert owner == [0, 1, 1, 1, 2]
    usual = second_kernels.lengths(33792)
    assert sorted(set(usual)) == [second_kernels.SHORT, second_kernels.LONG]
    assert usual.count(second_kernels.LONG) == second_kernels.LONG_SEQUENCES


def a_pair(defect: Any, twin: Any, tolerance: float = 0.1) -> Pair:
    return Pair("x", lambda: 0, lambda: 0, results=lambda: (defect, twin), tolerance=tolerance)


@pytest.mark.parametrize(
    ("defect", "twin"),
    [([1.0, 2.5], [1.0, 2.0]), ([1.0], [1.0, 2.0]), ([0.0], [0.0]), ([1.0], [float("nan")]),
     ([float("nan")], [1.0]), ([1.0], [float("inf")])],
)  # fmt: skip
def test_results_that_differ_are_an_error_that_names_the_pair(
    defect: list[float], twin: list[float]
) -> None:
    with pytest.raises(Mismatch, match="^x: "):
        a_pair(torch.tensor(defect), torch.tensor(twin)).compare()


def test_results_within_the_tolerance_agree() -> None:
    a_pair(torch.tensor([1.0, 2.2]), torch.tensor([1.0, 2.4])).compare()
    a_pair(torch.tensor([7]), torch.tensor([7]), 0).compare()


def test_a_pair_that_fails_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)

    def broken() -> Pair:
        raise RuntimeError("no such kernel")

    good, bad = torch.tensor([1.0]), torch.tensor([2.0])
    makers = {
        "broken": broken,
        "good": lambda: a_pair(good, good),
        "bad": lambda: a_pair(good, bad),
    }
    pairs, failed = checked_pairs(list(makers), makers)
    assert len(pairs) == 1
    assert [row["name"] for row in failed] == ["broken", "bad"]
    assert "no such kernel" in failed[0]["reason"]
    told = capsys.readouterr().err
    assert "error: the pair broken is left out" in told
    assert "error: the pair bad is left out: Mismatch" in told


INTERPRETED = """
import torch
from nsight_prof.targets.defects import second_triton
second_triton.BLOCK = 32
x, (one, other) = torch.randn(3, 256).bfloat16(), torch.zeros(2, 3)
second_triton.by_rows(x, one)
second_triton.by_parts(x, other, 4)
for found in (one, other):
    torch.testing.assert_close(found, x.float().exp().sum(1))
"""


def test_the_triton_kernels_add_up_exponentials(root: Path) -> None:
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}  # read when triton is imported
    command = [sys.executable, "-c", INTERPRETED]
    subprocess.run(command, check=True, cwd=root, env=environment)


@pytest.mark.parametrize("name", ["exp_sums_program_per_row", "exp_sums_programs_per_row"])
def test_the_triton_kernels_compile_for_an_h200(name: str) -> None:
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from nsight_prof.targets.defects import second_triton

    kernel = getattr(second_triton, name)
    kinds = {"x_ptr": "*bf16", "out_ptr": "*fp32", "columns": "i32", "part": "i32"}
    signature = {key: kinds.get(key, "constexpr") for key in kernel.arg_names}
    source = ASTSource(kernel, signature, constexprs={"BLOCK": second_triton.BLOCK})
    options = {"num_warps": 8, "enable_fp_fusion": True}
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert "ld.global" in made.asm["ptx"]
    assert "atom" in made.asm["ptx"] or "red.global" in made.asm["ptx"]


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
