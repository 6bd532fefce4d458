"""Why torch.compile compiled again, as it tells on stderr (TORCH_LOGS=recompiles, PyTorch 2.13)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from nsight_prof.parsers import tables

TABLE = "recompilations"
MOST_BYTES = 64 << 20
LINE = re.compile(r"\[__recompiles\] (.*)")
AGAIN = re.compile(r"Recompiling function (\S+) in (.+):([1-9][0-9]{0,8})$")
GUARD = re.compile(r"\s*- \d+/\d+: (.*)")
FRAME = re.compile(r'\s*-\s+File "(.+)", line ([1-9][0-9]{0,8}), in (\S+)')
TEXT = re.compile(r"\s*-\s+(\S.*)")


def read_recompilations(log: Path) -> pd.DataFrame:
    """Return table `recompilations` of a log; empty where torch words nothing."""
    try:
        with log.open("rb") as file:
            words = LINE.findall(file.read(MOST_BYTES).decode("utf-8", "replace"))
    except OSError:
        words = []
    columns = ["function", "file", "line", "source", "guard"]
    rows = pd.DataFrame(_recompilations(words), columns=columns)
    if rows.empty:
        return tables.empty(TABLE)
    by = ["file", "line", "function", "source"]
    found = rows.groupby(by, as_index=False).agg(
        guard=("guard", "last"), compilations=("guard", "size")
    )
    found = found.sort_values("compilations", ascending=False, kind="stable")
    return tables.check(found, TABLE)


def _recompilations(words: list[str]) -> Iterator[tuple[str, str, int, str, str]]:
    """Yield the place and guard of each: the first guard that failed is that of the newest code."""
    for at, line in enumerate(words):
        again = AGAIN.match(line)
        if again is None:
            continue
        function, file, number = again.groups()
        guard, source = "", ""
        for of, more in enumerate(words[at + 1 :], at + 1):
            if AGAIN.match(more) or (guard and GUARD.match(more)):
                break
            if found := GUARD.match(more):
                guard = found[1].partition("  #")[0].strip()
            elif frame := FRAME.match(more):
                file, number, function = frame.groups()
                text = TEXT.match(words[of + 1]) if of + 1 < len(words) else None
                source = text[1] if text else ""
        yield function, file, int(number), source, guard
