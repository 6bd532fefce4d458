"""Text of the lines of Python that a trace sampled, kept beside it when it was recorded."""

from __future__ import annotations

import json
import linecache
import re
from pathlib import Path

import pandas as pd

SOURCES = "sources.json"
LONGEST = 400
"""Characters of a line that are kept."""
WORK = (("collecting garbage", re.compile(r"\bgc\.collect\(")),)
"""Work of the interpreter that leaves no frame of its own: it is known by the line that asks."""


def keep_sources(lines: pd.DataFrame, cwd: Path, path: Path) -> None:
    """Write the text of the program's lines in table `host_lines`, as far as it can be read.

    Files that the stacks name relative to a folder are sought in `cwd`.
    """
    texts: dict[str, dict[str, str]] = {}
    for file, line in lines[["file", "line"]].dropna().drop_duplicates().itertuples(index=False):
        if found := linecache.getline(str(cwd / file), int(line)).strip():
            texts.setdefault(file, {})[str(line)] = found[:LONGEST]
    linecache.clearcache()
    path.write_text(json.dumps(texts, indent=1) + "\n", encoding="utf-8")


def with_sources(lines: pd.DataFrame, path: Path | None) -> pd.DataFrame:
    """Return table `host_lines` with the text of its lines, and the work that only it tells."""
    try:
        texts = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError):
        texts = {}
    if not isinstance(texts, dict):
        texts = {}

    def text_of(file: str, line: int) -> str:
        of_file = texts.get(file)
        return str(of_file.get(str(line), "")) if isinstance(of_file, dict) else ""

    sources = [text_of(*position) for position in zip(lines["file"], lines["line"], strict=True)]
    works = [
        work or next((name for name, pattern in WORK if pattern.search(source)), "")
        for work, source in zip(lines["work"], sources, strict=True)
    ]
    return lines.assign(
        source=pd.Series(sources, index=lines.index, dtype="string"),
        work=pd.Series(works, index=lines.index, dtype="string"),
    )
