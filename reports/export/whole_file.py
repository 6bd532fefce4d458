"""Writes a file beside the old one and puts it in its place when it is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nsight_prof.parsers.errors import StepFailed


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give the path to write to; what is there takes the place of `path` at the end.

    Raises:
        StepFailed: the file or its folder cannot be written; what was there stays.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        os.replace(partial, path)
    except OSError as error:
        raise StepFailed(
            f"{path} cannot be written: {error.strerror or error}",
            "free space or choose another folder with -o",
        ) from error
    finally:
        with suppress(OSError):  # the folder may be no folder
            partial.unlink(missing_ok=True)
