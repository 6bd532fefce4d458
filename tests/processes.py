"""Waits for what processes do, never for a time: the limit of a test ends a wait for ever."""

import time
from pathlib import Path


def is_written(path: Path) -> bool:
    return path.is_file() and path.read_text().endswith("\n")


def written_pid(path: Path) -> int:
    """Wait for a process to write its id and the end of the line; return the id."""
    while not is_written(path):
        time.sleep(0.02)
    return int(path.read_text())


def writes_pid(path: Path, of: str = "os.getpid()") -> str:
    """A statement that writes an id with the end of its line, by which it is known as whole."""
    return f"open({str(path)!r}, 'w').write(f'{{{of}}}\\n')\n"


def gone(pid: int) -> bool:
    """Tell whether a process has ended, collected by its parent or not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def wait_for_end(pid: int) -> None:
    while not gone(pid):
        time.sleep(0.02)
