"""Text of the lines of Python that a trace sampled, kept beside it when it was recorded."""

from __future__ import annotations

import json
import linecache
import re
from collections.abc import Collection, Sequence
from pathlib import Path

import pandas as pd

from nsight_prof.parsers.names.activity import OWN_CODE

SOURCES = "sources.json"
MOVED = ">"
"""Behind the number of a line whose samples belong to another one, in the file of texts."""
LINE = re.compile(r"[1-9][0-9]{0,8}")
FURTHEST = 12
"""Lines that are looked at before and behind one."""
LOOP = re.compile(r"\s*(?:for|while)\b")
CALL_FREE = re.compile(
    r"(?!(?:elif|else|try|except|def|with|for|while)\b|[#\"'@])(?:(?![\w\]]\().)+"
)
"""A statement without a call."""
CHEAP = re.compile(
    r"(?:(?<![\w.])(?:len|int|float|str|range|zip|enumerate|abs|ord|min|max)\("
    r"|\.(?:append|write|encode|get|pop|items|values)\(|(?![\w\]]\().)+"
)
"""A statement whose calls do next to nothing."""
PLACE = ["file", "line"]
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
    known = lines[["file", "line"]].dropna().drop_duplicates()
    for file, line in known.itertuples(index=False):
        if found := linecache.getline(str(cwd / file), int(line)).strip():
            texts.setdefault(file, {})[str(line)] = found[:LONGEST]
            text_lines = linecache.getlines(str(cwd / file))
            at = working_line(text_lines, int(line), set(known.loc[known["file"] == file, "line"]))
            if at != line:
                texts[file][f"{line}{MOVED}"] = str(at)
                texts[file][str(at)] = text_lines[at - 1].strip()[:LONGEST]
    linecache.clearcache()
    path.write_text(json.dumps(texts, indent=1) + "\n", encoding="utf-8")


def working_line(text_lines: Sequence[str], line: int, sampled: Collection[int]) -> int:
    """Return the line that the samples of one of pure Python belong to.

    Who samples the stacks needs the interpreter's lock, which such code gives up where it calls or
    jumps back: at the head of a loop, or behind statements without a call. Their samples are those
    of what stands before, up to the last call; of a head they are of the longest line of its body.
    """
    text = text_lines[line - 1]
    margin = _margin(text)
    if not CHEAP.fullmatch(text.strip()):
        return line
    body = []
    for at in range(line + 1, min(line + FURTHEST, len(text_lines)) + 1):
        if text_lines[at - 1].strip() and _margin(text_lines[at - 1]) <= margin:
            break
        body.append(at)
    if LOOP.match(text):
        free = [at for at in body if at not in sampled]
        return max(free, key=lambda at: len(text_lines[at - 1].strip()), default=line)
    found = line
    for at in range(line - 1, max(line - FURTHEST, 0), -1):
        before = text_lines[at - 1]
        if not before.strip() or _margin(before) > margin:
            continue
        if _margin(before) < margin or at in sampled or not CALL_FREE.fullmatch(before.strip()):
            break
        found = at
    return found


def _margin(text: str) -> int:
    return len(text) - len(text.lstrip())


def with_sources(
    lines: pd.DataFrame, path: Path | None, timed: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return table `host_lines` with the text of its lines, and the work that only it tells.

    Where lines were timed, samples are at lines that these times tell, and some texts are theirs.
    """
    try:
        texts = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError):
        texts = {}
    if not isinstance(texts, dict):
        texts = {}

    is_timed = timed is not None and len(timed) > 0
    for file, line, found in (
        [] if timed is None else timed[[*PLACE, "source"]].itertuples(index=False)
    ):
        if isinstance(of_file := texts.setdefault(file, {}), dict):
            of_file.setdefault(str(line), found)

    def text_of(file: str, line: int | str) -> str:
        of_file = texts.get(file)
        return str(of_file.get(str(line), "")) if isinstance(of_file, dict) else ""

    if {"inner", "activity"} <= set(lines) and not is_timed:
        places = list(zip(lines["file"], lines["line"], strict=True))
        calling = {
            at for at, what in zip(places, lines["activity"], strict=True) if what != OWN_CODE
        }
        ends_here = lines["inner"].fillna("").eq("")
        moved = [
            int(at)
            if ends
            and (file, line) not in calling
            and LINE.fullmatch(at := text_of(file, f"{line}{MOVED}"))
            else line
            for (file, line), ends in zip(places, ends_here, strict=True)
        ]
        lines = lines.assign(line=pd.Series(moved, lines.index, dtype=lines["line"].dtype))
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
