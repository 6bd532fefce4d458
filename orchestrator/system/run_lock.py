"""Chooses the folder of a run and holds it against a second run."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TextIO

from nsight_prof.orchestrator.system.process import POLL_SECONDS, end_leftovers
from nsight_prof.parsers.errors import ProfError, StepFailed, UsageError
from nsight_prof.parsers.roofs.comm import COMM_ROOFS_FILE
from nsight_prof.parsers.roofs.file import ROOFS_FILE
from nsight_prof.parsers.run.directory import (
    MANIFEST,
    RANKS,
    REPORT,
    STEPS,
    TABLES,
    VARIANTS,
    RunDir,
    read_manifest,
    refuse_bytes,
)

LOCK = ".lock"
# What a run puts into its folder, and what follows the name of a step in that of another try.
RUN_FILES = frozenset({MANIFEST, ROOFS_FILE, COMM_ROOFS_FILE, STEPS, TABLES, REPORT, VARIANTS})
TRY = r"(?:\.partial|\.(?:failed|replaced)-\d+)?"
RUNS = Path("runs")
TURN_S = 600.0
"""Time that another process may hold a folder, as long as it makes tables."""


def new_folder(recipe_name: str, out: Path | None, force: bool) -> Path:
    """Return the folder of a new run: `out`, or runs/<recipe>-<time>; it exists afterwards.

    Raises:
        UsageError: `out` holds something and `force` is not given, or what it holds is not of a
            run and would be replaced, or its path is not UTF-8.
    """
    if out is None:
        return _default_folder(recipe_name)
    refuse_bytes(out)
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file", "name a folder that does not exist yet")
    content = [path for path in out.iterdir() if path.name != LOCK] if out.is_dir() else []
    if content and not force:
        hint = (
            f"continue it with --resume {out}, overwrite it with --force, or choose another --out"
            if (out / MANIFEST).is_file()
            else "choose another --out, or write into it all the same with --force"
        )
        raise UsageError(f"--out {out} is not empty", hint)
    files_of_prof = sorted({path.name for path in content} & RUN_FILES)
    if files_of_prof and not _is_run(out):
        raise UsageError(
            f"--out {out} holds {', '.join(files_of_prof)}, and no run of prof made that",
            "choose another --out: a run would replace it",
        )
    out.mkdir(parents=True, exist_ok=True)
    return out


@contextmanager
def no_empty_folder() -> Iterator[list[Path]]:
    """Take away the folders of a run that was refused before it left anything in them.

    The list is for the folders that are made within; `runs/` goes where it was made here, too.
    """
    created: list[Path] = [] if RUNS.exists() else [RUNS]
    try:
        yield created
    finally:
        for folder in reversed(created):
            _remove_empty(folder)


def _is_run(folder: Path) -> bool:
    try:
        read_manifest(RunDir(folder))
    except ProfError:
        return False
    return True


def clear(folder: Path) -> None:
    """Remove what an earlier run left in `folder`: what its manifest names, and nothing else."""
    run = RunDir(folder)
    if not run.manifest_path.is_file():
        return
    manifest = read_manifest(run)
    for name in manifest.variants:
        clear(folder / VARIANTS / name)
        _remove_empty(folder / VARIANTS / name)
    names = "|".join(re.escape(record.name) for record in manifest.steps)
    of_steps = re.compile(rf"\d+-(?:{names}){TRY}")
    for path in [*folder.glob(f"{STEPS}/*")]:
        if of_steps.fullmatch(path.name):
            end_leftovers(path)
            shutil.rmtree(path, ignore_errors=True)
    for path in (run.tables, run.report):
        shutil.rmtree(path, ignore_errors=True)
    for name in (MANIFEST, ROOFS_FILE, COMM_ROOFS_FILE):
        (folder / name).unlink(missing_ok=True)
    for name in (STEPS, VARIANTS):
        _remove_empty(folder / name)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` for one run; the kernel lets go of it when the process ends, however it ends.

    Raises:
        UsageError: another run holds it.
    """
    path = folder / LOCK
    with _opened(path) as stream:
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
def locked_in_turn(folder: Path) -> Iterator[None]:
    """Hold `folder` once whoever holds it has let go; where no lock can be made, go on.

    Raises:
        UsageError: it is still held after TURN_S.
    """
    begin = time.monotonic()
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(folder))
            except UsageError:
                if time.monotonic() - begin > TURN_S:
                    raise
                time.sleep(POLL_SECONDS)
                continue
            except OSError:
                pass
            break
        yield


@contextmanager
def writing(run: Path) -> Iterator[None]:
    """Hold a run whose tables or report are made again, and the sweep or job that it is part of.

    Raises:
        UsageError: another prof writes there, or it is no run.
        StepFailed: nothing can be written there.
    """
    read_manifest(RunDir(run))
    sweep = run.absolute().parent.parent
    parents = [sweep] if run.absolute().parent.name in (VARIANTS, RANKS) else []
    with ExitStack() as stack:
        for folder in (*parents, run):
            if folder is run or (folder / MANIFEST).is_file():
                try:
                    stack.enter_context(locked(folder))
                except OSError as error:
                    raise StepFailed(
                        f"{folder} cannot be written: {error.strerror or error}",
                        "copy the run to a folder that you may write to, and take the copy",
                    ) from error
        yield


def _opened(path: Path) -> TextIO:
    """Open the lock, which is a file of ours: never what somebody's link points to."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise
        raise _no_lock(path) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _no_lock(path)
    return os.fdopen(handle, "r+", encoding="utf-8")


def _no_lock(path: Path) -> UsageError:
    return UsageError(f"{path} is a link or no file, and not prof's lock", f"remove it: rm {path}")


def _hold(stream: TextIO, path: Path) -> bool:
    """Lock the file, unless another holds it or has just removed it under our hands.

    NFS without locks holds nobody: a job that lies there is reported all the same.
    """
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.ENOLCK:
            raise
    return path.exists() and os.path.samestat(os.fstat(stream.fileno()), path.stat())


def _default_folder(recipe_name: str) -> Path:
    """Make runs/<recipe>-<time>, with a number where two runs start in one second."""
    stem = f"{recipe_name}-{datetime.now():%Y%m%d-%H%M%S}"
    number = 1
    while True:
        folder = RUNS / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if not folder.is_dir():
                raise
            number += 1
        else:
            return folder
