"""The machine of fakes of the orchestrator's tests, and a small disk, for faults."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.orchestrator.conftest import lab, watcher, write

__all__ = ["lab", "watcher", "write"]


@pytest.fixture
def small(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of 256 KiB, or as the test says, where this machine lets it mount one."""
    place = tmp_path / "small"
    place.mkdir()
    size = f"size={getattr(request, 'param', 256)}k"
    argv = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(place)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no mount here: {error}")
    if done.returncode:
        pytest.skip(f"no mount here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
