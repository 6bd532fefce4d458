"""What the host does in a CUDA call, by its name."""

from __future__ import annotations

import re

ACTIVITIES = (
    ("waiting", re.compile(r"ynchronize|EventQuery|StreamWait")),
    ("copying", re.compile(r"Memcpy|Memset")),
    ("allocating", re.compile(r"Malloc|Free|MemAlloc|HostAlloc|HostRegister|MemCreate|MemMap")),
    ("launching", re.compile(r"Launch")),
)
OWN_CODE, OTHER_CALL = "program", "other call"


def activity(call: str) -> str:
    """What the host does in a CUDA call, in the program's own code where there is none."""
    if not call:
        return OWN_CODE
    return next((name for name, pattern in ACTIVITIES if pattern.search(call)), OTHER_CALL)
