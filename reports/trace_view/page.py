"""Timeline and tree of a run as parts of its report: an SVG for markdown, HTML that can be zoomed.

The page gets all rows as one packed block: a head in JSON, then the columns of all rows as planes
of bytes, which compress well. The script of the page unpacks and draws them; without it the still
pictures stay.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nsight_prof.parsers.nsys.bins import Array
from nsight_prof.parsers.nsys.events import Events
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.trace_view.models import Item, Items, Node, Row
from nsight_prof.reports.trace_view.still import legend, timeline_svg, tree_svg
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
FALLBACK = (
    "A still picture of the whole run: to zoom into it takes a browser with JavaScript and "
    "DecompressionStream."
)
_LEVEL = 6


@dataclass(frozen=True)
class TracePart:
    """One part of a report: `svg` is the file `name`.svg, `html` what the HTML page has instead."""

    name: str
    title: str
    alt: str
    svg: str
    html: str


def trace_parts(
    run: Run, numbers: Mapping[str, int], trace: tuple[Events | None, str] | None = None
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
    note = f"Copies, ranges and CUDA calls are not shown: {missing}." if missing else ""
    return parts_of(rows, items.all, tree, note)


def parts_of(
    rows: Sequence[Row], items: Sequence[Item], tree: Node, note: str = ""
) -> tuple[TracePart, ...]:
    """Return timeline and tree as parts of a report; `note` says what they lack."""
    span = _span(rows)
    timeline, inline = timeline_svg(rows, items, span, ALT[TIMELINE], note)
    icicle, inline_icicle = tree_svg(tree, ALT[TREE])
    bodies = {
        TIMELINE: (timeline, _html("trace", inline, pack(rows, items, tree, span, note))),
        TREE: (icicle, _html("trace-tree", inline_icicle)),
    }
    return tuple(TracePart(name, TITLES[name], ALT[name], *both) for name, both in bodies.items())


def pack(
    rows: Sequence[Row], items: Sequence[Item], tree: Node, span: tuple[int, int], note: str = ""
) -> str:
    """Return all that the script draws, as base64 of gzip; the same for the same rows.

    Length of the head (4 bytes, little endian), the head in JSON, then of each row the columns
    start (differences, the first to the origin), duration and item, of a row with bins also busy
    and count. A column is as many planes of bytes, the lowest first, as its head says.
    """
    planes: list[bytes] = []
    heads = []
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
                **{"group": row.group, "kind": row.kind, "name": row.name, "n": len(segments)},
                **{"width": segments.width, "bytes": [size for _, size in packed]},
            }
        )
    head = {
        "span": span,
        "origin": origin,
        "items": [[i.name, i.colour, i.kernel, i.stage, list(i.facts)] for i in items],
        "rows": heads,
        "legend": legend(rows, items),
        "tree": _nested(tree),
        "note": note,
    }
    text = json.dumps(head, separators=(",", ":")).encode()
    block = b"".join([len(text).to_bytes(4, "little"), text, *planes])
    return base64.b64encode(gzip.compress(block, _LEVEL, mtime=0)).decode()


def _planes(column: Array) -> tuple[bytes, int]:
    """Return the bytes of whole numbers, all lowest ones first, and how many each has."""
    size = max((int(column.max(initial=0)).bit_length() + 7) // 8, 1)
    planes = np.ascontiguousarray(column, "<u8").view(np.uint8).reshape(-1, 8)
    return planes[:, :size].T.tobytes(), size


def _nested(node: Node) -> list[Any]:
    return [
        *(node.name, node.kind, node.busy_ns, node.idle_ns, node.launches, node.colour),
        *(node.kernel, [_nested(child) for child in node.children]),
    ]


def _span(rows: Iterable[Row]) -> tuple[int, int]:
    """Return the first and the last time (ns) of the GPUs' rows: the host begins long before."""
    found = [
        (int(s.start.min()), int((s.start + s.duration).max()))
        for row in rows
        if row.group.startswith("GPU") and len(s := row.segments)
    ]
    return min(low for low, _ in found), max(high for _, high in found)


def _html(name: str, picture: str, data: str = "") -> str:
    packed = f'<script type="application/octet-stream" class="data">{data}</script>' if data else ""
    note = f'<p class="fallback">{FALLBACK}</p>' if data else ""
    return (
        f'<div class="{name}" id="{name}"><div class="live" hidden></div>'
        f'<div class="still">{picture}</div>{note}{packed}</div>'
    )
