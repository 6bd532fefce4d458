"""Makes the tables of a run where they are not those of its captures and of this program."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path

from nsight_prof.parsers.build.predicted_tables import build_predicted
from nsight_prof.parsers.roofs.comm import COMM_ROOFS_FILE
from nsight_prof.parsers.roofs.file import ROOFS_FILE
from nsight_prof.parsers.run.artifacts import check_artifacts
from nsight_prof.parsers.run.directory import STEPS, RunDir, read_manifest, write_manifest
from nsight_prof.parsers.whole_file import write_atomic

MADE_FROM = ".made-from"
"""File in tables/: the hash of what the tables were made from, and of what they were then."""
ALONE = "captures that were not kept"
PARSERS = Path(__file__).resolve().parents[1]


def refresh_tables(run: RunDir) -> None:
    """Make the tables unless they are there, made by this program from the files there are now.

    Files are told apart by size and time, as make does: captures from which tables were made
    already are not hashed again; tables whose captures were not kept stay as they are. Raises as
    `check_artifacts` and `build_tables`.
    """
    stamp = run.tables / MADE_FROM
    with suppress(OSError, UnicodeDecodeError):
        made_from = stamp.read_text(encoding="ascii")
        if made_from in (ALONE, _state(run, list(_facts(run.manifest_path)))):
            return
    check_artifacts(run)
    make_tables(run)


def leave_tables_alone(run: RunDir) -> None:
    """Delete the captures of a run; its tables, which are there, are not made again."""
    manifest = read_manifest(run)
    for record in manifest.steps:
        record.directory, record.files = "", {}
    write_manifest(run, manifest)
    shutil.rmtree(run.path / STEPS)
    write_atomic(run.tables / MADE_FROM, ALONE)


def make_tables(run: RunDir, *, refuse: bool = False) -> None:
    """Make the tables, and note of what; takes and raises what `build_tables` does."""
    # As it is before: a step that another process records meanwhile is not in these tables.
    manifest = list(_facts(run.manifest_path))
    if not build_predicted(run):
        # Takes a while to import, and tables are there as a rule.
        from nsight_prof.parsers.build.run_tables import build_tables

        build_tables(run, refuse=refuse)
    with suppress(OSError):  # without the stamp they are made again, no more
        write_atomic(run.tables / MADE_FROM, _state(run, manifest))


def _state(run: RunDir, manifest: list[str]) -> str:
    """Return the hash of the captures, the tables, and the program that makes one of the other.

    `manifest` are the facts of the manifest that the tables are made from.
    """
    readable = any(run.path.glob(f"{STEPS}/*/*.ncu-rep*"))
    if readable:  # what reads them takes longer to import than others' tables to be made
        from nsight_prof.parsers.ncu import can_read_rep

        readable = can_read_rep()
    digest = hashlib.sha256(f"{_program()} {readable}".encode())
    sources = [run.path / name for name in (ROOFS_FILE, COMM_ROOFS_FILE, STEPS)]
    facts = chain(manifest, *map(_facts, (*sources, run.tables)))
    for fact in facts:
        digest.update(fact.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


@cache
def _program() -> str:
    return hashlib.sha256("".join(_facts(PARSERS)).encode()).hexdigest()


def _facts(path: Path) -> Iterator[str]:
    """Yield name, size and time of a file, or of all files below a folder."""
    found = [path]
    if path.is_dir():
        found = [Path(folder) / name for folder, _, names in os.walk(path) for name in names]
    for file in sorted(found):
        if file.name == MADE_FROM or file.suffix == ".pyc":
            continue
        with suppress(OSError):
            known = file.stat()
            yield f"{file.relative_to(path.parent)} {known.st_size} {known.st_mtime_ns}\n"
