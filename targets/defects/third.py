"""The third set of pairs: the same kinds of defects in other programs again, many of them mild."""

from __future__ import annotations

from collections.abc import Callable

from nsight_prof.targets.defects import third_kernels, third_torch
from nsight_prof.targets.defects.pair import Pair

MAKERS: dict[str, Callable[[], Pair]] = {
    make.__name__: make for make in (*third_kernels.MAKERS, *third_torch.MAKERS)
}
"""Makes a pair and allocates its tensors, by the pair's name."""
