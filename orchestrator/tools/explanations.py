"""Turns a program's output into the error whose words are found in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from nsight_prof.parsers.errors import ProfError

# Regex -> what makes the error of its match; the first that fits counts.
Explanations = Sequence[tuple[str, Callable[[re.Match[str]], ProfError]]]


def first_known(known: Explanations, log: str) -> ProfError | None:
    """Return what `log` says about a failure, or None where it says nothing known."""
    for pattern, make in known:
        match = re.search(pattern, log)
        if match:
            return make(match)
    return None
