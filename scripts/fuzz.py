#!/usr/bin/env python3
"""Feed damaged and hostile inputs to prof: right values, or a clear exit 2 or 4, and nothing else.

    fuzz.py [--seed 1] [--count 2000] [--first 0] [--kind sqlite] [--keep FOLDER]

Each case takes a real input (an SQLite export, a CSV of nsys or ncu, a Parquet table, a manifest or
a selection, a recipe), mutates it by a random generator of its own (seed and number: the same case
every time) and gives it to the command line in this process, under a limit of time and memory. What
is accepted must be what an independent reading of the mutated file bears out. A case that fails is
printed with its number; `--first N --count 1 --keep FOLDER` makes it again and keeps its files.
tests/faults/test_fuzz.py runs 2,000 of them.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import faulthandler
import io
import json
import lzma
import math
import os
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as parquet
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nsight_prof.orchestrator.cli import main as prof  # noqa: E402
from nsight_prof.orchestrator.cli import report_error  # noqa: E402
from nsight_prof.parsers.errors import ProfError  # noqa: E402
from nsight_prof.parsers.ncu import read_csv  # noqa: E402
from nsight_prof.parsers.nsys import open_trace, read_kern_sum  # noqa: E402
from nsight_prof.parsers.roofs_file import read_roofs  # noqa: E402
from nsight_prof.parsers.run_dir import RunDir, read_manifest  # noqa: E402
from nsight_prof.reports.load import load_run  # noqa: E402

CAPTURE = ROOT / "captures/h200-known-gemm"
RECIPE = ROOT / "recipes/own-command.yaml"
SECONDS = 20  # CPU time of one case; most take 0.02
MEMORY = 6 << 30  # address space of a long campaign
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"

NUMBERS = (0, 1, -1, 7, 255, 2**31, 2**32 - 1, 2**62, -(2**63), 2**63 - 1, 10**30, 0.5, 1e308, -0.0)
WORDS = ("", "x", "nan", "inf", "-1", "é", "\x00", "a\nb", "../../x", "$(id)", "{{7*7}}", "=1+1",
         "(a+)+$", "9" * 5000, "a" * 200_000, "\ud83d", "\x1b[31m", "1e999", "0x10", "1,234.5",
         "(all)", "%s%n", "'\";--")  # fmt: skip
ODD: tuple[Any, ...] = (*NUMBERS, *WORDS, None, True, False, [], {}, [[]], {"": None}, [None] * 50)


class Wrong(Exception):
    """prof accepted a file and says something else than the file."""


@dataclass
class Inputs:
    """Real inputs, unpacked once."""

    folder: Path
    sqlite: bytes = b""
    run: Path = field(default_factory=Path)
    texts: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def prepare(cls, folder: Path) -> Inputs:
        """Unpack the inputs into `folder` and make the tables of the recorded run."""
        run = folder / "run"
        shutil.copytree(CAPTURE, run)
        for packed in run.rglob("*.xz"):
            packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
            packed.unlink()
        fixtures = ROOT / "tests/fixtures"
        sums = sorted((fixtures / "nsys_stats").glob("[b-m]*gpu_kern*sum.csv.xz"))
        pages = sorted((fixtures / "ncu_csv").glob("*.csv.xz"))
        chosen = [*sums, pages[0], *sorted((fixtures / "ncu_rules").glob("*.xz"))]
        code = prof(["export", str(run), "--format", "csv", "-o", str(folder / "tables")])
        if code:
            raise RuntimeError("the recorded run cannot be exported")
        sqlite = (run / "steps/1-trace/trace.sqlite").read_bytes()
        return cls(folder, sqlite, run, {p.stem: lzma.decompress(p.read_bytes()) for p in chosen})


@dataclass
class Case:
    """One mutated input: the command, and what is checked where the command ends with 0."""

    argv: list[str]
    check: Callable[[], None]
    call: Callable[[list[str]], int] = prof


# --- mutations of bytes, of text, of plain data ---------------------------------------------------


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, repeat, move or overwrite some bytes."""
    work = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5, 30))):
        at = rng.randrange(len(work) + 1)
        size = min(rng.choice((1, 1, 2, 4, 8, 100, 4096)), len(work) - at)
        match rng.randrange(7):
            case 0 if work:
                work[at - 1] ^= 1 << rng.randrange(8)
            case 1:
                work[at : at + size] = rng.randbytes(size)
            case 2:
                del work[at : at + size]
            case 3:
                work[at:at] = work[at : at + size] * rng.choice((1, 1, 50))
            case 4:
                del work[at:]
            case 5:
                work[at : at + size] = rng.choice((b"\0", b"\xff", b"\x80")) * size
            case _:
                work[at:at] = rng.choice(WORDS).encode("utf-8", "surrogatepass")[:1000]
    return bytes(work)


