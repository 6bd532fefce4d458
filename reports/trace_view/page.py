"""Timeline and tree of a run as parts of its report: an SVG for markdown, HTML that can be zoomed.

The page gets all rows as one packed block: a head in JSON, then the columns of all rows as planes
of bytes, which compress well. The script of the page unpacks and draws them; without it the still
pictures stay.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nsight_prof.parsers.nsys.bins import Array
from nsight_prof.parsers.nsys.events import Events
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page.catalogue import ENGLISH
from nsight_prof.reports.page.values import Text, Word
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.trace_view.models import (
    CALLS,
    RANGES,
    Item,
    Items,
    Label,
    Node,
    Row,
)
from nsight_prof.reports.trace_view.still import Still, legend, timeline_svg, tree_svg
from nsight_prof.reports.trace_view.tracks import (
    gaps_of,
    kernel_items,
    read_trace,
    read_work,
    rows_of,
)
from nsight_prof.reports.trace_view.tree import tree_of

TIMELINE, TREE = "gpu-timeline", "nvtx-tree"
"""Names of the pictures, without their suffix."""
ALT = {
    TIMELINE: "Timeline: streams and idle time of each GPU, ranges and calls of the host",
    TREE: "NVTX ranges and the kernels in them, each as wide as its GPU time and idle time",
}
TITLES = {TIMELINE: "Timeline", TREE: "Ranges and their kernels"}
FALLBACK = Text(
    "A still picture of the whole run: to zoom into it takes a browser with JavaScript and "
    "DecompressionStream."
)
_IDS = {TIMELINE: "trace", TREE: "trace-tree"}
_LEVEL = 6


class Drawn(NamedTuple):
    """What the script draws: `span` is the first and the last ns, `note` says what is missing."""

    rows: Sequence[Row]
    items: Sequence[Item]
    tree: Node
    span: tuple[int, int]
    note: Label = ""


@dataclass(frozen=True)
class TracePart:
    """One part of a report: `picture` is the file `name`.svg, and on the HTML page what stands
    there until the script draws its `data`.
    """

    name: str
    title: str
    alt: str
    picture: Still
    data: Drawn | None = None

    def svg(self, language: str = ENGLISH) -> str:
        """Return the file in a language."""
        return self.picture.file(language)

    def html(self, language: str = ENGLISH) -> str:
        """Return what the HTML page of a language has instead of the file."""
        name, packed, note = _IDS[self.name], "", ""
        if self.data:
            data = pack(*self.data, language=language)
            packed = f'<script type="application/octet-stream" class="data">{data}</script>'
            note = f'<p class="fallback">{Writer(language).text(FALLBACK)}</p>'
        return (
            f'<div class="{name}" id="{name}"><div class="live" hidden></div>'
            f'<div class="still">{self.picture.inline(language)}</div>{note}{packed}</div>'
        )


def trace_parts(
    run: Run, numbers: Mapping[str, int], trace: tuple[Events | None, Label] | None = None
) -> tuple[TracePart, ...]:
    """Return timeline and tree of a run; none where its single launches are not known.

    `numbers` are those of the kernels on the page by kernel_id, `trace` is what `read_trace` read.
    """
    events, missing = trace or read_trace(run)
    work = read_work(run, events)
    if work is None:
        return ()
    items = Items()
    kernels, gaps = kernel_items(run, numbers, work), gaps_of(work)
    rows = rows_of(run, kernels, items, work, gaps, events)
    tree = tree_of(work, gaps, kernels)
    note: Label = ""
    if missing:
        note = Text("Copies, ranges and CUDA calls are not shown: {missing}.", missing=missing)
    return parts_of(rows, items.all, tree, note)


def parts_of(
    rows: Sequence[Row], items: Sequence[Item], tree: Node, note: Label = ""
) -> tuple[TracePart, ...]:
    """Return timeline and tree as parts of a report; `note` says what they lack."""
    span = _span(rows)
    timeline = timeline_svg(rows, items, span, Word(ALT[TIMELINE]), note)
    icicle = tree_svg(tree, Word(ALT[TREE]))
    drawn = Drawn(rows, items, tree, span, note)
    return (
        TracePart(TIMELINE, TITLES[TIMELINE], ALT[TIMELINE], timeline, drawn),
        TracePart(TREE, TITLES[TREE], ALT[TREE], icicle),
    )


def pack(
    rows: Sequence[Row], items: Sequence[Item], tree: Node, span: tuple[int, int],
    note: Label = "", language: str = ENGLISH,
) -> str:  # fmt: skip
    """Return all that the script draws, as base64 of gzip; the same for the same rows.

    Length of the head (4 bytes, little endian), the head in JSON, then of each row the columns
    start (differences, the first to the origin), duration and item, of a row with bins also busy
    and count. A column is as many planes of bytes, the lowest first, as its head says.
    """
    planes: list[bytes] = []
    heads = []
    write = Writer(language).value
    origin = min((int(row.segments.start.min()) for row in rows if len(row.segments)), default=0)
    for row in rows:
        segments = row.segments
        columns = [np.diff(segments.start, prepend=origin), segments.duration, segments.item]
        if segments.width:
            columns += [segments.busy, segments.count]
        packed = [_planes(column) for column in columns]
        planes += [plane for plane, _ in packed]
        heads.append(
            {
                **{"group": write(row.group), "kind": row.kind, "name": write(row.name)},
                "n": len(segments),
                **{"width": segments.width, "bytes": [size for _, size in packed]},
            }
        )
    head = {
        "span": span,
        "origin": origin,
        "items": [
            [write(i.name), i.colour, i.kernel, i.stage, [*map(write, i.facts)]] for i in items
        ],
        "rows": heads,
        "legend": legend(rows, items),
        "tree": _nested(tree, write),
        "note": write(note),
    }
    text = json.dumps(head, separators=(",", ":")).encode()
    block = b"".join([len(text).to_bytes(4, "little"), text, *planes])
    return base64.b64encode(gzip.compress(block, _LEVEL, mtime=0)).decode()


def _planes(column: Array) -> tuple[bytes, int]:
    """Return the bytes of whole numbers, all lowest ones first, and how many each has."""
    size = max((int(column.max(initial=0)).bit_length() + 7) // 8, 1)
    planes = np.ascontiguousarray(column, "<u8").view(np.uint8).reshape(-1, 8)
    return planes[:, :size].T.tobytes(), size


def _nested(node: Node, write: Callable[[Label], str]) -> list[Any]:
    return [
        *(write(node.name), node.kind, node.busy_ns, node.idle_ns, node.launches, node.colour),
        *(node.kernel, [_nested(child, write) for child in node.children]),
    ]


def _span(rows: Iterable[Row]) -> tuple[int, int]:
    """Return the first and the last time (ns) of the GPUs' rows: the host begins long before."""
    found = [
        (int(s.start.min()), int((s.start + s.duration).max()))
        for row in rows
        if row.kind not in (RANGES, CALLS) and len(s := row.segments)
    ]
    return min(low for low, _ in found), max(high for _, high in found)
