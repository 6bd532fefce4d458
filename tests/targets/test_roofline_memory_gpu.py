"""What the kernels of the memory roofs leave in memory, against torch, on a real GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from nsight_prof.targets.harness import Setup, Unsupported, l2_bytes
from nsight_prof.targets.roofline import latency, memory_dram, memory_l2_private
from nsight_prof.targets.roofline.memory_dram import FACTOR, SHAPES, Bulk, Shape
from nsight_prof.targets.roofline.memory_kernels import MIB, filled

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

if not torch.cuda.is_available():
    pytest.skip("torch sees no CUDA device", allow_module_level=True)

SIZE = 24 * MIB
SHAPED = [
    pytest.param(kind, shape, id=f"{kind}-{shape.name}")
    for kind, shapes in SHAPES.items()
    for shape in shapes
    if kind != "read"
]


def setup(data: str = "normal") -> Setup:
    device = torch.device("cuda", torch.cuda.current_device())
    return Setup(device, 1, data, 0, l2_bytes(device))


def run(kind: str, shape: Shape | Bulk, data: str) -> tuple[list[Any], Any]:
    """Run a stream over SIZE bytes; return what it read and what it wrote."""
    given = setup(data)
    reads = [filled(given, SIZE, i) for i in range(memory_dram.STREAMS[kind][0])]
    out = torch.full((SIZE // 4,), math.nan, device=given.device)
    launch = memory_dram._launch_bulk if isinstance(shape, Bulk) else memory_dram._launch
    try:
        call = launch(given, kind, shape, SIZE, reads, [out])  # type: ignore[arg-type]
    except Unsupported as error:
        pytest.skip(str(error))
    call()
    torch.cuda.synchronize()
    return reads, out


@pytest.mark.parametrize("data", ["normal", "zeros"])
@pytest.mark.parametrize(("kind", "shape"), SHAPED)
def test_a_stream_writes_all_of_what_it_should(kind: str, shape: Shape | Bulk, data: str) -> None:
    reads, out = run(kind, shape, data)
    if kind == "copy":
        assert torch.equal(out, reads[0])
    elif kind == "scale":
        assert torch.equal(out, reads[0] * FACTOR)
    elif kind == "triad":
        expected = reads[0].double() + FACTOR * reads[1].double()
        assert torch.allclose(out.double(), expected, rtol=1e-6, atol=1e-6)
    elif data == "zeros":
        assert not out.any()
    else:
        assert torch.isfinite(out).all()
        assert len(out[:4096].unique()) > 2048


@pytest.mark.parametrize("blocks", [1, 2])
def test_warps_with_lines_of_their_own_copy_all_and_leave_no_ticket(
    monkeypatch: pytest.MonkeyPatch, blocks: int
) -> None:
    made: list[Any] = []

    def kept(make: Callable[..., Any], *args: Any) -> Any:
        made.append(make(*args))
        return made[-1]

    for name in ("filled", "empty", "zeroed"):
        make = getattr(memory_l2_private, name)
        monkeypatch.setattr(memory_l2_private, name, partial(kept, make))
    point = memory_l2_private.Own("copy", SIZE, blocks)
    call = memory_l2_private._launch(point, setup(), 0)
    out, data, drawn = made
    for _ in range(3):
        out.fill_(math.nan)
        call()
        torch.cuda.synchronize()
        assert torch.equal(out, data)
        assert not drawn.any()


def test_the_latency_of_each_line_is_measured_from_each_sm() -> None:
    found = latency.line_latencies(setup())
    properties = torch.cuda.get_device_properties(0)
    assert found.shape == (properties.multi_processor_count, latency.LINES)
    assert (found > 0).all()
    assert (found < 1e-4).all()
