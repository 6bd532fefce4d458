"""Adds up how likely the vibrations of molecules are at many temperatures, with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def populate(
    stretch, depth, sums, states, coldest, warmer,
    KIND: tl.constexpr, HEATS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    molecule = tl.program_id(0)
    deep = tl.load(depth + molecule)
    for heat in range(HEATS):
        colder = 1.0 / (coldest + warmer * heat)
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, states, BLOCK):
            at = start + tl.arange(0, BLOCK)
            length = tl.load(stretch + molecule * states + at).to(KIND)
            bend = 1 - tl.exp(-length)
            total += tl.exp(-deep * bend * bend * colder).to(tl.float32)
        tl.store(sums + molecule * HEATS + heat, tl.sum(total))


class Gas:
    """Lengths of bonds of many states of each molecule, and how deep its well is."""

    def __init__(self, molecules, states, device):
        self.stretch = torch.rand(molecules, states, device=device) * 3
        self.depth = torch.rand(molecules, device=device) * 4 + 1

    def sums(self, coldest, kind):
        """Return the sum over states at each of eight temperatures."""
        molecules, states = self.stretch.shape
        found = torch.empty(molecules, 8, device=self.depth.device)
        populate[(molecules,)](
            self.stretch, self.depth, found, states, coldest, 0.25,
            KIND=kind, HEATS=8, BLOCK=min(1024, states),
        )  # fmt: skip
        return found


def prepare(device, repaired):
    return Gas(*((8192, 8192) if device == "cuda" else (4, 64)), device)


def run(state, steps, repaired):
    total = torch.zeros((), device=state.depth.device)
    for step in range(steps):
        found = state.sums(0.5 + step % 4 / 8, kind=tl.float32 if repaired else tl.float64)
        total += found.mean()
    return total / steps


main(prepare, run, steps=700)
