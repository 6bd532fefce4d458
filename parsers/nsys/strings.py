"""Looks up texts of StringIds."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from nsight_prof.parsers.nsys.database import Database
from nsight_prof.parsers.nsys.schema import STRINGS

_AT_ONCE = 1000


def read_strings(db: Database, ids: Iterable[int]) -> dict[int, str]:
    """Text of each id that StringIds has."""
    found: dict[int, str] = {}
    rest = iter(sorted(set(ids)))
    while part := list(islice(rest, _AT_ONCE)):
        query = f'SELECT id, value FROM "{db.table(STRINGS)}" WHERE id IN ({str(part)[1:-1]})'
        found.update((int(number), str(text)) for number, text in db.rows(query) if text)
    return found
