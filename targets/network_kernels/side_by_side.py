"""Two kernels at the same time: small grids that fit on the SMs together, and such that do not.

Three kernels: `wide` keeps the FMA pipe of an SM busy with one block, `narrow` a quarter of it,
`copy` moves data through DRAM. Each alone, two one after the other, and two on two streams.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nsight_prof.targets import roofline
from nsight_prof.targets.harness import Call, Case, CudaModule, Setup, Unsupported, Work, is_cuda
from nsight_prof.targets.network_kernels.plan import Plan

FMA_SOURCE = Path(roofline.__file__).with_name("fma_chains.cu")
COPY_SOURCE = Path(__file__).with_suffix(".cu")
UNROLL = 64
"""Links of a chain in one turn of the loop."""
PART_BYTES = 768 << 10
"""A block copies so much: about as long as the others compute."""


@dataclass(frozen=True)
class Kind:
    """A kernel: threads of a block, chains and links of a thread (0: it copies)."""

    threads: int
    chains: int = 0
    links: int = 0

    @property
    def flops(self) -> float:
        """Of a block: 2 for each link of each thread."""
        return 2.0 * self.threads * self.links

    @property
    def bytes(self) -> float:
        """That a block reads and writes."""
        return 0.0 if self.links else 2.0 * PART_BYTES


# An SM does 128 multiply-adds a clock, a link waits 4 clocks for the one before: 131,072 clocks
# each, about 70 us.
KINDS = {
    "wide": Kind(1024, 4, 1 << 14),
    "narrow": Kind(128, 1, 1 << 15),
    "copy": Kind(1024),
}
PAIRS = (
    (("wide", 66), ("wide", 66)),
    (("wide", 132), ("wide", 132)),
    (("wide", 264), ("wide", 264)),
    (("narrow", 132), ("narrow", 132)),
    (("narrow", 132), ("wide", 132)),
    (("wide", 66), ("copy", 66)),
    (("wide", 132), ("copy", 132)),
    (("narrow", 132), ("copy", 132)),
    (("copy", 132), ("copy", 132)),
)
"""Grids: 66 and 66 fill the 132 SMs of a Hopper SXM once."""

Part = tuple[str, int]


def side_by_side_cases(plan: Plan) -> Iterator[Case]:
    """Make the kernels alone, in turn, and on two streams."""
    for part in dict.fromkeys(part for pair in PAIRS for part in pair):
        yield _case("alone", (part,))
    for pair in PAIRS:
        yield _case("in-turn", pair)
        yield _case("together", pair)


def _case(how: str, parts: tuple[Part, ...]) -> Case:
    params: dict[str, str | int] = {"family": "side-by-side", "op": how, "variant": "graph"}
    for number, (kind, grid) in enumerate(parts, 1):
        params |= {f"kernel{number}": kind, f"grid{number}": grid}
        params[f"threads{number}"] = KINDS[kind].threads
    words = "+".join(f"{kind}{grid}" for kind, grid in parts)

    def prepare(setup: Setup) -> list[Call]:
        if not is_cuda(setup.device):
            raise Unsupported("two kernels at the same time need a CUDA device")
        calls = [_call(setup, kind, grid) for kind, grid in parts]
        return [_on_two_streams(*calls) if how == "together" else _in_turn(calls)]

    return Case(
        name=f"side-by-side/{how}/{words}",
        operation=f"{how}: {words}",
        prepare=prepare,
        work=Work(
            flops=sum(grid * KINDS[kind].flops for kind, grid in parts),
            bytes=sum(grid * KINDS[kind].bytes for kind, grid in parts),
        ),
        params=params,
        dtype="fp32",
        level="fp32",
        modes=("hot",),
        counted=False,
    )


def _in_turn(calls: list[Call]) -> Call:
    def run() -> None:
        for call in calls:
            call()

    return run


def _on_two_streams(first: Call, second: Call) -> Call:
    import torch

    side = torch.cuda.Stream()

    def run() -> None:
        current = torch.cuda.current_stream()
        side.wait_stream(current)
        first()
        with torch.cuda.stream(side):
            second()
        current.wait_stream(side)

    return run


@functools.cache
def _fma(chains: int) -> CudaModule:
    options = ("-DREAL=2", f"-DCHAINS={chains}", f"-DUNROLL={UNROLL // chains}")
    return CudaModule(FMA_SOURCE.read_text("utf-8"), options)


def _call(setup: Setup, name: str, grid: int) -> Call:
    """Return the launch of a kernel on buffers of its own."""
    import torch

    kind, device = KINDS[name], setup.device
    random = torch.Generator(device).manual_seed(setup.seed)
    if not kind.links:
        values = grid * PART_BYTES // 4
        source = torch.randn(values, device=device, generator=random)
        kernel = CudaModule(COPY_SOURCE.read_text("utf-8")).function("copy_parts")
        arguments = (source, torch.empty_like(source), PART_BYTES // 16)
        return kernel.bind(grid, kind.threads, arguments)
    numbers = torch.randn((1 + kind.chains, kind.threads), device=device, generator=random).tanh_()
    numbers[0].uniform_(-1.9, -1.5)
    kernel = _fma(kind.chains).function("fma_chains")
    return kernel.bind(
        grid, kind.threads, (numbers, torch.empty_like(numbers), kind.links // UNROLL)
    )
