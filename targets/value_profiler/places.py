"""Where in a program's own code an operator is called."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

from nsight_prof.targets.line_timer.sitecustomize import LIBRARY

FRAMES = 32
"""Frames of own code that are kept, innermost first."""
WALKED = 400
OPTIMIZER = f"{os.sep}torch{os.sep}optim{os.sep}"
RECORDER = (f"{Path(__file__).parent}{os.sep}", str(Path(__file__).parents[1] / "under_torch"))
Place = tuple[str, str, int]
"""File, function and line."""
Stack = tuple[Place, ...]


class Places:
    """Walks stacks; a code object is looked at once."""

    def __init__(self, script: Path, thread: int) -> None:
        """`thread` is that of the program: engines that call its code have no frame before it."""
        self._folder, self._thread = f"{script.absolute().parent}{os.sep}", thread
        self._codes: dict[int, tuple[CodeType, str, bool]] = {}
        self._of_task: tuple[int, Stack] = (-1, ())

    def here(self, task: int) -> tuple[Stack, bool]:
        """Return own frames, innermost first, and whether a step of an optimizer is among them.

        `task`: number of the backward pass that runs, else -1. Its threads have no frame of who
        called it: that stands where it called.
        """
        found, optimizer = self._walk(sys._getframe(2))
        if task >= 0 and threading.get_ident() != self._thread:
            if self._of_task[0] != task:
                frame = sys._current_frames().get(self._thread)
                self._of_task = task, self._walk(frame)[0]
            found += self._of_task[1]
        return found[:FRAMES], optimizer

    def _walk(self, frame: FrameType | None) -> tuple[Stack, bool]:
        found: list[Place] = []
        optimizer = False
        for at in _outwards(frame):
            code = at.f_code
            known = self._codes.get(id(code))
            if known is None:  # the code is kept, so that no other object gets its id
                known = self._codes[id(code)] = (code, *self._of_file(code.co_filename))
            if known[1]:
                found.append((known[1], code.co_name, at.f_lineno))
                if len(found) == FRAMES:
                    break
            optimizer = optimizer or known[2]
        return tuple(found), optimizer

    def _of_file(self, file: str) -> tuple[str, bool]:
        """Return the path of a file of own code, else "", and whether it is of torch.optim.

        A script that is itself in a folder of packages is own code, with the files beside it.
        """
        path = os.path.abspath(file) if not file.startswith("<") else file
        inner = path[len(self._folder) - 1 :] if path.startswith(self._folder) else path
        is_own = not LIBRARY.search(inner) and not path.startswith(RECORDER)
        return path if is_own else "", OPTIMIZER in path


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(WALKED):
        if frame is None:
            return
        yield frame
        frame = frame.f_back
