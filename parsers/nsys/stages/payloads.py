"""Reads the payloads of NVTX ranges: what a library says of a call beside its name.

`nsys export --include-blobs=true` keeps them in NVTX_EVENTS.binaryData (seen with nsys 2025.3.1):
a header of four 64-bit numbers (domain, schema, size and offset of the payload), then the payload,
a C struct that NVTX_PAYLOAD_SCHEMA_ENTRIES describes. Types are numbered as in nvToolsExtPayload.h.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from nsight_prof.parsers.nsys.sqlite.database import Database
from nsight_prof.parsers.nsys.sqlite.schema import NVTX, read_strings

SCHEMA_ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
ENUM_ENTRIES = "NVTX_PAYLOAD_ENUM_ENTRIES"
_HEADER = struct.Struct("<4Q")
_NUMBERS = {
    1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "q", 8: "Q", 9: "q", 10: "Q", 11: "b",
    12: "B", 13: "h", 14: "H", 15: "i", 16: "I", 17: "q", 18: "Q", 22: "Q",
}  # fmt: skip
_ENUM = "i"  # a C enum; its payload may be padded with bytes of any value
_LONGEST = 4096  # bytes; a longer one is no struct of numbers

Value = int | str
Schema = tuple[int, int]
"""Domain and schema id."""


@dataclass(frozen=True)
class Payload:
    """A range with a payload: its name, thread (global id), times in ns, and its fields by name."""

    name: str
    thread: int
    start: int
    end: int
    fields: dict[str, Value]


@dataclass(frozen=True)
class _Entry:
    name: str
    offset: int
    number: struct.Struct
    words: dict[int, str]


def read_payloads(db: Database, names: str) -> list[Payload]:
    """Read the push/pop ranges whose name is LIKE `names` and that have a payload, by start."""
    if not {"binaryData", "textId"} <= db.columns(NVTX) or db.table(SCHEMA_ENTRIES) is None:
        return []
    schemas = _schemas(db)
    table, strings = db.table(NVTX), db.table("StringIds")
    rows = db.rows(
        f'SELECT textId, globalTid, start, end, hex(binaryData) FROM "{table}"'
        " WHERE binaryData IS NOT NULL AND eventType = 59 AND end IS NOT NULL"
        f" AND length(binaryData) <= {_LONGEST}"
        f" AND textId IN (SELECT id FROM \"{strings}\" WHERE value LIKE '{names}')"
        " ORDER BY start"
    )
    texts = read_strings(db, {row[0] for row in rows})
    return [
        Payload(texts.get(text, ""), thread, start, end, fields)
        for text, thread, start, end, data in rows
        if (fields := _fields(bytes.fromhex(data), schemas))
    ]


def _fields(data: bytes, schemas: dict[Schema, list[_Entry]]) -> dict[str, Value]:
    """Fields of one payload; none where its layout is not known, or it is cut off."""
    if len(data) < _HEADER.size:
        return {}
    domain, schema, size, offset = _HEADER.unpack_from(data)
    if offset < _HEADER.size or offset + size > len(data):
        return {}
    payload, found = data[offset : offset + size], dict[str, Value]()
    for entry in schemas.get((domain, schema), ()):
        if entry.offset + entry.number.size <= size:
            (value,) = entry.number.unpack_from(payload, entry.offset)
            found[entry.name] = entry.words.get(value, value)
    return found


def _schemas(db: Database) -> dict[Schema, list[_Entry]]:
    """Entries of each schema; several processes register the same ones."""
    words = _words(db)
    rows = db.rows(
        "SELECT DISTINCT domainId, schemaId, idx, type, name, coalesce(offset, 0)"
        f' FROM "{db.table(SCHEMA_ENTRIES)}" WHERE name IS NOT NULL ORDER BY idx'
    )
    found: dict[Schema, list[_Entry]] = defaultdict(list)
    for domain, schema, _, kind, name, offset in rows:
        of_enum = words.get((domain, kind))
        form = _ENUM if of_enum else _NUMBERS.get(kind)
        if form and 0 <= offset < _LONGEST:
            number = struct.Struct(f"<{form}")
            found[domain, schema].append(_Entry(str(name), offset, number, of_enum or {}))
    return found


def _words(db: Database) -> dict[Schema, dict[int, str]]:
    """What the values of each enumeration stand for; the export leaves a value of 0 empty."""
    table = db.table(ENUM_ENTRIES)
    found: dict[Schema, dict[int, str]] = defaultdict(dict)
    rows: list[Any] = (
        []
        if table is None
        else db.rows(f'SELECT domainId, schemaId, coalesce(value, 0), name FROM "{table}"')
    )
    for domain, schema, value, name in rows:
        found[domain, schema][int(value)] = str(name)
    return found
