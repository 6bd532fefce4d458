"""The third set of planted defects: do both programs of a pair compute the same, and what?"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.targets.defects.pair import SETS, Pair, plans
from nsight_prof.targets.defects.run import parse_arguments

torch = pytest.importorskip("torch")
from nsight_prof.targets.defects import parts, third, third_kernels, third_torch  # noqa: E402
from nsight_prof.targets.defects.own_kernels import source  # noqa: E402
from nsight_prof.targets.harness import Unsupported  # noqa: E402
from nsight_prof.targets.harness.cuda import compile_cubin  # noqa: E402
from tests.targets.on_cpu import KernelOnCpu, OnCpu, compiled  # noqa: E402

RECORDED_RAY_STEPS = third_kernels.RAY_STEPS
FILES = ("third_memory", "third_occupancy", "third_compute")
SMALL_KERNELS = {
    "POINT_STEPS": 1, "VECTORS": 1, "FILTERED": 512, "PLANES": 4, "PLANE_ROWS": 8,
    "PLANE_VECTORS": 256, "SLAB": 4, "TOKENS": 128, "BIASES": 256, "SOURCES": 128, "SLICES": 2,
    "LEFT_OVER": 1, "OPTIONS": 2, "PARTS": 2, "PATHS": 2048, "RAYS": 1, "RAY_STEPS": 8,
    "ANTENNAS": 64, "FRAMES": 4, "SOFTENED_STEPS": 3, "RARE": 5, "BLURRED_ROWS": 2,
    "WEIGHT_STEPS": 1, "ROW_BITS": 5, "ROWS_PER_WARP": 1,
}  # fmt: skip
SMALL_PROGRAMS = {
    "MATRICES": 2, "MATRIX": 64, "SAMPLES": 24, "FEATURES": 34, "PADDED": 40, "OUTPUTS": 16,
    "HEADS": (1, 2, 64, 16), "PARAMETERS": 2048, "GRADIENTS": 1 << 12, "PROJECTED": (32, 16, 24),
    "POSITIONS": 8, "RECURRENCES": 5, "CHANNELS": 256, "LAYERS": 3, "WIDTH": 32, "SQUARE": 64,
    "STEPS": 2, "WORDS": 50, "CHECKED": 1 << 10, "CHECKS": 3,
}  # fmt: skip
IN_TRITON = ("fp32_gemm", "elementwise_chain", "small_kernels")
KERNELS = [make.__name__ for make in third_kernels.MAKERS]
PROGRAMS = [make.__name__ for make in third_torch.MAKERS if make.__name__ not in IN_TRITON]


class Graph:
    """Stands in for a CUDA graph: replays by calling."""

    def __init__(self, step: Callable[[], None]) -> None:
        self.replay = step


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("cpu")
    return {file: compiled(source(file), folder / file) for file in FILES}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sizes that a CPU can do, on a GPU of one SM."""
    for module, sizes in ((third_kernels, SMALL_KERNELS), (third_torch, SMALL_PROGRAMS)):
        for name, value in sizes.items():
            monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(parts, "sm_count", lambda: 1)
    monkeypatch.setattr(third_torch, "graph_of", Graph)
    torch.manual_seed(0)
    with OnCpu():
        yield


def made(name: str) -> tuple[Pair, Any]:
    """Return a pair whose programs were called once each, and what the twin's call returned."""
    pair = third.MAKERS[name]()
    pair.defect()
    return pair, pair.twin()


def mirrored_jacobi(u: Any, *_: Any) -> Any:
    """Return the step by slices of an array whose planes repeat their edges."""
    u = u.double()
    p = torch.nn.functional.pad(u[None], (1, 1, 1, 1), mode="replicate")[0]
    sides = p[:, 1:-1, :-2] + p[:, 1:-1, 2:] + p[:, :-2, 1:-1] + p[:, 2:, 1:-1]
    out = torch.zeros_like(u)
    out[1:-1] = u[1:-1] / 4 + (sides[1:-1] + u[:-2] + u[2:]) / 8
    return out


def forces(bodies: Any, sources: Any, *_: Any) -> Any:
    """Return the sums over all sources, once (the twin's call is the only one)."""
    away = sources[None, :, :3] - bodies[:, None, :3]
    return (away * (sources[:, 3] * ((away**2).sum(-1) + 0.01) ** -1.5)[..., None]).sum(1)


def concordant(values: Any, *_: Any) -> Any:
    """Count pairs by the matrix of all differences."""
    x, y = (values[:, None, i] - values[None, :, i] for i in range(2))
    return ((x * y) > 0).sum()[None] // 2


