"""Replaces the part of a page that a script writes, between two comments."""

from __future__ import annotations

from pathlib import Path


def write_marked(page: Path, script: str, text: str) -> None:
    """Write `text` between the comments of `page` that name `script`."""
    begin, end = f"<!-- Written by {script}; do not edit. -->", f"<!-- End of {script}. -->"
    before, first, rest = page.read_text(encoding="utf-8").partition(begin)
    _, last, after = rest.partition(end)
    if not first or not last:
        raise SystemExit(f"error: {page} has no place for {script}\n\nhint: {begin}\n{end}")
    page.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", encoding="utf-8")