def mutate_cells(data: bytes, rng: random.Random) -> bytes:
    """Put odd values into cells of a CSV, or drop, repeat and shuffle its rows and columns."""
    rows = list(csv.reader(io.StringIO(data.decode("utf-8", "replace"), newline="")))
    for _ in range(rng.choice((1, 1, 2, 4))):
        row = rng.choice(rows)
        match rng.randrange(6):
            case 0 | 1 if row:
                row[rng.randrange(len(row))] = str(rng.choice((*NUMBERS, *WORDS)))
            case 2:
                rows.remove(row)
            case 3:
                rows.insert(rng.randrange(len(rows) + 1), list(row))
            case 4 if row:
                column = rng.randrange(len(row))
                for other in rows:
                    del other[column : column + 1]
            case _:
                rng.shuffle(rows[rng.randrange(len(rows))])
        if not rows:
            break
    text = io.StringIO()
    csv.writer(text, lineterminator=rng.choice(("\n", "\n", "\r\n"))).writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


def mutate_plain(value: Any, rng: random.Random) -> Any:
    """Change some node of plain data: another value, another type, a key dropped or renamed."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        holder, key = rng.choice(list(_nodes(value)))
        match rng.randrange(6):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[str(rng.choice(WORDS))] = holder.pop(key)
            case 2 if isinstance(holder, list):
                holder.append(rng.choice((holder[key], rng.choice(ODD))))
            case 3:
                deep: Any = 1
                for _ in range(rng.choice((5, 60, 120))):
                    deep = rng.choice(([deep], {"a": deep}))
                holder[key] = deep
            case _:
                holder[key] = rng.choice(ODD)
        if not list(_nodes(value)):
            break
    return value


def _nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _nodes(inner)


# --- the five kinds -------------------------------------------------------------------------------


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
                    _mutate_database(db, rng)
    if rng.random() < 0.2:
        argv = ["import", str(path), "--out", str(folder / "out")]
        return Case(argv, lambda: _check_sqlite(path))
    stages = rng.random() < 0.5
    read = lambda _: _as_told(lambda: _check_sqlite(path, stages))  # noqa: E731
    return Case(["read", str(path)], lambda: None, read)


def _mutate_database(db: sqlite3.Connection, rng: random.Random) -> None:  # noqa: C901
    tables = [n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    table = rng.choice([KERNEL, *tables])
    columns = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]
    column = rng.choice([*columns, "rowid"])
    ids = [n for (n,) in db.execute(f'SELECT rowid FROM "{table}"')]
    row = rng.choice(ids) if ids else 0
    odd = rng.choice((*NUMBERS, *WORDS, None, b"\xff\x00"))
    match rng.randrange(14):
        case 0 | 1 | 2 | 3 | 4:
            if column != "rowid" and rng.random() < 0.3:  # columns that refuse NULL or texts
                db.execute("PRAGMA ignore_check_constraints = ON")
            db.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (odd, row))
        case 5:
            db.execute(f'UPDATE "{table}" SET "{column}" = ?', (odd,))
        case 6:
            db.execute(f'ALTER TABLE "{table}" DROP COLUMN "{column}"')
        case 7:
            db.execute(f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{rng.choice(WORDS)}"')
        case 8:
            name = f"{table}{rng.choice(('_V2', '_V²', '_V' + '9' * 5000, 'x', '_V1'))}"
            db.execute(f'ALTER TABLE "{table}" RENAME TO "{name}"')
        case 9:
            db.execute(
                f'DELETE FROM "{table}"' + (" WHERE rowid = ?" if row else ""), (row,) * bool(row)
            )
        case 10:
            db.execute(f'DROP TABLE "{table}"')
            if rng.random() < 0.7:
                endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
                names = ", ".join(f'x AS "{name}"' for name in columns)
                db.execute(f'CREATE VIEW "{table}" AS {endless} SELECT {names} FROM n')
        case 11:
            when = rng.choice(("DELETE", "UPDATE", "INSERT"))
            endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
            db.execute(
                f'CREATE TRIGGER t BEFORE {when} ON "{table}" '
                f"BEGIN {endless} SELECT count(*) FROM n; END"
            )
        case 12:
            db.execute(f'CREATE TABLE copy AS SELECT * FROM "{table}"')  # all types and NULL go
            db.execute(f'DROP TABLE "{table}"')
            if rng.random() < 0.5 and columns:
                db.execute(f'UPDATE copy SET "{rng.choice(columns)}" = ? WHERE rowid = 1', (odd,))
            db.execute(f'ALTER TABLE copy RENAME TO "{table}"')
        case _:
            many = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 2000)"
            names = ", ".join(f'"{name}"' for name in columns)
            if rng.random() < 0.5:
                rows = f'SELECT {names} FROM "{table}", ({many} SELECT x FROM n)'
                db.execute(f'INSERT INTO "{table}" ({names}) {rows}')
            else:
                rows = f'SELECT 4611686018427387904, {names} FROM "{table}" LIMIT 1'
                db.execute(f'INSERT INTO "{table}" (rowid, {names}) {rows}')


def _check_sqlite(path: Path, stages: bool = True) -> None:
    """Launches and GPU time are those that a plain query finds."""
    with open_trace(path) as trace:
        frame = trace.kernels(with_stages=stages)
        table = trace._db.table(KERNEL)
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        rows = db.execute(f'SELECT "start", "end" FROM "{table}"').fetchall()
    _same("launches", int(frame["calls"].sum()), len(rows))
    _same("GPU time", int(frame["total_ns"].sum()), sum(end - start for start, end in rows))


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
    return Case(["read", str(path)], lambda: None, lambda _: _as_told(lambda: check(path)))


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
        _same("GPU time", int(frame["total_ns"].sum()), sum(int(text) for text in texts))


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


def _linked(source: Path, target: Path) -> None:
    """Copy a run by links: what a case changes it writes anew."""
    shutil.copytree(source, target, copy_function=os.link)


def _write(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def parquet_case(inputs: Inputs, folder: Path, rng: random.Random) -> Case:
    """A table of a run directory that somebody sent."""
    run = folder / "run"
    _linked(inputs.run, run)
    path = (
        run
        / "tables"
        / f"{rng.choice(['launches', 'kernels', 'stages', 'counters', 'metrics'])}.parquet"
    )
    if rng.random() < 0.5:
        _write(path, mutate_bytes(path.read_bytes(), rng))
    else:
        frame = pd.read_parquet(path)
        column = rng.choice(list(frame.columns))
        match rng.randrange(5):
            case 0:
                frame = frame.drop(columns=column)
            case 1:
                frame = frame.rename(columns={column: "x"})
            case 2:
                frame[column] = [rng.choice((*NUMBERS[:8], 0.5)) for _ in range(len(frame))]
            case 3:
                frame[column] = [rng.choice(WORDS).replace("\ud83d", "") for _ in range(len(frame))]
            case _:
                frame[column] = None
        path.unlink()
        frame.to_parquet(path)
    argv = ["export", str(run), "--format", "csv", "--table", path.stem, "-o", str(folder / "out")]
    if path.stem == "launches" and rng.random() < 0.5:
        argv = ["export", str(run), "--format", "perfetto", "-o", str(folder / "timeline.json")]
    elif rng.random() < 0.5:
        wanted = lambda: getattr(load_run(run), path.stem)  # noqa: E731
        return Case(["load", str(path)], lambda: None, lambda _: _as_told(wanted))
    return Case(argv, lambda: _check_parquet(path, Path(argv[-1])))


def _check_parquet(path: Path, out: Path) -> None:
    if out.suffix == ".json":
        json.loads(out.read_text("utf-8"))
        return
    written = out / f"{path.stem}.csv"
    _same("rows", len(pd.read_csv(written)), parquet.read_metadata(path).num_rows)


def manifest_case(inputs: Inputs, folder: Path, rng: random.Random) -> Case:
    """A manifest, a selection or a file of roofs of a run directory that somebody sent."""
    run = folder / "run"
    _linked(inputs.run, run)
    name = rng.choice(
        ("manifest.json", "manifest.json", "steps/2-select/selection.yaml", "roofs.json")
    )
    path = run / name
    if rng.random() < 0.3:
        _write(path, mutate_bytes(path.read_bytes(), rng))
    else:
        read = json.loads if path.suffix == ".json" else yaml.safe_load
        data = mutate_plain(read(path.read_text("utf-8")), rng)
        with contextlib.suppress(ValueError, RecursionError):
            text = json.dumps(data, ensure_ascii=rng.random() < 0.5)
            _write(path, text.encode("utf-8", "surrogatepass"))
    call: Callable[[list[str]], int] = prof
    argv = ["export", str(run), "--format", "csv", "--table", "stages", "-o", str(folder / "out")]
    if name == "roofs.json":
        call = lambda _: _as_told(lambda: read_roofs(path))  # noqa: E731
    elif name != "manifest.json":
        call = lambda _: _as_told(lambda: load_run(run).selection)  # noqa: E731
    return Case(argv, lambda: _check_manifest(run), call)


def _as_told(read: Callable[[], object]) -> int:
    """Read something as the command line would that has no command of its own."""
    try:
        read()
    except ProfError as error:
        return report_error(error.message, error.hint, error.exit_code)
    return 0


def _check_manifest(run: Path) -> None:
    manifest = read_manifest(RunDir(run))
    data = json.loads((run / "manifest.json").read_text("utf-8"))
    _same("run_id", manifest.run_id, data["run_id"])
    names = [step["name"] for step in data.get("steps", [])]
    _same("steps", [step.name for step in manifest.steps], names)


def recipe_case(inputs: Inputs, folder: Path, rng: random.Random) -> Case:
    """A recipe that somebody sent."""
    path = folder / "mine.yaml"
    text = RECIPE.read_text("utf-8")
    data: Any = None
    if rng.random() < 0.35:
        path.write_bytes(mutate_bytes(text.encode(), rng))
    elif rng.random() < 0.2:
        path.write_text(rng.choice(BOMBS), "utf-8")
    else:
        whole = {
            "target": {"command": ["x", 1], "args": {"size": 4}, "env": {"A": "b"}},
            "stages": {"prefill": "^p.*", "decode": "d"}, "notes": ["one"],
            "sweep": {"target.args.batch": [1, 2], "select.top_k": [3, 4]},
            "counters": {"enabled": True, "sets": ["roofline"], "timeout": "10m"},
        }  # fmt: skip
        data = mutate_plain(whole, rng)
        text = json.dumps(data) if rng.random() < 0.5 else yaml.safe_dump(data)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    check = ["recipe", "check", str(path)]
    verbs = (check, check, ["run", str(path), "--dry-run"])
    return Case(list(rng.choice(verbs)), lambda: _check_recipe(path, data))


def _check_recipe(path: Path, data: Any) -> None:
    from nsight_prof.orchestrator.recipe import load_recipe

    resolved = load_recipe(path).to_dict()
    if not isinstance(data, dict):
        return
    for key in ("name", "question", "notes", "languages"):
        if key in data:
            given = data[key]
            if key == "notes" and isinstance(given, list):
                given = [str(note) for note in given]
            _same(key, resolved[key], resolved[key] if given is None else given)


_LAUGHS = "\n".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'x'}]" for i in range(12)
)
BOMBS = (
    f"target: {{command: [x], args: {{\n{_LAUGHS.replace(chr(10), ',' + chr(10))}}}}}",
    "target: {command: [x], args: &a {b: [*a]}}",
    "target: &t {command: [x], args: *t}",
    "target: {command: [x], args: {a: " + "[" * 10_000,
    "target: {command: [x]}\nsweep:\n"
    + "".join(f"  target.args.k{i}: [1, 2, 3, 4, 5]\n" for i in range(15)),
    'target: {command: [x], env: {"A=B": c}}',
    'target: {command: [x], env: {A: "\\0"}}',
    'target: {command: ["x\\0y"]}',
    "target: {command: [x]}\nstages: ['(a+)+$']",
    "target: {command: [x]}\nselect: {include: ['(a|a)*$']}",
    "target: {command: [x], args: {when: 2001-99-99}}",
    "target: {command: [x], args: {n: " + "9" * 5000 + "}}",
    "target: {command: [x], args: {? [a, b] : c}}",
    "target: {command: [x], args: {d: 2001-01-01, b: !!binary aGk=, s: !!set {a, b}}}",
    "name: " + "a" * 300 + "\ntarget: {command: [x]}",
    "target: {command: [x], cwd: " + "d" * 5000 + "}",
    "target: {command: [x]}\nextends: " + "e" * 5000,
    "target: {command: [x]}\nsweep: {target.args.a: [.nan, .nan]}",
    "target: {command: [x]}\nbench: {processes: 1000000000000}",
)

KINDS: dict[str, Callable[[Inputs, Path, random.Random], Case]] = {
    "sqlite": sqlite_case,
    "csv": csv_case,
    "parquet": parquet_case,
    "manifest": manifest_case,
    "recipe": recipe_case,
}


def _same(what: str, ours: object, theirs: object) -> None:
    if ours != theirs:
        raise Wrong(f"{what}: {ours!r:.200} where the file says {theirs!r:.200}")


# --- running --------------------------------------------------------------------------------------


class TooLong(BaseException):
    """A case ran into its time limit."""


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise TooLong in this thread after so many seconds."""

    def stop(_number: int, _frame: object) -> None:
        raise TooLong

    old = {n: signal.signal(n, stop) for n in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, seconds)  # does not count what other processes take
    signal.setitimer(signal.ITIMER_REAL, 6 * seconds)  # for what waits
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in old.items():
            signal.signal(number, handler)


