"""Turns a program's output into the error whose words are found in it.

Logs are of any size and content: the patterns see the ends of a long log and the heads of its long
lines, and none begins with what fits everywhere, so that they take time in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from nsight_prof.parsers.errors import ProfError

# Regex -> what makes the error of its match; the first that fits counts.
Explanations = Sequence[tuple[str, Callable[[re.Match[str]], ProfError]]]
LONGEST_LOG, LONGEST_LINE, LONGEST_QUOTE = 1 << 19, 1000, 300


def first_known(known: Explanations, log: str) -> ProfError | None:
    """Return what `log` says about a failure, or None where it says nothing known."""
    text = _bounded(log)
    for pattern, make in known:
        match = re.search(pattern, text)
        if match:
            return make(match)
    return None


def line_of(match: re.Match[str]) -> str:
    """Return the line in which `match` begins, as far as a message can quote it."""
    begin = match.string.rfind("\n", 0, match.start()) + 1
    return match.string[begin:].partition("\n")[0].strip()[:LONGEST_QUOTE]


def _bounded(log: str) -> str:
    if len(log) > LONGEST_LOG:
        half = LONGEST_LOG // 2
        log = f"{log[:half]}\n{log[-half:]}"
    return "\n".join(line[:LONGEST_LINE] for line in log.split("\n"))
