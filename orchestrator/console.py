"""The consoles that commands print to: as wide as wanted where there is no terminal."""

from __future__ import annotations

import errno
import os

from rich.console import Console


class _Console(Console):
    """A console over which a reader that has gone is an error as over all other output."""

    def on_broken_pipe(self) -> None:
        """Leave it to the command line; rich would exit with 1."""
        self.quiet = True
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def make_console(pipe_width: int | None = None, *, stderr: bool = False) -> Console:
    """Return a console; where it is no terminal, it is `pipe_width` columns wide."""
    made = _Console(stderr=stderr, highlight=False)
    if made.is_terminal or pipe_width is None:
        return made
    return _Console(stderr=stderr, highlight=False, width=pipe_width)
