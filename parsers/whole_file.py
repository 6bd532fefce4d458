"""Writes files so that a reader sees the old one or the new one, never half of it.

The one place that replaces files. Only regular files are replaced: what a device, a pipe or
/dev/stdout gets is written through, and a link stays one where the user named it.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nsight_prof.parsers.errors import StepFailed

# Names of open files: replacing what they point to would cut off whoever holds it open.
OPEN_FILES = ("/dev/fd/", "/proc/")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give the path to write to; at the end it takes the place of `path`, or of a link there.

    For files of our own folders: what somebody planted there is replaced, never written through.
    A new file has the mode that the umask gives; a replaced one keeps its own.
    """
    partial = _temporary(path)
    try:
        yield partial
        with partial.open("rb") as stream:
            os.fsync(stream.fileno())
        with suppress(FileNotFoundError):
            old = path.lstat()
            if stat.S_ISREG(old.st_mode):
                partial.chmod(stat.S_IMODE(old.st_mode))
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give the path to write to for a file that the user named (-o); see the module.

    Raises:
        StepFailed: the file or its folder cannot be written; what was there stays.
    """
    try:
        if _is_written_through(path):
            with tempfile.TemporaryDirectory(prefix="prof-out-") as folder:
                partial = Path(folder) / "out"
                yield partial
                _write_through(partial, path)
            return
        target = path.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as partial:
            yield partial
    except OSError as error:
        raise StepFailed(
            f"{path} cannot be written: {error.strerror or error}",
            "-o names a file, and its folder may not be one"
            if error.errno in (errno.EISDIR, errno.ENOTDIR, errno.EEXIST)
            else "free space or choose another folder with -o",
        ) from error


def write_atomic(path: Path, text: str) -> None:
    """Write `text` to a file of our own folders; what was no UTF-8 becomes U+FFFD."""
    with whole_file(path) as partial:
        partial.write_bytes(as_utf8(text))


def as_utf8(text: str) -> bytes:
    """Return `text` as UTF-8: bytes of names and variables that were none become U+FFFD."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode("utf-8")


def _temporary(path: Path) -> Path:
    """Make an empty file in the folder of `path`, with the mode that the umask gives."""
    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    return partial


def _is_written_through(path: Path) -> bool:
    if str(path) in ("/dev/stdout", "/dev/stderr") or str(path.absolute()).startswith(OPEN_FILES):
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode) and not path.is_dir()
    except FileNotFoundError:
        return False


def _write_through(source: Path, path: Path) -> None:
    # Appended: `>> log` has given us a file with something in it.
    target = os.open(path, os.O_WRONLY | os.O_APPEND)
    with source.open("rb") as complete, os.fdopen(target, "wb") as stream:
        shutil.copyfileobj(complete, stream, 1 << 20)
