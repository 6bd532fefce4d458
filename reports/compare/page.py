"""Makes one HTML file of a comparison, from its markdown: no second wording, no network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from markdown_it import MarkdownIt
from markdown_it.token import Token

from reports.compare.models import CompareView, KernelChange
from reports.compare.output import changed, markdown
from reports.formats import brief, difference, duration
from reports.render import render_template

MOST_BARS = 12
WIDTH, NAME, ROW = 960, 330, 22
"""Width of the figure, of its names, and height of a bar, in pixels."""
VERDICTS = {"faster": "good", "gone": "good", "slower": "bad", "new": "bad"}
_KERNELS = re.compile(r"(<h2>Kernels</h2>\n)")


def page(view: CompareView) -> str:
    """Return the comparison as one HTML file that sorts, prints, and knows dark and light."""
    parser = MarkdownIt("commonmark").enable("table")
    tokens = parser.parse(markdown(view))
    _prepare(tokens)
    body = parser.renderer.render(tokens, parser.options, {})
    body = body.replace("<table", '<div class="wide"><table').replace("</table>", "</table></div>")
    body = _KERNELS.sub(lambda found: found[1] + _figure(changed(view)), body)
    return render_template("compare.html.j2", {"title": view.title, "body": body})


def _prepare(tokens: Sequence[Token]) -> None:
    """Let scripts and styles find what they need: sortable tables, numbers, verdicts."""
    table: Token | None = None
    for at, token in enumerate(tokens):
        if token.type == "table_open":
            table = token
            table.attrSet("data-sort", "")
        elif token.type in ("th_open", "td_open"):
            if "right" in str(token.attrs.pop("style", "")):
                token.attrSet("class", "num")
            text = tokens[at + 1].content
            if text == "" and token.type == "td_open" and table is not None:
                # A cell that stands for the one above it: sorting would tear them apart.
                table.attrs.pop("data-sort", None)
            if token.type == "td_open" and text in VERDICTS:
                token.attrSet("class", VERDICTS[text])


def _figure(rows: Sequence[KernelChange]) -> str:
    """Draw what the largest changes add to and take from the program, as bars with tooltips."""
    shown = [row for row in rows if row.program][:MOST_BARS]
    if not shown:
        return ""
    most = max(abs(row.program or 0.0) for row in shown)
    middle, half = NAME + (WIDTH - NAME) / 2, (WIDTH - NAME) / 2 - 70
    height = ROW * len(shown) + 10
    label = "Time that the largest changes add to the program and take from it"
    parts = [f'<svg role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {height}" width="100%">']
    parts.append(f'<line x1="{middle}" x2="{middle}" y1="0" y2="{height}"/>')
    for place, row in enumerate(shown):
        parts.append(_bar(row, place * ROW + 5, middle, half * (row.program or 0.0) / most))
    return f"<p>{label}, as part of the GPU time of A:</p>\n" + "\n".join([*parts, "</svg>"]) + "\n"


def _bar(row: KernelChange, top: float, middle: float, length: float) -> str:
    moved = (row.total.b or 0.0) - (row.total.a or 0.0)
    name = escape(f"{row.number}. {brief((row.b or row.a)[0].short_name, 44)}")
    tip = escape(
        f"{row.title} ({row.stage or 'no stage'}, {row.match_label}): "
        f"{duration(row.total.a)} → {duration(row.total.b)}"
    )
    side = "bad" if moved > 0 else "good"
    left, end = min(middle, middle + length), middle + length
    anchor, gap = ("start", 6) if moved > 0 else ("end", -6)
    box = f'x="{left:.1f}" y="{top}" width="{abs(length):.1f}" height="{ROW - 6}"'
    return (
        f'<g><title>{tip}</title><text x="0" y="{top + 13}">{name}</text>'
        f'<rect class="{side}" {box}/>'
        f'<text x="{end + gap:.1f}" y="{top + 13}" text-anchor="{anchor}">'
        f"{difference(row.program)}</text></g>"
    )
