"""Long tables of a page, packed: hundreds of counters a kernel that few readers unfold.

Written out they would be most of a page's size; packed they are a tenth of it. The page's script
unpacks them when a reader unfolds one; without a script the link to the file stays.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from collections.abc import Mapping

_PIPE = re.compile(r"(?<!\\)\|")
_TAG = re.compile(r"<[^>]+>")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")


def pack(pages: Mapping[str, str]) -> str:
    """Return the first table of each markdown page as base64 of gzipped JSON; the same every time.

    The JSON is {"texts": all distinct texts, "pages": {name: {"right": whether each column holds
    numbers, "columns": [[index of a text, …], …]}}}; the first entry of a column is its heading.
    No page: an empty text.
    """
    if not pages:
        return ""
    texts: dict[str, int] = {}
    packed = {}
    for name, text in pages.items():
        head, aligned, *rows = table_of(text) or ([], [])
        columns = zip(head, *rows, strict=True)
        packed[name] = {
            "right": [mark.endswith(":") for mark in aligned],
            "columns": [[texts.setdefault(t, len(texts)) for t in column] for column in columns],
        }
    data = json.dumps({"texts": list(texts), "pages": packed}, separators=(",", ":"))
    return base64.b64encode(gzip.compress(data.encode(), 9, mtime=0)).decode()


def table_of(text: str) -> list[list[str]]:
    """Return the plain text of each cell of the first table of a markdown text, row by row."""
    rows = []
    for line in text.splitlines():
        if line.startswith("|"):
            rows.append([_unmarked(cell.strip()) for cell in _PIPE.split(line.strip())[1:-1]])
        elif rows:
            break
    return rows


def _unmarked(cell: str) -> str:
    if len(cell) > 1 and cell[0] == cell[-1] == "`":
        return cell[1:-1]
    return html.unescape(_ESCAPED.sub(r"\1", _TAG.sub("", cell)))
