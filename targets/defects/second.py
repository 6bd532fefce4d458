"""The second set of pairs: the same kinds of defects as the first, in other programs."""

from __future__ import annotations

from collections.abc import Callable

from nsight_prof.targets.defects import second_kernels, second_torch
from nsight_prof.targets.defects.pair import Pair

MAKERS: dict[str, Callable[[], Pair]] = {
    make.__name__: make for make in (*second_kernels.MAKERS, *second_torch.MAKERS)
}
"""Makes a pair and allocates its tensors, by the pair's name."""
