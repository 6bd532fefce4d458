"""SQLite exports that somebody made to harm: read in bounded time, and never changed."""

import contextlib
import lzma
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.parsers.nsys.stages.paths import DEEPEST
from nsight_prof.parsers.nsys.trace import open_trace

KERNEL, NVTX = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
Change = Callable[[sqlite3.Connection], object]
# What is a number all the same, and an id that older exports leave out.
READ = (("gridX", 2**63 - 1), ("correlationId", 2**63 - 1), ("correlationId", None))
CAPTURE = "captures/h200-known-gemm/steps/1-trace/trace.sqlite.xz"


@pytest.fixture
def export(root: Path, tmp_path: Path) -> Path:
    """The export of a recorded run: 10 launches."""
    path = tmp_path / "trace.sqlite"
    path.write_bytes(lzma.decompress((root / CAPTURE).read_bytes()))
    return path


def change(path: Path, made: Change) -> Path:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        made(db)
    return path


def view(db: sqlite3.Connection, table: str) -> None:
    names = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]
    columns = ", ".join(f'x AS "{name}"' for name in names)
    db.execute(f'ALTER TABLE "{table}" RENAME TO kept')
    db.execute(f'CREATE VIEW "{table}" AS {ENDLESS} SELECT {columns} FROM n')


def triggers(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)")
    db.execute("INSERT INTO META_DATA_CAPTURE VALUES ('ENVIRONMENT_VARIABLE', 'A=b')")
    for number, (verb, table) in enumerate(
        (("DELETE", "META_DATA_CAPTURE"), ("UPDATE", "META_DATA_CAPTURE"), ("UPDATE", "StringIds"))
    ):
        db.execute(
            f"CREATE TRIGGER t{number} BEFORE {verb} ON {table} "
            f"BEGIN SELECT count(*) FROM ({ENDLESS} SELECT x FROM n); END"
        )


def times(path: Path) -> tuple[int, int]:
    with open_trace(path) as trace:
        kernels = trace.kernels()
    return int(kernels["calls"].sum()), int(kernels["total_ns"].sum())


def refused(path: Path, capfd: pytest.CaptureFixture[str], *words: str) -> None:
    before = path.read_bytes()
    for command in (["top-kernels", str(path)], ["import", str(path), "--out", f"{path}.run"]):
        assert main(command) == 4
        error = capfd.readouterr().err
        assert str(path) in error
        assert "defect of prof" not in error
        assert all(word in error for word in words)
        assert not Path(f"{path}.run").exists()
    assert path.read_bytes() == before


