"""Shows control characters of foreign text as what they are, so that no terminal obeys them.

Names of kernels, output of programs and files that somebody sent may hold escape sequences.
"""

from __future__ import annotations

import re

# C0 without tab and line feed, DEL, C1, lone surrogates (bytes that were no UTF-8), and the marks
# that turn the direction of text.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Return `text` with control characters as escapes: \\x1b for ESC; tabs and lines stay."""
    if text.isprintable():  # nearly all: a report asks for a million cells
        return text
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text.replace("\r\n", "\n"))
