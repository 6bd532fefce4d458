"""What commands print to: consoles as wide as wanted, and no control characters of others."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from nsight_prof.parsers.printable import printable


class _Console(Console):
    """A console over which a reader that has gone is an error as over all other output.

    Control characters within texts (of kernel names, say) are shown, not sent to the terminal.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Give the segments of what is printed."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)

    def on_broken_pipe(self) -> None:
        """Leave it to the command line; rich would exit with 1."""
        self.quiet = True
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def make_console(pipe_width: int | None = None, *, stderr: bool = False) -> Console:
    """Return a console; where it is no terminal, it is `pipe_width` columns wide."""
    console = _Console(stderr=stderr, highlight=False)
    if console.is_terminal or pipe_width is None:
        return console
    return _Console(stderr=stderr, highlight=False, width=pipe_width)
