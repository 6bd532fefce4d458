"""How many copies of its buffers a cold case rotates over."""

from __future__ import annotations

import math
from typing import Any

from nsight_prof.targets.harness.device import is_cuda

DISTINCT = 3
"""Between two uses of a buffer, others of this many times the L2 are used: a least-recently-used
cache keeps nothing of it, and neither does one that keeps some lines longer."""
SELF_EVICTING = 16
"""A call that touches this many times the L2 leaves no useful part of it to the next one."""
MEMORY_SHARE = 0.6
"""Of the free device memory that the copies may take; the rest is for workspaces."""
MAX_COPIES = 2048
"""Each copy costs the host some microseconds to make, to call once and to capture."""


def copies_for(footprint: float, l2_bytes: int, free_bytes: float) -> int:
    """Return how many copies of `footprint` bytes a cold case needs, as far as memory allows.

    1 where nothing is touched (pure arithmetic) or where one call flushes the cache by itself.
    """
    if footprint <= 0 or footprint >= SELF_EVICTING * l2_bytes:
        return 1
    wanted = math.ceil(DISTINCT * l2_bytes / footprint) + 1
    room = MEMORY_SHARE * free_bytes / footprint
    return max(1, int(min(wanted, room, MAX_COPIES)))


def shortfall(footprint: float, l2_bytes: int, copies: int) -> str:
    """Return how a cold case is less than cold, "" where it is as cold as it should be."""
    if footprint <= 0 or footprint >= SELF_EVICTING * l2_bytes:
        return ""
    others = (copies - 1) * footprint
    if others >= DISTINCT * l2_bytes:
        return ""
    return (
        f"cold in part only: {copies} copies touch {others / 1e6:.3g} MB between two uses of one, "
        f"{others / l2_bytes:.2g} times the L2 instead of {DISTINCT}"
    )


def free_bytes(device: Any) -> float:
    """Return the free memory of the device in bytes; infinite for a CPU."""
    if not is_cuda(device):
        return math.inf
    import torch

    return float(torch.cuda.mem_get_info(device)[0])