def filtered(x: Any, taps: Any, *_: Any) -> Any:
    """Return every second value of the correlation of x from 1 on."""
    count = third_kernels.FILTERED
    lines = x[1:].T[:, None].double()
    found = torch.nn.functional.conv1d(lines, taps[None, None].double(), stride=2)
    return found[:, 0, :count].T


def bit_reversed(x: Any, *_: Any) -> Any:
    order = [int(f"{i:012b}"[::-1], 2) for i in range(4096)]
    return x[:, order]


def blurred(image: Any, *_: Any) -> Any:
    weights = torch.tensor([1, 6, 15, 20, 15, 6, 1.0])[None, None] / 64
    padded = torch.nn.functional.pad(image[:, None], (3, 3), mode="replicate")
    return torch.nn.functional.conv1d(padded, weights)[:, 0]


ORACLES: dict[str, Callable[..., Any]] = {
    "uncoalesced_loads": lambda points, centres, *_: torch.cdist(points.T, centres).argmin(1),
    "uncoalesced_stores": bit_reversed,
    "bank_conflicts": filtered,
    "l2_thrashing": mirrored_jacobi,
    "atomics": lambda gradient, *_: gradient.sum(0),
    "tail": forces,
    "imbalance": concordant,
    "shared_limited": blurred,
    "few_blocks": lambda w, scales, *_: w.float() * scales.repeat_interleave(32)[:, None],
    "block_limited": lambda logits, targets, *_: torch.nn.functional.cross_entropy(
        logits.float(), targets.long(), reduction="none"
    ),
}
"""What the programs of a pair compute, by torch's own means, from a kernel's first arguments."""


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_a_pair_compute_the_same_and_what_they_say(
    small: None, libraries: dict[str, Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(
        third_kernels, "kernel", lambda file, name, *options: KernelOnCpu(libraries[file], name)
    )
    pair, arguments = made(name)
    assert pair.name == name
    assert pair.results is not None, "the program itself compares them on the GPU"
    pair.compare()
    if name in ORACLES:
        found = pair.results()[1]
        wanted = ORACLES[name](*arguments).to(found.dtype)
        relative = 1.6e-2 if found.dtype.itemsize == 2 else 1e-4
        torch.testing.assert_close(found, wanted, rtol=relative, atol=1e-4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_torch_compute_the_same(small: None, name: str) -> None:
    pair, _ = made(name)
    assert pair.results is not None
    pair.compare()


def test_values_beyond_the_limit_take_the_series(
    small: None, libraries: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        third_kernels, "kernel", lambda file, name, *options: KernelOnCpu(libraries[file], name)
    )
    pair = third.MAKERS["register_limited"]()
    arguments: Any = pair.defect()
    x, one = arguments[:2]
    rare = x[:, 0] > 8
    assert int(rare.sum()) == third_kernels.RARE
    soft = x / (1 + x.abs())
    torch.testing.assert_close(one[~rare], soft[~rare])
    assert not torch.isclose(one[rare, 0], soft[rare, 0], rtol=1e-3).any()
    for _ in range(2):  # the list is emptied
        pair.twin()
        pair.compare()


def test_a_value_that_is_no_number_stops_both_programs(small: None) -> None:
    pair = third.MAKERS["sync_stalls"]()
    assert pair.results is not None
    for values in pair.results():
        values[7] = float("nan")
    for program in (pair.defect, pair.twin):
        with pytest.raises(FloatingPointError):
            program()


def test_rays_that_miss_their_shape_come_to_a_finite_place(
    small: None, libraries: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All steps of the recorded size: the distance to a shape behind grows with each of them."""
    monkeypatch.setattr(
        third_kernels, "kernel", lambda file, name, *options: KernelOnCpu(libraries[file], name)
    )
    monkeypatch.setattr(third_kernels, "RAY_STEPS", RECORDED_RAY_STEPS)
    pair, arguments = made("divergence")
    pair.compare()
    boxes, shapes, found = arguments[1:4]
    missed = shapes[:, 1].square() + shapes[:, 2].square() > 4 * shapes[:, 3].square()
    for kind in (0, 1):
        behind = found[missed & (boxes == kind)] > 60  # beyond the far side of each shape
        assert behind.any(), "some go on behind the shape"
    assert found.isfinite().all()
    assert found.max() <= RECORDED_RAY_STEPS
    hit = (boxes == 0) & (shapes[:, 1].square() + shapes[:, 2].square() < shapes[:, 3].square() / 2)
    half = (shapes[:, 3].square() - shapes[:, 1].square() - shapes[:, 2].square())[hit].sqrt()
    torch.testing.assert_close(found[hit], shapes[hit, 0] - half, rtol=1e-3, atol=1e-3)


INTERPRETED = """
import torch
from nsight_prof.targets.defects import third_torch
from nsight_prof.targets.defects.third_triton import multiply
from tests.targets.on_cpu import OnCpu
from tests.targets.test_defects_third import IN_TRITON, SMALL_PROGRAMS, Graph
for name, value in SMALL_PROGRAMS.items():
    setattr(third_torch, name, value)
third_torch.graph_of = Graph
torch.manual_seed(0)
with OnCpu():
    for name in IN_TRITON:
        pair = getattr(third_torch, name)()
        pair.defect()
        pair.twin()
        pair.compare()
    a, b, out = torch.randn(3, 1, 64, 64)
    multiply(a, b, out, tf32=False)
    torch.testing.assert_close(out, a @ b, rtol=1e-4, atol=1e-4)
"""


def test_the_triton_kernels_compute_the_same_as_torch(root: Path) -> None:
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}  # read when triton is imported
    subprocess.run([sys.executable, "-c", INTERPRETED], check=True, cwd=root, env=environment)


@pytest.mark.parametrize(
    ("name", "wanted", "unwanted"),
    [
        ("products_ieee", "fma.rn.f32", "mma"),
        ("products_tf32", "mma", "fma.rn.f32"),
        ("momentum_in_one_kernel", "st.global", "mma"),
        ("recurrence_in_one_kernel", "st.global", "mma"),
    ],
)
def test_the_triton_kernels_compile_for_an_h200(name: str, wanted: str, unwanted: str) -> None:
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from nsight_prof.targets.defects import third_triton

    kernel = getattr(third_triton, name)
    sizes = {"TILE": third_triton.TILE, "STEP": third_triton.STEP, "BLOCK": third_triton.CHANNELS}
    kinds = {"n": "i32", "steps": "i32", "channels": "i32", "momentum": "fp32", "rate": "fp32"}
    signature = {
        key: "*fp32" if key.endswith("_ptr") else kinds.get(key, "constexpr")
        for key in kernel.arg_names
    }
    constants = {key: sizes[key] for key, kind in signature.items() if kind == "constexpr"}
    aligned = {(at,): [["tt.divisibility", 16]] for at, kind in enumerate(signature.values())
               if kind in ("*fp32", "i32")}  # fmt: skip
    ptx = triton.compile(
        ASTSource(kernel, signature, constexprs=constants, attrs=aligned),
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": 4, "enable_fp_fusion": True},
    ).asm["ptx"]
    assert wanted in ptx
    assert unwanted not in ptx


@pytest.mark.parametrize(
    ("file", "options"),
    [*((file, ()) for file in FILES),
     ("third_compute", ("-fmad=false",)), ("third_compute", ("-maxrregcount=48",))],
)  # fmt: skip
def test_all_kernels_compile_for_an_h200(file: str, options: tuple[str, ...]) -> None:
    launched = Path(third_kernels.__file__).read_text(encoding="utf-8")
    try:
        cubin = compile_cubin(source(file), (*options, "--gpu-architecture=sm_90a"))
    except Unsupported as error:
        pytest.skip(str(error))
    for name in names_in(file):
        assert name.encode() in cubin
        assert f'"{name}"' in launched, "each is launched"


def names_in(file: str) -> set[str]:
    """Return the names of the kernels of a .cu file, of macros too."""
    text = source(file)
    macros = re.findall(r"#define ([A-Z]+)\(NAME", text)
    made = {
        name for macro in macros for name in re.findall(rf"^{macro}\((\w+)", text, re.MULTILINE)
    }
    plain = re.findall(r"^KERNEL(?: __launch_bounds__\([^)]*\))? (\w+)\(", text, re.MULTILINE)
    return made | set(plain)


def test_every_plan_has_its_programs_and_the_first_sets_names() -> None:
    first, ours = plans("first"), plans("third")
    assert set(ours) == set(third.MAKERS) == set(first)
    for name, plan in ours.items():
        assert plan.expects == first[name].expects, "the same kind of defect"
        assert plan.measure == first[name].measure
        assert len({plans(which)[name].defect for which in SETS}) == len(SETS), "other programs"
        assert plan.defect.endswith(".")
        assert plan.twin.endswith(".")


def test_the_third_set_is_chosen_by_its_name() -> None:
    assert parse_arguments(["--set", "third", "--only", "tail"]).wanted == ["tail"]
