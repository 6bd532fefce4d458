"""Mutations of bytes, of cells of a CSV, of plain data and of an SQLite database."""

from __future__ import annotations

import csv
import io
import json
import random
import sqlite3
from collections.abc import Iterator
from typing import Any

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
NUMBERS = (0, 1, -1, 7, 255, 2**31, 2**32 - 1, 2**62, -(2**63), 2**63 - 1, 10**30, 0.5, 1e308, -0.0)
WORDS = ("", "x", "nan", "inf", "-1", "é", "\x00", "a\nb", "../../x", "$(id)", "{{7*7}}", "=1+1",
         "(a+)+$", "9" * 5000, "a" * 200_000, "\ud83d", "\x1b[31m", "1e999", "0x10", "1,234.5",
         "(all)", "%s%n", "'\";--")  # fmt: skip
ODD: tuple[Any, ...] = (*NUMBERS, *WORDS, None, True, False, [], {}, [[]], {"": None}, [None] * 50)


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


def mutate_database(db: sqlite3.Connection, rng: random.Random) -> None:  # noqa: C901
    """Change a value, a column, a table, or put a program in place of a table."""
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
