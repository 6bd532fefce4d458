"""Cases of files that tools wrote: SQLite exports, kernel summaries of nsys, pages of ncu."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import random
import sqlite3
from pathlib import Path

from nsight_prof.parsers.ncu import read_csv
from nsight_prof.parsers.nsys.kern_sum_csv import read_kern_sum
from nsight_prof.parsers.nsys.trace import open_trace
from scripts.fuzzing.case import Case, Inputs, Wrong, as_command, same
from scripts.fuzzing.mutations import KERNEL, mutate_bytes, mutate_cells, mutate_database


def sqlite_case(inputs: Inputs, folder: Path, rng: random.Random) -> Case:
    """An export with other bytes, or with other values, columns, tables and views."""
    path = folder / "trace.sqlite"
    if rng.random() < 0.4:
        path.write_bytes(mutate_bytes(inputs.sqlite, rng))
    else:
        path.write_bytes(inputs.sqlite)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
            for _ in range(rng.choice((1, 1, 2, 3))):
                with contextlib.suppress(sqlite3.Error, OverflowError, UnicodeError):
                    mutate_database(db, rng)
    if rng.random() < 0.2:
        argv = ["import", str(path), "--out", str(folder / "out")]
        return Case(argv, lambda: _check_sqlite(path))
    stages = rng.random() < 0.5
    read = lambda _: as_command(lambda: _check_sqlite(path, stages))  # noqa: E731
    return Case(["read", str(path)], lambda: None, read)


def _check_sqlite(path: Path, stages: bool = True) -> None:
    """Launches and GPU time are those that a plain query finds."""
    with open_trace(path) as trace:
        frame = trace.kernels(with_stages=stages)
        table = trace._db.table(KERNEL)
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        rows = db.execute(f'SELECT "start", "end" FROM "{table}"').fetchall()
    same("launches", int(frame["calls"].sum()), len(rows))
    same("GPU time", int(frame["total_ns"].sum()), sum(end - start for start, end in rows))


def csv_case(inputs: Inputs, folder: Path, rng: random.Random) -> Case:
    """A kernel summary of nsys stats, or a page of ncu."""
    name = rng.choice(sorted(inputs.texts))
    data = inputs.texts[name]
    data = (mutate_bytes if rng.random() < 0.4 else mutate_cells)(data, rng)
    if rng.random() < 0.1:
        encoding = rng.choice(("utf-16", "utf-8-sig", "latin-1"))
        data = data.decode("utf-8", "replace").encode(encoding, "replace")
    path = folder / "given.csv"
    path.write_bytes(data)
    check = _check_sum if "kern" in name else _check_page
    if rng.random() < 0.3:
        return Case(["import", str(path), "--out", str(folder / "out")], lambda: None)
    return Case(["read", str(path)], lambda: None, lambda _: as_command(lambda: check(path)))


def _check_sum(path: Path) -> None:
    frame = read_kern_sum(path)
    if not (frame["calls"] >= 0).all() or not (frame["total_ns"] >= 0).all():
        raise Wrong(f"negative calls or times: {frame[['calls', 'total_ns']].min().to_dict()}")
    rows = list(
        csv.reader(io.StringIO(path.read_bytes().decode("utf-8-sig", "replace"), newline=""))
    )
    heads = next((i for i, r in enumerate(rows) if "Instances" in map(str.strip, r)), None)
    if heads is None:
        return
    names = [cell.strip() for cell in rows[heads]]
    if names.count("Total Time (ns)") != 1 or names.count("Instances") != 1:
        return
    texts = [row[names.index("Total Time (ns)")] for row in rows[heads + 1 :] if row]
    with contextlib.suppress(ValueError):
        same("GPU time", int(frame["total_ns"].sum()), sum(int(text) for text in texts))


def _check_page(path: Path) -> None:
    capture = read_csv(path)
    data = path.read_bytes()
    text = data.decode("utf-16" if data[:2] == b"\xff\xfe" else "utf-8", "replace")
    for value in capture.metrics["value"].dropna().head(200):
        if not math.isfinite(value):
            raise Wrong(f"a metric of {value}")
    if capture.launches.empty:
        raise Wrong("accepted without a launch")
    for name in capture.launches["name"].head(20):
        shown = name.split("\n")[0].split('"')[0].strip()
        if shown.isascii() and shown not in text:
            raise Wrong(f"the kernel {name!r} is not in the file")