def run_case(
    inputs: Inputs, seed: int, number: int, kinds: Sequence[str], keep: Path | None
) -> str:
    """Do one case; return what is wrong with its end, "" where it ended as it should."""
    kind = kinds[number % len(kinds)]
    rng = random.Random(f"{seed}:{number}:{kind}")
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=keep or inputs.folder))
    try:
        case = KINDS[kind](inputs, folder, rng)
        out, err = io.StringIO(), io.StringIO()
        faulthandler.dump_traceback_later(6 * SECONDS, exit=True)  # in code that heeds no signal
        with time_limit(SECONDS):
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = case.call(case.argv)
            return _judge(case, code, err.getvalue())
    except TooLong:
        return f"{kind}: more than {SECONDS} s: {' '.join(case.argv)}"
    except Wrong as error:
        return f"{kind}: wrong value: {error}"
    except Exception:
        return f"{kind}: an error of its own: {traceback.format_exc()}"
    finally:
        faulthandler.cancel_dump_traceback_later()
        if keep is None:
            shutil.rmtree(folder)


def _judge(case: Case, code: int, err: str) -> str:
    if "Traceback" in err or "defect of prof" in err:
        return f"{case.argv[0]}: {code}: {err[-600:]}"
    if code == 0:
        case.check()
        return ""
    if code not in (2, 4) or not err.strip():
        return f"{case.argv[0]}: exit {code}: {err[-600:]}"
    if "error: " not in err.lower() or "hint:" not in err and "Usage:" not in err:
        return f"{case.argv[0]}: exit {code} without a sentence: {err[-600:]}"
    return ""


def main() -> int:
    """Run a campaign; return 1 where a case went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--keep", type=Path, help="keep the mutated files here")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    found: Counter[str] = Counter()
    began, slowest = time.monotonic(), (0.0, 0)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        with contextlib.redirect_stdout(io.StringIO()):
            inputs = Inputs.prepare(Path(folder))
        for number in range(options.first, options.first + options.count):
            start = time.monotonic()
            wrong = run_case(
                inputs, options.seed, number, options.kind or list(KINDS), options.keep
            )
            slowest = max(slowest, (time.monotonic() - start, number))
            if wrong:
                found[wrong[:160]] += 1
                if found[wrong[:160]] == 1:
                    print(f"--- {options.seed}:{number} {wrong}", flush=True)
    print(
        f"{options.count} cases, {sum(found.values())} wrong, {time.monotonic() - began:.0f} s "
        f"({time.process_time():.0f} s of CPU), "
        f"slowest {slowest[0]:.1f} s ({slowest[1]})"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
