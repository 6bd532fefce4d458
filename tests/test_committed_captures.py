"""What the files of captures/ hold: each of them is unpacked once for all tests that look."""

import lzma
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from nsight_prof.parsers.run.directory import most_unpacked
from tests.faults.test_environments import holds_block

pytestmark = pytest.mark.every_run


@dataclass(frozen=True)
class Content:
    """How many bytes a file holds, unpacked, and what of the host is among them."""

    path: Path
    size: int
    has_environment: bool
    of_the_host: list[bytes]


def content(path: Path) -> Content:
    data = path.read_bytes()
    data = lzma.decompress(data) if path.suffix == ".xz" else data
    words = [word for word in (b"/home/", b"/Users/", b"HOSTNAME", b"TOKEN") if word in data]
    # A word that ends with root: sympy/polys/rootoftools.py is the path of a library.
    words += re.findall(rb"/root\b", data)
    return Content(path, len(data), holds_block(data), words)


@pytest.fixture(scope="module")
def contents(root: Path) -> list[Content]:
    paths = [path for path in (root / "captures").rglob("*") if path.is_file()]
    assert paths
    return [content(path) for path in paths]


def test_no_committed_capture_holds_an_environment(contents: list[Content]) -> None:
    assert [found.path for found in contents if found.has_environment] == []


def test_recorded_runs_carry_nothing_of_the_host(contents: list[Content]) -> None:
    assert {found.path: found.of_the_host for found in contents if found.of_the_host} == {}


def test_real_recordings_are_far_from_the_limits(contents: list[Content]) -> None:
    for found in contents:
        if found.path.suffix == ".xz":
            assert found.size < most_unpacked(found.path) / 4
