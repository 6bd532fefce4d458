"""Where the records of a target go."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def output(path: str | None) -> Iterator[TextIO]:
    """Give the stream of `--out`: a new file, or stdout where none or "-" is named.

    Raises:
        OSError: the file cannot be written.
    """
    if path is None or path == "-":
        yield sys.stdout
        return
    with open(path, "w", encoding="utf-8") as stream:
        yield stream
