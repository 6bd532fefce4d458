"""What went wrong with an engine, and what to do about it."""

from __future__ import annotations

import sys


class EngineFailure(Exception):
    """An engine that could not be started or used.

    Attributes:
        message: what happened, in one sentence.
        hint: what to do about it.
        status: "out-of-memory", "failed" or "unsupported", as records name it.
        dead: True where the engine cannot be used any more.
    """

    def __init__(self, message: str, hint: str, status: str = "failed", dead: bool = True) -> None:
        super().__init__(message)
        self.message, self.hint, self.status, self.dead = message, hint, status, dead


def complain(failure: EngineFailure) -> None:
    """Print a failure to stderr: `error: …`, an empty line, `hint: …`."""
    print(f"error: {failure.message}\n\nhint: {failure.hint}", file=sys.stderr, flush=True)
