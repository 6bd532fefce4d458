"""Puts a folder in the place of another; a reader sees the old one or the new one, never none."""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

AT_FDCWD, RENAME_EXCHANGE = -100, 2


def put_in_place(new: Path, folder: Path) -> None:
    """Let `new` take the place and the name of `folder`, whose content is deleted."""
    old = folder.with_name(f"{folder.name}.old")
    if not folder.exists():
        os.rename(new, folder)
    elif not _exchange(new, folder):
        # A file system without exchange (NFS): a kill between the two renames leaves `….old`.
        shutil.rmtree(old, ignore_errors=True)
        os.rename(folder, old)
        os.rename(new, folder)
    for stale in (new, old):
        shutil.rmtree(stale, ignore_errors=True)


def _exchange(a: Path, b: Path) -> bool:
    """Swap two names in one step of the kernel; False where it cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:  # glibc before 2.28, or no Linux
        return False
    names = (os.fsencode(a), os.fsencode(b))
    return bool(rename(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0)
