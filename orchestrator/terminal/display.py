"""Draws the progress of a run: a spinner on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.text import Text

from nsight_prof.orchestrator.terminal.console import make_console
from nsight_prof.parsers.run.directory import StepState

MARKS = {
    StepState.DONE: ("green", "done"),
    StepState.SKIPPED: ("dim", "kept"),
    StepState.FAILED: ("red", "failed"),
    StepState.UNSUPPORTED: ("yellow", "not possible here"),
}
# Without a terminal a line as often as this says that a long step still lives.
PLAIN_EVERY_S = 60.0


def make_display(quiet: bool = False) -> Display:
    """Return the display for stderr: stdout is left to the result. `quiet`: warnings alone."""
    console = make_console(stderr=True)
    return Display(console, live=console.is_terminal and not quiet, quiet=quiet)


class Display:
    """A `Progress` that writes to a console; `live` draws a spinner with the elapsed time."""

    def __init__(self, console: Console, live: bool, quiet: bool = False) -> None:
        self._console = console
        self.live = live
        self._quiet = quiet
        self._status: Status | None = None
        self._waiting: _Waiting | None = None
        self._began = 0.0
        self._said = 0.0
        self._part = self._detail = ""

    def variant(self, name: str, index: int, total: int) -> None:
        """Head the lines of one run of a sweep."""
        self._line(f"[bold]run {index} of {total}: {escape(name)}[/]")

    def started(self, step: str, waits_for: str) -> None:
        """Say what the step waits for."""
        self._stop()
        self._began = self._said = time.monotonic()
        self._part = self._detail = ""
        if self.live:
            self._waiting = _Waiting(step, waits_for, self._began)
            self._status = self._console.status(self._waiting)
            self._status.start()
        else:
            self._line(f"{step}: {escape(waits_for)}")

    def doing(self, step: str, substep: str, detail: str) -> None:
        """Show part and detail beside the spinner; else a line where a new part begins."""
        if self._waiting is not None and self.live:
            self._waiting.says = ": ".join(filter(None, (substep, detail)))
        elif substep != self._part:
            self._line(f"{step}: {escape(substep)}")
        self._part, self._detail = substep, detail

    def waits(self, step: str, seconds: float) -> None:
        """Say now and then that the step still lives; the spinner counts by itself."""
        if not self.live and time.monotonic() - self._said >= PLAIN_EVERY_S:
            self._said = time.monotonic()
            tail = f": {escape(self._detail)}" if self._detail else ""
            self._line(f"{step}: still waiting after {elapsed(seconds)}{tail}")

    def finished(self, step: str, state: StepState, note: str) -> None:
        """Say how the step ended, and how long it took."""
        self._stop()
        colour, word = MARKS.get(state, ("", state.value))
        seconds = time.monotonic() - self._began if self._began else 0.0
        tail = f" in {elapsed(seconds)}" if state == StepState.DONE else ""
        text = f"{step}: [{colour}]{word}[/]" if colour else f"{step}: {word}"
        self._line(text + tail + (f", {escape(note)}" if note else ""))
        self._began = 0.0

    def warning(self, sentence: str) -> None:
        """Print a warning above the spinner."""
        self._console.print(f"[yellow]warning:[/] {escape(sentence)}", soft_wrap=True)

    def close(self) -> None:
        """Take the spinner away, whatever happened."""
        self._stop()

    def _stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _line(self, text: str) -> None:
        if not self._quiet:
            self._console.print(text, soft_wrap=True)


class _Waiting:
    """What a step waits for, or what it says itself, with the elapsed time when it is drawn."""

    def __init__(self, step: str, waits_for: str, began: float) -> None:
        self._step, self._waits_for, self._began = step, waits_for, began
        self.says = ""

    def __rich__(self) -> Text:
        text = Text(
            f"{self._step}: {self.says or self._waits_for} ", no_wrap=True, overflow="ellipsis"
        )
        return Text(f"{elapsed(time.monotonic() - self._began)}  ", style="dim") + text


def elapsed(seconds: float) -> str:
    """Render a duration for people: 4.2 s, 3 min 12 s, 1 h 02 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
