"""What becomes of memory that was freed while a long trace is read: kept for more, or given back.

Columns of a trace are made and freed all the time, each some megabytes long. The C library (glibc)
gives free memory at the end of its heap back to the system as soon as there are some tens of
megabytes, and the system fills each page with zeros before it hands it out again: up to a twelfth
of the time of a process that imports ranks.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt
_KEPT = 1 << 28  # bytes: twice the columns of a trace of a million launches
_MAPPED = 1 << 25  # bytes from which on memory is the system's: what glibc comes to by itself
_is_kept = False


def keep_freed() -> None:
    """Let this process keep freed memory for what comes next; only glibc can."""
    global _is_kept
    _is_kept = True
    if setting := getattr(ctypes.CDLL(None), "mallopt", None):
        setting(_MMAP_THRESHOLD, _MAPPED)  # no more adjusted, once either is set
        setting(_TRIM_THRESHOLD, _KEPT)


def give_back() -> None:
    """Give the system what is free, also between what is used; only glibc can.

    Not in a process that keeps it: the next columns would wait for the same pages.
    """
    if not _is_kept and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)
