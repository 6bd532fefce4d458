"""Opens an nsys SQLite export, packed or not, and blames the file for what goes wrong meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from nsight_prof.parsers.nsys.sqlite.database import HINT, WHAT, Database
from nsight_prof.parsers.reading import reading
from nsight_prof.parsers.run.directory import plain_file


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """Open an nsys SQLite export (.sqlite or .sqlite.xz), strictly read only.

    Raises:
        ArtifactUnreadable: not a whole nsys export, also where that shows only when it is read.
    """
    with (
        plain_file(path) as unpacked,
        reading(path, WHAT, HINT),
        closing(Database(unpacked, path)) as db,
    ):
        yield db
