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
_MADE = r"(?:rand\w*|zeros|ones|full|arange|linspace|eye)"
WORK = (
    ("collecting garbage", re.compile(r"\bgc\.collect\(")),
    ("sleeping", re.compile(r"\bsleep\(")),
    (
        "files",
        re.compile(
            r"\bopen\(|\.tofile\(|\b(?:json|pickle)\.(?:load|dump)\(|\.(?:read|write)_\w+\("
        ),
    ),
    ("logging", re.compile(r"^print\(|\blog(?:ger|ging)?\.(?:debug|info|warning|error)\(")),
    ("capturing graphs", re.compile(r"\btorch\.cuda\.graph\(")),
    (
        "tensors of the host",
        re.compile(rf"\btorch\.{_MADE}\((?!.*device\s*=).*\)(?:\.\w+\([^()]*\))*\.(?:to|cuda)\("),
    ),
    ("computing on the host", re.compile(r"\b(?:np|numpy|scipy|pd|cv2)\.\w")),
)
"""Work that leaves no frame of its own, as functions in C do: known by the line that asks for it,
where the stack ends at that line."""


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
    ends = lines["inner"].fillna("").eq("") if "inner" in lines else [True] * len(lines)
    works = [
        work or next((name for name, pattern in WORK if is_end and pattern.search(source)), "")
        for work, source, is_end in zip(lines["work"], sources, ends, strict=True)
    ]
    return lines.assign(
        source=pd.Series(sources, index=lines.index, dtype="string"),
        work=pd.Series(works, index=lines.index, dtype="string"),
    )
