"""No file that prof writes, and none that is committed, holds the environment of a process."""

import lzma
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.imports.importing import import_files
from nsight_prof.orchestrator.system.export import export_sqlite
from nsight_prof.orchestrator.system.recorded_environment import drop_environments
from nsight_prof.parsers.errors import ArtifactUnreadable, NoKernels

ROOT = Path(__file__).resolve().parents[2]
# Variables that every process of a Unix machine has, behind what separates them in a block.
NAMES = (b"PATH", b"HOME", b"PWD", b"LOGNAME", b"LD_LIBRARY_PATH", b"USER", b"SHELL")
BLOCK = re.compile(rb"[\0;\"](?:" + b"|".join(NAMES) + rb")=")


def holds_block(data: bytes) -> bool:
    """Tell whether there is an environment; a pattern alone looks at each byte of 100 MB anew."""
    return any(name + b"=" in data for name in NAMES) and BLOCK.search(data) is not None


def blocks(folder: Path) -> list[str]:
    """Return the files of a folder that hold an environment."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [
        path.relative_to(folder).as_posix()
        for path in files
        if holds_block(lzma.open(path).read() if path.suffix == ".xz" else path.read_bytes())
    ]


def exports(folder: Path) -> list[Path]:
    return sorted((folder / "nsys").rglob("*.sqlite"))


def test_no_fixture_holds_an_environment() -> None:
    assert blocks(ROOT / "tests/fixtures") == []


def test_no_import_of_a_real_export_holds_an_environment(
    real_exports: Path, tmp_path: Path
) -> None:
    had = 0
    for number, export in enumerate(exports(real_exports)):
        had += holds_block(export.read_bytes())
        try:
            run = import_files([export], tmp_path / str(number))
        except (NoKernels, ArtifactUnreadable):
            continue
        assert blocks(run.path) == [], export
        before, after = rows(export), rows(run.path / "steps/1-trace/trace.sqlite")
        lost = {table: before[table] - after[table] for table in before}
        assert {table for table, gone in lost.items() if gone} <= {
            "StringIds", "TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE"
        }, export  # fmt: skip
        # Nothing but blocks, and each string keeps its row.
        assert all(b"\0" in value for _, value in lost["StringIds"]), export
        assert {n for n, _ in before["StringIds"]} == {n for n, _ in after["StringIds"]}, export
    assert had > 8  # the search finds what is there


def rows(sqlite: Path) -> dict[str, set[Any]]:
    """Return all rows of all tables."""
    with closing(sqlite3.connect(sqlite)) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        database.text_factory = bytes
        return {name: set(database.execute(f'SELECT * FROM "{name}"')) for (name,) in names}


@pytest.fixture
def strings(tmp_path: Path) -> Any:
    """Makes an export with these strings, of which the NVTX ranges `named` are called by theirs."""

    def make(*values: str, named: tuple[int, ...] = ()) -> Path:
        path = tmp_path / "trace.sqlite"
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
            database.execute("CREATE TABLE NVTX_EVENTS (start INTEGER, textId INTEGER)")
            database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(values))
            database.executemany("INSERT INTO NVTX_EVENTS VALUES (5, ?)", [(n,) for n in named])
            database.commit()
        return path

    return make


def left(path: Path) -> dict[int, str]:
    with closing(sqlite3.connect(path)) as database:
        return dict(database.execute("SELECT id, value FROM StringIds"))


def test_a_process_with_one_variable_leaves_no_secret_and_a_range_keeps_its_name(
    strings: Any,
) -> None:
    path = strings("ONLY_TOKEN=solitary99", "batch=8", "A=1\0B=precious", "kernel", named=(1,))
    drop_environments(path)
    assert left(path) == {0: "", 1: "batch=8", 2: "", 3: "kernel"}
    assert b"solitary99" not in path.read_bytes()
    assert b"precious" not in path.read_bytes()


def test_what_was_deleted_before_is_gone_from_the_free_pages_too(strings: Any) -> None:
    path = strings("kernel", "A=1\0B=" + "precious" * 2000)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA secure_delete = OFF")
        database.execute("DELETE FROM StringIds WHERE id = 1")
        database.commit()
    assert b"precious" in path.read_bytes()
    drop_environments(path)
    assert b"precious" not in path.read_bytes()


def test_a_damaged_export_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "trace.sqlite"
    path.write_bytes(b"SQLite format 3\0" + bytes(200))
    with pytest.raises(ArtifactUnreadable, match="trace.sqlite is damaged"):
        drop_environments(path)


def test_the_environment_of_a_real_nsys_session_reaches_no_file_of_the_run(
    tmp_path: Path, nsight: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a process beside the traced one, too; the report itself holds it and is not kept."""
    from nsight_prof.orchestrator.system.discover import find_nsys
    from nsight_prof.orchestrator.system.process import ask

    path = f"{nsight}:/usr/bin:/bin"
    monkeypatch.setenv("PATH", path)
    nsys = find_nsys({"PATH": path}).program
    options = ["--trace=nvtx", "--sample=none", "--cpuctxsw=none", f"--output={tmp_path}/t"]
    script = (
        f"ONLY_TOKEN=solitary99 sleep 20 & {nsys} profile {' '.join(options)} /bin/true; kill %1"
    )
    ask(["bash", "-c", script], env={"PATH": path, "MY_HABIT": "coffee-at-nine"}, timeout_s=100.0)
    out = tmp_path / "run"
    out.mkdir()
    export_sqlite(tmp_path / "t.nsys-rep", out / "trace.sqlite")
    written = (out / "trace.sqlite").read_bytes()
    assert b"solitary99" not in written
    assert b"coffee-at-nine" not in written
    assert blocks(out) == []


def test_a_report_that_is_asked_for_is_kept_for_the_user_alone_and_says_what_it_holds(
    lab: Any,
) -> None:
    lab.run(lab.recipe(counters__enabled=False, trace__keep_report=True))
    report = lab.out / "steps/1-trace/trace.nsys-rep"
    assert report.stat().st_mode & 0o777 == 0o600
    assert any("environment variables of all" in w for w in lab.manifest.step("trace").warnings)


def test_a_capture_that_cannot_be_exported_is_kept_and_says_what_it_holds(lab: Any) -> None:
    lab.fake(FAKE_NSYS="export-fails")
    with pytest.raises(ArtifactUnreadable):
        lab.run(lab.recipe(counters__enabled=False))
    assert (lab.out / "steps/1-trace.failed-1/trace.nsys-rep").is_file()
    assert any("delete it before you share" in w for w in lab.manifest.step("trace").warnings)


def test_a_replay_takes_no_report_along(lab: Any) -> None:
    recipe = lab.recipe(counters__enabled=False, trace__keep_report=True)
    lab.run(recipe)
    lab.run(recipe, replay=lab.out, out=lab.folder / "again")
    assert (lab.out / "steps/1-trace/trace.nsys-rep").is_file()
    assert not list((lab.folder / "again").rglob("*.nsys-rep"))
