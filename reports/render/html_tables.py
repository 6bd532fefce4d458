"""Tables of a page: what they are sorted by, which row stays last, and where numbers stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markdown_it.token import Token

from nsight_prof.reports.render.order import sort_key

BROAD = 8
"""Tables with more columns are set tighter on paper."""
LONG = 24
"""Columns with longer texts are not squeezed to one word per line."""
LEAST_ROWS = 3
"""Shorter tables are seen at a glance: nothing is to be sorted."""


@dataclass
class _Cell:
    token: Token
    text: str
    strong: bool


@dataclass
class _Table:
    opening: Token
    head: list[_Cell] = field(default_factory=list)
    rows: list[tuple[Token, list[_Cell]]] = field(default_factory=list)


def dress_tables(tokens: Sequence[Token]) -> None:
    """Mark the tables among `tokens` in place: classes, and data-v where a number has a unit."""
    table: _Table | None = None
    for index, token in enumerate(tokens):
        if token.type == "table_open":
            table = _Table(token)
        elif table is None:
            continue
        elif token.type == "table_close":
            _dress(table)
            table = None
        elif token.type == "tr_open":
            table.rows.append((token, []))
        elif token.type in ("th_open", "td_open"):
            inline = tokens[index + 1]
            cell = _Cell(token, plain_text(inline), _is_strong(inline))
            (table.head if token.type == "th_open" else table.rows[-1][1]).append(cell)


def plain_text(inline: Token) -> str:
    """Return the text of an inline token without its markup."""
    kinds = ("text", "code_inline", "softbreak")
    return "".join(t.content or " " for t in inline.children or [] if t.type in kinds).strip()


def _is_strong(inline: Token) -> bool:
    kinds = [t.type for t in inline.children or [] if t.content or t.type != "text"]
    return kinds[:1] == ["strong_open"] and kinds[-1:] == ["strong_close"]


def _dress(table: _Table) -> None:
    rows = [(row, cells) for row, cells in table.rows if cells]
    right = ["right" in str(cell.token.attrGet("style")) for cell in table.head]
    for cell in (*table.head, *(cell for _, cells in rows for cell in cells)):
        number = "right" in str(cell.token.attrGet("style"))
        cell.token.attrs = {"class": "n"} if number else {}
    if not any(cell.text for cell in table.head):
        table.opening.attrSet("class", "facts")
        return
    if len(table.head) > BROAD:
        table.opening.attrJoin("class", "broad")
    for at, head in enumerate(table.head):
        if any(len(cells[at].text) > LONG for _, cells in rows if at < len(cells)):
            head.token.attrJoin("class", "w")
    # An empty cell stands for the one above it: sorting would tear them apart. In the last row it
    # is the sum of what is not shown. A last row in bold is the sum of all.
    is_filled = all(cell.text for _, cells in rows[:-1] for cell in cells)
    if len(rows) >= LEAST_ROWS and is_filled:
        _make_sortable(table, rows, right)


def _make_sortable(table: _Table, rows: list[tuple[Token, list[_Cell]]], right: list[bool]) -> None:
    table.opening.attrJoin("class", "sortable")
    last, cells = rows[-1]
    if not cells[0].text:
        last.attrSet("class", "rest")
    elif cells[0].strong:
        last.attrSet("class", "rest total")
    for at, (head, number) in enumerate(zip(table.head, right, strict=True)):
        column = [cells[at] for _, cells in rows if at < len(cells)]
        keys = [sort_key(cell.text) for cell in column] if number else []
        # Times among bytes: a table of one thing, with one row per quantity.
        if len({key.unit for key in keys if key is not None}) > 1:
            head.token.attrJoin("class", "mixed")
            continue
        for cell, key in zip(column, keys, strict=False):
            if key is not None and cell.text != f"{key.value:g}":
                cell.token.attrSet("data-v", f"{key.value:.9g}")
