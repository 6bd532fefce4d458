"""Times the timeline of a made-up trace: level of detail, packing and size of the page's block.

    python scripts/bench_timeline.py [LAUNCHES] [--page FILE]

Prints CPU seconds and megabytes; with --page the HTML file, to be opened in a browser.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from nsight_prof.parsers.nsys.bins import reduced
from nsight_prof.reports.render.html_page import html_page
from nsight_prof.reports.trace_view.models import KERNELS, Item, Node, Row
from nsight_prof.reports.trace_view.page import TIMELINE, pack, parts_of
from nsight_prof.reports.trace_view.tracks import MOST_LAUNCHES

COLOURS = ("blue", "orange", "green", "vermillion", "sky", "purple", "grey")
KINDS = 60


def made_up(launches: int) -> tuple[list[Row], list[Item]]:
    """Return the row of a decoder's stream: layers of the same kernels again and again."""
    random = np.random.default_rng(7)
    usual = random.lognormal(8.5, 1.0, KINDS)
    item = np.arange(launches) % KINDS
    duration = (usual[item] * random.normal(1, 0.02, launches)).clip(500).astype(np.int64)
    pause = random.exponential(900, launches).astype(np.int64)
    start = np.cumsum(duration + pause) - duration
    items = [Item(f"kernel {n}", COLOURS[n % len(COLOURS)], n + 1, "decode") for n in range(KINDS)]
    segments = reduced(start, duration, item, MOST_LAUNCHES)
    return [Row("GPU 0", KERNELS, "stream 7", segments)], items


def main() -> None:
    """Make the rows, time each step and print what it cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("launches", nargs="?", type=int, default=10_000_000)
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    begun = time.process_time()
    rows, items = made_up(given.launches)
    made = time.process_time()
    tree = Node("whole run", busy_ns=int(rows[0].segments.busy.sum()), launches=given.launches)
    last = int(rows[0].segments.start[-1])
    data = pack(rows, items, tree, (0, last))
    packed = time.process_time()
    print(f"{given.launches:,} launches, {len(rows[0].segments):,} segments")
    print(f"made and reduced {made - begun:.2f} s, packed {packed - made:.2f} s of CPU")
    print(f"{len(data) / 1e6:.2f} MB")
    if given.page:
        parts = parts_of(rows, items, tree)
        text = f"# Timeline\n\n![t]({TIMELINE}.svg)\n"
        page = html_page(text, figures={part.name: part.html() for part in parts})
        given.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
