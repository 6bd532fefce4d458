"""Long tables of a page, packed: hundreds of counters per kernel that few readers unfold.

Written out they would be most of a page's size; packed they are a tenth of it. The page's script
unpacks them when a reader unfolds one; without a script the link to the file stays.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from nsight_prof.reports.page.formats import exact, flat
from nsight_prof.reports.page.writer import Writer

if TYPE_CHECKING:
    from nsight_prof.reports.profile.provenance import RawCounter


class Column(NamedTuple):
    """A column of a packed table: its texts, the heading first, and whether it holds numbers."""

    texts: tuple[str, ...]
    is_numeric: bool = False


Folds = Mapping[str, tuple[Column, ...]]
"""Tables by the name of the page that has them written out."""


def counter_columns(counters: Iterable[RawCounter], language: str) -> tuple[Column, ...]:
    """Return the table of a launch's counters, as templates/counters.md.j2 shows it."""
    headings = map(Writer(language).word, ("Counter", "Value"))
    rows = [(flat(c.metric), flat(c.text or exact(c.value, c.unit))) for c in counters]
    names, values = zip(headings, *rows, strict=True)
    return Column(names), Column(values, is_numeric=True)


def pack(tables: Folds) -> str:
    """Return tables by the name of their page as base64 of gzipped JSON; the same every time.

    The JSON is {"texts": all distinct texts, "pages": {name: {"right": whether each column holds
    numbers, "columns": [[index of a text, …], …]}}}; the first entry of a column is its heading.
    No table: an empty text.
    """
    if not tables:
        return ""
    texts: dict[str, int] = {}
    pages = {
        name: {
            "right": [column.is_numeric for column in columns],
            "columns": [[texts.setdefault(t, len(texts)) for t in c.texts] for c in columns],
        }
        for name, columns in tables.items()
    }
    data = json.dumps({"texts": list(texts), "pages": pages}, separators=(",", ":"))
    return base64.b64encode(gzip.compress(data.encode(), 9, mtime=0)).decode()
