"""Parts of pages that scripts write between two comments, and links between such pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path


def write_marked(page: Path, script: str, text: str) -> None:
    """Write `text` between the comments of `page` that name `script`."""
    begin, end = f"<!-- Written by {script}; do not edit. -->", f"<!-- End of {script}. -->"
    before, first, rest = page.read_text(encoding="utf-8").partition(begin)
    _, last, after = rest.partition(end)
    if not first or not last:
        raise SystemExit(f"error: {page} has no place for {script}\n\nhint: {begin}\n{end}")
    page.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", encoding="utf-8")


def anchor(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def linked(pages: Mapping[str, str]) -> dict[str, str]:
    """Return pages by file name, in which links to headings of another one name that one."""
    at = {
        anchor(heading): name
        for name, text in pages.items()
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }

    def link(name: str, place: str) -> str:
        return f"]({'' if at[place] == name else at[place]}#{place})"

    return {
        name: re.sub(r"\]\(#([^)]*)\)", lambda found, name=name: link(name, found[1]), text)  # type: ignore[misc]
        for name, text in pages.items()
    }
