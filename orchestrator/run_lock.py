"""Chooses the folder of a run and holds it against a second run."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TextIO

from nsight_prof.orchestrator.process import end_leftovers
from nsight_prof.parsers.errors import StepFailed, UsageError
from nsight_prof.parsers.roofs_file import ROOFS_FILE
from nsight_prof.parsers.run_dir import (
    MANIFEST,
    REPORT,
    STEPS,
    TABLES,
    VARIANTS,
    RunDir,
    read_manifest,
)

LOCK = ".lock"
RUNS = Path("runs")


def new_folder(recipe_name: str, out: Path | None, force: bool) -> Path:
    """Return the folder of a new run: `out`, or runs/<recipe>-<time>; it exists afterwards.

    Raises:
        UsageError: `out` holds something and `force` is not given.
    """
    if out is None:
        return _default_folder(recipe_name)
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file", "name a folder that does not exist yet")
    held = [path for path in out.iterdir() if path.name != LOCK] if out.is_dir() else []
    if held and not force:
        hint = (
            f"continue it with --resume {out}, overwrite it with --force, or choose another --out"
            if (out / MANIFEST).is_file()
            else "choose another --out, or write into it all the same with --force"
        )
        raise UsageError(f"--out {out} is not empty", hint)
    out.mkdir(parents=True, exist_ok=True)
    return out


def clear(folder: Path) -> None:
    """Remove what an earlier run left in `folder`, and nothing else."""
    for step in folder.glob(f"**/{STEPS}/*.partial"):
        end_leftovers(step)
    for name in (STEPS, TABLES, REPORT, VARIANTS):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (MANIFEST, ROOFS_FILE):
        (folder / name).unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` for one run; the kernel lets go of it when the process ends, however it ends.

    Raises:
        UsageError: another run holds it.
    """
    path = folder / LOCK
    with path.open("a+", encoding="utf-8") as stream:
        if not _hold(stream, path):
            stream.seek(0)
            raise UsageError(
                f"another prof (process {stream.read().strip() or 'unknown'}) is writing {folder}",
                "wait for it, or choose another --out",
            )
        stream.truncate(0)
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def writing(run: Path) -> Iterator[None]:
    """Hold a run whose tables or report are made again, and the sweep that it is a variant of.

    Raises:
        UsageError: another prof writes there, or it is no run.
        StepFailed: nothing can be written there.
    """
    read_manifest(RunDir(run))
    sweep = run.absolute().parent.parent
    held = [sweep] if run.absolute().parent.name == VARIANTS else []
    with ExitStack() as stack:
        for folder in (*held, run):
            if folder is run or (folder / MANIFEST).is_file():
                try:
                    stack.enter_context(locked(folder))
                except OSError as error:
                    raise StepFailed(
                        f"{folder} cannot be written: {error.strerror or error}",
                        "copy the run to a folder that you may write to, and take the copy",
                    ) from error
        yield


def _hold(stream: TextIO, path: Path) -> bool:
    """Lock the file, unless another holds it or has just removed it under our hands."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return path.exists() and os.path.samestat(os.fstat(stream.fileno()), path.stat())


def _default_folder(recipe_name: str) -> Path:
    """Make runs/<recipe>-<time>, with a number where two runs start in one second."""
    stem = f"{recipe_name}-{datetime.now():%Y%m%d-%H%M%S}"
    RUNS.mkdir(exist_ok=True)
    number = 1
    while True:
        folder = RUNS / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder
