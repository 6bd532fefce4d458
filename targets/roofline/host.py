"""Roofs of the host: copies over PCIe or NVLink, copies on the device, and kernel launches.

    python roofline/host.py --only h2d

Copies are those that torch's `copy_` makes (cudaMemcpyAsync), one after another as a program would
start them. A launch is the driver's cuLaunchKernel called from Python through cuda.bindings; that
of a graph's node is the slope of t(n) over graphs of n empty kernels, and its intercept is what
replaying any graph costs.
"""

from __future__ import annotations

import runpy
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

if not __package__:  # run as a file
    runpy.run_path(str(Path(__file__).resolve().parents[1] / "standalone.py"))
from nsight_prof.targets.harness import (
    Call,
    Case,
    CudaModule,
    Roof,
    Setup,
    Unsupported,
    Work,
    is_cuda,
    run_target,
)
from nsight_prof.targets.harness.batches import capture

SIZES = {"4k": 4 << 10, "64k": 64 << 10, "1m": 1 << 20, "16m": 16 << 20, "512m": 512 << 20}
DEVICE_SIZES = SIZES | {"4g": 4 << 30}
"""On the device 512 MiB take a quarter of a millisecond, of which the start is still a part."""
ROOF_FROM = 512 << 20
"""Copies from this size on are candidates for the roof; smaller ones show the cost of a start."""
CPU_SIZES = {"4k": 4 << 10}
BLOCK = 1 << 20
EMPTY = 'extern "C" __global__ void empty() {}'
LAUNCHES = 400
"""Launches timed together: fewer than the queue of a stream holds (1,024), or the host waits."""
SAMPLES = 30
GRAPH_NODES = (1, 16, 128, 512)
GRAPH_TRIES = 3


def cases(args: Namespace) -> Iterator[Case]:
    """Give copies of all sizes, then launches."""
    sizes, device_sizes = SIZES, DEVICE_SIZES
    if not is_cuda(args.device):
        sizes = device_sizes = CPU_SIZES
    for name, size in sizes.items():
        for direction in ("h2d", "d2h"):
            for memory in ("pinned", "pageable"):
                yield host_copy(direction, memory, name, size)
    for name, size in device_sizes.items():
        yield device_copy(name, size)
    yield from launches()


def host_copy(direction: str, memory: str, name: str, size: int) -> Case:
    """Return the case of copies between host and device.

    Args:
        direction: "h2d" or "d2h".
        memory: of the host: "pinned" or "pageable".
        name: of the size, for the case's name.
        size: bytes.
    """
    kind = f"{direction}-{memory}"
    return Case(
        name=f"host/{direction}/{memory}/{name}",
        operation=f"{direction.upper()} copy, {memory}",
        prepare=partial(_host_calls, direction, memory, size),
        work=Work(bytes=float(size)),
        params={"bytes": size, "memory": memory},
        level="host",
        modes=("hot",),
        roof=Roof("host", kind) if size >= ROOF_FROM else None,
        launch="eager",
        counted=False,
    )


def device_copy(name: str, size: int) -> Case:
    """Return the case of a copy on the device: `size` bytes read and as many written."""
    return Case(
        name=f"host/d2d/{name}",
        operation="D2D copy (cudaMemcpy)",
        prepare=partial(_device_calls, size),
        work=Work(bytes=2.0 * size),
        footprint_bytes=2.0 * size,
        params={"bytes": size},
        level="dram",
        roof=Roof("host", "d2d-copy") if size >= ROOF_FROM else None,
        launch="eager",
        counted=False,
    )


