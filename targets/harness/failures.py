"""What an exception of a case means: out of memory, unsupported here, or failed."""

from __future__ import annotations

import re

from nsight_prof.targets.harness.api import Unsupported

LENGTH = 300
MEMORY = re.compile(
    r"out of memory|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation"
    r"|CUDA_ERROR_OUT_OF_MEMORY|can't allocate memory|not enough memory",
    re.IGNORECASE,
)
UNSUPPORTED = re.compile(
    r"not (?:yet |currently )?(?:implemented|supported|compiled|available)|unsupported"
    r"|NOT_SUPPORTED|only supported|only (?:supports?|works)|is only available|requires compute"
    r"|divisible by|multiples? of|no available kernel|no kernel image|no valid execution plans"
    r"|unable to find an engine|out of resource",
    re.IGNORECASE,
)


def classify(error: BaseException) -> tuple[str, str]:
    """Return the status and the reason of the record of a case that raised.

    Libraries raise RuntimeError for both what they do not support and what went wrong; their words
    tell them apart.
    """
    text = " ".join(str(error).split())[:LENGTH]
    name = type(error).__name__
    if isinstance(error, Unsupported):
        return "unsupported", text or "unsupported"
    if isinstance(error, MemoryError) or "OutOfMemory" in name or MEMORY.search(text):
        return "out-of-memory", text or name
    reason = f"{name}: {text}" if text else name
    unsupported = isinstance(error, NotImplementedError) or "OutOfResources" in name
    if unsupported or UNSUPPORTED.search(text):
        return "unsupported", reason
    return "failed", reason