def test_a_view_that_never_ends_is_no_table(
    export: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    refused(change(export, lambda db: view(db, KERNEL)), capfd)


def test_a_view_in_place_of_a_table_that_is_not_needed_is_left_out(export: Path) -> None:
    wanted = times(export)
    assert times(change(export, lambda db: view(db, "TARGET_INFO_GPU"))) == wanted


def test_computed_columns_are_not_computed(export: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def computed(db: sqlite3.Connection) -> None:
        db.execute(f'ALTER TABLE {KERNEL} RENAME COLUMN "end" TO other')
        db.execute(f'ALTER TABLE {KERNEL} ADD COLUMN "end" AS (length(zeroblob(900000000)))')

    refused(change(export, computed), capfd, "no column end")


def test_triggers_do_not_run_and_are_not_kept(export: Path, tmp_path: Path) -> None:
    wanted = times(export)
    change(export, triggers)
    before = export.read_bytes()
    assert main(["import", str(export), "--out", str(tmp_path / "run")]) == 0
    copy = tmp_path / "run/steps/1-trace/trace.sqlite"
    assert times(copy) == wanted
    with contextlib.closing(sqlite3.connect(copy)) as db:
        assert not db.execute("SELECT * FROM sqlite_master WHERE type = 'trigger'").fetchall()
    assert export.read_bytes() == before


@pytest.mark.parametrize("above", [0, 1, 2])
def test_a_page_in_two_places_is_damage(
    export: Path, capfd: pytest.CaptureFixture[str], above: int
) -> None:
    """Twenty pages that each hold the next hundreds of times are more rows than can be read."""
    change(export, lambda db: db.execute("VACUUM"))
    data = bytearray(export.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    with contextlib.closing(sqlite3.connect(export)) as db:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (root,) = db.execute(query, (KERNEL,)).fetchone()
    # The root becomes an inner page, whose children are a page of another table, itself, or none.
    child = (1, root, len(data) // size + 7)[above]
    cells = b"".join((size - 8 * (n + 1)).to_bytes(2, "big") for n in range(3))
    page = b"\5\0\0\0\3\0\0\0" + child.to_bytes(4, "big") + cells
    page = page.ljust(size - 24, b"\0") + (child.to_bytes(4, "big") + b"\1\0\0\0") * 3
    data[(root - 1) * size : root * size] = page
    export.write_bytes(data)
    refused(export, capfd, "is damaged", "no page" if above == 2 else "stands in two places")


@pytest.mark.parametrize("cut", [150, 5_000, 40_000])
@pytest.mark.parametrize("by", [b"", b"\0" * 3000, b"\xa5" * 3000], ids=["cut", "zeros", "noise"])
def test_a_damaged_file_is_refused_before_it_is_changed(
    export: Path, capfd: pytest.CaptureFixture[str], cut: int, by: bytes
) -> None:
    data = export.read_bytes()
    export.write_bytes(data[:cut] + by + (data[cut + len(by) :] if by else b""))
    before = export.read_bytes()
    assert main(["import", str(export), "--out", f"{export}.run"]) in ((4,) if not by else (0, 4))
    assert "defect of prof" not in capfd.readouterr().err
    assert export.read_bytes() == before


def test_row_numbers_far_apart_are_read(export: Path) -> None:
    launches, total = times(export)

    def far(db: sqlite3.Connection) -> None:
        for number in (2**62, 2**63 - 1, -(2**63)):
            names = ", ".join(f'"{r[1]}"' for r in db.execute(f"PRAGMA table_info({KERNEL})"))
            db.execute(
                f"INSERT INTO {KERNEL} (rowid, {names}) SELECT {number}, {names} FROM {KERNEL} "
                "WHERE rowid = 1"
            )

    with contextlib.closing(sqlite3.connect(export)) as db:
        (one,) = db.execute(f'SELECT "end" - start FROM {KERNEL} WHERE rowid = 1').fetchone()
    assert times(change(export, far)) == (launches + 3, total + 3 * one)


@pytest.mark.parametrize("suffix", ["_V²", "_V٣", "_V" + "9" * 5000, "_Vx"])
def test_no_version_of_a_table_is_not_taken_for_one(export: Path, suffix: str) -> None:
    wanted = times(export)
    change(export, lambda db: db.execute(f'CREATE TABLE "{KERNEL}{suffix}" (start, "end")'))
    assert times(export) == wanted


@pytest.mark.parametrize("column", ["start", "gridX", "correlationId"])
@pytest.mark.parametrize("value", ["soon", 0.5, None, b"\xff", 2**63 - 1])
def test_other_values_than_nsys_writes_are_refused_or_kept_out(
    export: Path, capfd: pytest.CaptureFixture[str], column: str, value: object
) -> None:
    def put(db: sqlite3.Connection) -> None:
        db.execute(f"CREATE TABLE other AS SELECT * FROM {KERNEL}")  # takes NULL, too
        db.execute(f"DROP TABLE {KERNEL}")
        db.execute(f"ALTER TABLE other RENAME TO {KERNEL}")
        db.execute(f"UPDATE {KERNEL} SET {column} = ? WHERE rowid = 3", (value,))

    code = main(["top-kernels", str(change(export, put))])
    error = capfd.readouterr().err
    assert (code == 4 and str(export) in error) or (code == 0 and (column, value) in READ)


def test_odd_facts_of_a_gpu_are_unknown_or_refused(
    export: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for number, value in enumerate(("many", -1, 2**62, b"\0", None, 1e308)):
        with contextlib.closing(sqlite3.connect(export, isolation_level=None)) as db:
            db.execute("UPDATE TARGET_INFO_GPU SET smCount = ?", (value,))
        assert main(["import", str(export), "--out", str(tmp_path / f"run{number}")]) in (0, 4)
        assert "defect of prof" not in capfd.readouterr().err


def test_ranges_inside_of_ranges_take_memory_within_a_bound(export: Path) -> None:
    depth = 2 * DEEPEST

    def nest(db: sqlite3.Connection) -> None:
        first, last, thread = db.execute(
            'SELECT min(start), max("end"), min(globalTid) FROM CUPTI_ACTIVITY_KIND_RUNTIME'
        ).fetchone()
        rows = [(first - depth + n, last + depth - n, thread, f"range {n}") for n in range(depth)]
        db.executemany(
            f'INSERT INTO {NVTX} (start, "end", globalTid, text, eventType) '
            "VALUES (?, ?, ?, ?, 59)",
            rows,
        )

    wanted = times(export)
    assert times(change(export, nest)) == wanted
    with open_trace(export) as trace:
        launches = trace.launches()
        assert any(f"up to {depth + 1:,} NVTX ranges" in said for said in trace.warnings)
    assert launches["stage"].unique().tolist() == ["range 0"]
    assert launches["nvtx_path"].str.count("/").max() == DEEPEST - 1
