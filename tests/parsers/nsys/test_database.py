"""Files that are no whole export, and exports that must not change by being read."""

import hashlib
import lzma
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.nsys.trace import open_trace


def refused(path: Path) -> ArtifactUnreadable:
    with pytest.raises(ArtifactUnreadable) as caught, open_trace(path) as trace:
        trace.kernels()
    assert str(path) in caught.value.message
    assert caught.value.hint
    return caught.value


def digest(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "LFS pointer"),
        (b"Time (%),Total Time (ns)\n", "not an SQLite file"),
        (b"SQLite format 3\x00", "truncated"),
    ],
)
def test_a_file_that_is_no_export_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "trace.sqlite"
    path.write_bytes(content)
    assert words in refused(path).message


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "trace.sqlite").message


def test_a_report_is_refused_with_the_export_command(tmp_path: Path) -> None:
    path = tmp_path / "trace.nsys-rep"
    path.write_bytes(b"anything")
    assert "nsys export --type sqlite" in refused(path).hint


def test_a_truncated_export_is_refused(export: Any, tmp_path: Path) -> None:
    path = export.write(tmp_path / "trace.sqlite")
    os.truncate(path, path.stat().st_size - 100)
    assert "is truncated" in refused(path).message


def test_a_damaged_page_is_refused(export: Any, tmp_path: Path) -> None:
    path = export.write(tmp_path / "trace.sqlite")
    data = bytearray(path.read_bytes())
    page = int.from_bytes(data[16:18], "big")
    data[page:] = b"\xff" * (len(data) - page)
    path.write_bytes(data)
    assert "is damaged" in refused(path).message


def test_another_sqlite_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cookies.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE cookies (name TEXT)")
    db.close()
    assert "no nsys export" in refused(path).message


def test_a_null_where_numbers_stand_is_refused(export: Any, tmp_path: Path) -> None:
    path = export.write(tmp_path / "trace.sqlite")
    with sqlite3.connect(path) as db:
        db.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = NULL")
    db.close()
    assert "KERNEL has rows without an integer in gridX" in refused(path).message


def test_reading_leaves_the_folder_as_it_is_even_when_read_only(
    export: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "read only #1 ?x=%20"
    folder.mkdir()
    path = export.write(folder / "trace.sqlite")
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode=WAL")
    db.close()
    before = digest(folder)
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        with open_trace(path) as trace:
            trace.kernels()
            trace.stages()
            trace.api_calls()
            trace.memory_operations()
            trace.gpus()
        assert digest(folder) == before
    finally:
        folder.chmod(0o755)


def test_changes_that_were_not_written_back_are_warned_about(export: Any, tmp_path: Path) -> None:
    path = export.write(tmp_path / "trace.sqlite")
    (tmp_path / "trace.sqlite-wal").write_bytes(b"frames")
    with open_trace(path) as trace:
        assert any("-wal" in warning for warning in trace.warnings)


def test_a_packed_export_is_read(export: Any, tmp_path: Path) -> None:
    path = export.write(tmp_path / "trace.sqlite")
    packed = tmp_path / "trace.sqlite.xz"
    packed.write_bytes(lzma.compress(path.read_bytes()))
    with open_trace(packed) as trace, open_trace(path) as plain:
        assert trace.kernels().equals(plain.kernels())
    packed.write_bytes(packed.read_bytes()[:-30])
    refused(packed)