def launches() -> Iterator[Case]:
    """Give the cases of launches: by the driver, by torch, and of a graph."""
    empty = {"kernel": "empty"}
    yield Case(
        name="host/launch/driver",
        operation="kernel launch (driver)",
        prepare=_empty_calls,
        work=Work(launches=1),
        params=empty | {"through": "cuda.bindings"},
        level="host",
        modes=("hot",),
        roof=Roof("host", "launch"),
        launch="eager",
        samples=launch_samples,
        counted=False,
    )
    yield Case(
        name="host/launch/torch",
        operation="kernel launch (torch op)",
        prepare=_torch_calls,
        work=Work(launches=1),
        params={"kernel": "add_ of one element", "through": "torch"},
        level="host",
        modes=("hot",),
        launch="eager",
        counted=False,
    )
    for part, operation, roof in (
        ("node", "kernel in a graph", Roof("host", "launch-graph")),
        ("replay", "graph replay, without its kernels", None),
    ):
        yield Case(
            name=f"host/launch-graph/{part}",
            operation=operation,
            prepare=_empty_calls,
            work=Work(launches=1),
            params=empty | {"fit": "t(n) over " + " ".join(map(str, GRAPH_NODES)) + " kernels"},
            level="host",
            modes=("hot",),
            roof=roof,
            samples=partial(graph_samples, part),
            counted=False,
        )


def _host_calls(direction: str, memory: str, size: int, setup: Setup) -> Sequence[Call]:
    import torch

    if not is_cuda(setup.device):
        raise Unsupported("a copy between host and device needs a CUDA device")
    host = _bytes(torch, size, "cpu")
    if memory == "pinned":
        host = host.pin_memory()
    device = torch.empty(size, dtype=torch.uint8, device=setup.device)
    to, source = (device, host) if direction == "h2d" else (host, device)
    # From pinned memory a copy can run while the host goes on; from pageable it cannot.
    return [partial(to.copy_, source, non_blocking=memory == "pinned")] * setup.copies


def _device_calls(size: int, setup: Setup) -> Sequence[Call]:
    import torch

    pairs = [
        (
            torch.empty(size, dtype=torch.uint8, device=setup.device),
            _bytes(torch, size, setup.device),
        )
        for _ in range(setup.copies)
    ]
    return [partial(to.copy_, source, non_blocking=True) for to, source in pairs]


def _bytes(torch: Any, size: int, device: Any) -> Any:
    """Return random bytes; a block of them again and again, because making them takes long."""
    block = torch.randint(256, (min(size, BLOCK),), dtype=torch.uint8, device=device)
    return block.repeat(size // len(block))


def _torch_calls(setup: Setup) -> Sequence[Call]:
    import torch

    one = torch.zeros(1, device=setup.device)
    return [partial(one.add_, 1.0)]


def _empty_calls(setup: Setup) -> Sequence[Call]:
    if not is_cuda(setup.device):
        raise Unsupported("launches need a CUDA device")
    return [CudaModule(EMPTY).function("empty").bind(1, 32, [])]


def launch_samples(setup: Setup) -> list[float]:
    """Return the host's seconds for one launch of an empty kernel, of many back to back."""
    import torch

    if not is_cuda(setup.device):
        raise Unsupported("launches need a CUDA device")
    launch = CudaModule(EMPTY).function("empty").bind(1, 32, []).bare()
    found = []
    for number in range(SAMPLES + 1):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in repeat(None, LAUNCHES):
            launch()
        found.append((time.perf_counter() - begin) / LAUNCHES)
        if number == 0:
            found.clear()  # the first round loads the kernel
    torch.cuda.synchronize()
    return found


def graph_samples(part: str, setup: Setup) -> list[float]:
    """Return the slope ("node") or the intercept ("replay") of t(n) in seconds, many times.

    t(n) is the host's time from replaying a graph of n empty kernels to its end.
    """
    import torch

    (call,) = _empty_calls(setup)
    call()
    graphs = [capture([call] * nodes) for nodes in GRAPH_NODES]
    samples = []
    for number in range(SAMPLES + 1):
        times = [min(_replay(torch, graph) for _ in range(GRAPH_TRIES)) for graph in graphs]
        intercept, slope = fit(GRAPH_NODES, times)
        if number:  # the first round loads the graphs
            samples.append(slope if part == "node" else intercept)
    return samples


def _replay(torch: Any, graph: Any) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    graph.replay()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def fit(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Return intercept and slope of the least-squares line through points."""
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    return mean_y - slope * mean_x, slope


def main(argv: list[str] | None = None) -> int:
    """Measure the roofs of the host alone."""
    return run_target("roofline", cases, argv, description=__doc__)


if __name__ == "__main__":
    sys.exit(main())
