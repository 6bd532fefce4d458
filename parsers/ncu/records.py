"""Turns the text of a saved CSV output of ncu into pages of records, past everything around them.

Around them: banners, the program's own output (also between two records, or in front of one on the
same line), and a record that was cut when the tool was killed.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field

# The last one is that of `--print-summary`, whose records are no single results.
_HEADER = re.compile(
    r'"ID",.*"Kernel Name"|^ID,.*Kernel Name|"Process ID",.*"Kernel Name",.*"Metric Name"'
)
_QUOTED = re.compile(r'"(?:\d+)?",')
_PLAIN = re.compile(r"\d*,")
_BEHIND_OUTPUT = re.compile(r'"\d+","\d+",".*')
# One value with all its instances (--print-metric-instances) is longer than csv's own limit.
csv.field_size_limit(1 << 30)


@dataclass
class Page:
    """One CSV page: its columns, its records, and how many of them were cut short."""

    header: list[str]
    records: list[list[str]] = field(default_factory=list)
    cut: int = 0


def split_pages(text: str) -> list[Page]:
    """Return the pages in `text`, in order; none where it holds no CSV header of ncu."""
    splitter = _Splitter()
    for line in text.split("\n"):
        splitter.line(line)
    splitter.end(complete=text.endswith("\n"))
    return splitter.pages


class _Splitter:
    def __init__(self) -> None:
        self.pages: list[Page] = []
        self._start = _QUOTED
        self._open: list[str] = []

    def line(self, line: str) -> None:
        if header := _HEADER.search(line):
            self._cut()
            start = header.start()
            self.pages.append(Page(_fields(line[start:])))
            self._start = _QUOTED if line[start] == '"' else _PLAIN
        elif self.pages:
            self._in_page(line)

    def _in_page(self, line: str) -> None:
        page = self.pages[-1]
        starts = self._start.match(line)
        if self._open and starts:
            self._cut()
        if not self._open and not starts:
            behind = _BEHIND_OUTPUT.search(line)
            if not behind:
                return
            line = behind.group()
        # A record ends where its quotes are even; each line is counted once, however many it has.
        closes = line.count('"') % 2 == bool(self._open)
        self._open.append(line)
        if closes:
            page.records.append(_fields("\n".join(self._open)))
            self._open = []

    def _cut(self) -> None:
        if self._open:
            self.pages[-1].cut += 1
            self._open = []

    def end(self, complete: bool) -> None:
        """Finish; where the last line has no end, its last plain field may have lost digits."""
        self._cut()
        if complete or self._start is _QUOTED or not self.pages or not self.pages[-1].records:
            return
        if self.pages[-1].records[-1][-1]:
            self.pages[-1].records[-1].pop()


def _fields(line: str) -> list[str]:
    return next(csv.reader([line]))
