"""Makes one HTML file of a comparison, from its markdown: no second wording, no network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from nsight_prof.reports.compare.models import CompareView, KernelChange
from nsight_prof.reports.compare.output import changed, markdown
from nsight_prof.reports.formats import brief, difference, duration
from nsight_prof.reports.html.page import html_page

MOST_BARS = 12
WIDTH, NAMES, ROW = 960, 330, 22
"""Width of the figure, of its names, and height of a bar, in pixels."""
NAME = "changes"
LABEL = "Time that the largest changes add to the program and take from it"
SHARE = "as part of the GPU time of A"
PER_UNIT = "per unit of work, as part of that of A"
VERDICTS = {"faster": "good", "gone": "good", "slower": "bad", "new": "bad"}
_KERNELS = re.compile(r"^(## Kernels\n\n?)", re.MULTILINE)


def page(view: CompareView) -> str:
    """Return the comparison as one HTML file that sorts, prints, and knows dark and light."""
    drawn = _figure(changed(view))
    text = markdown(view)
    share = SHARE if view.work is None else PER_UNIT
    if drawn:
        text = _KERNELS.sub(
            lambda found: f"{found[1]}{LABEL}, {share}:\n\n![]({NAME}.svg)\n\n", text
        )
    return html_page(text, figures={NAME: drawn}, marks=VERDICTS)


def _figure(rows: Sequence[KernelChange]) -> str:
    """Draw what the largest changes add to and take from the program, as bars with tooltips."""
    shown = [row for row in rows if row.program][:MOST_BARS]
    if not shown:
        return ""
    most = max(abs(row.program or 0.0) for row in shown)
    middle, half = NAMES + (WIDTH - NAMES) / 2, (WIDTH - NAMES) / 2 - 90
    height = ROW * len(shown) + 10
    parts = [f'<svg role="img" aria-label="{LABEL}" viewBox="0 0 {WIDTH} {height}" width="100%">']
    parts.append(f'<line x1="{middle}" x2="{middle}" y1="0" y2="{height}"/>')
    for place, row in enumerate(shown):
        parts.append(_bar(row, place * ROW + 5, middle, half * (row.program or 0.0) / most))
    return "".join([*parts, "</svg>"])


def _bar(row: KernelChange, top: float, middle: float, length: float) -> str:
    moved = row.program or 0.0
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
