"""What a run tells whoever watches it: steps, what they wait for, elapsed time, warnings."""

from __future__ import annotations

from typing import Protocol

from nsight_prof.parsers.run.directory import StepState


class Progress(Protocol):
    """The watcher of a run; the command line draws it, tests record it."""

    def variant(self, name: str, index: int, total: int) -> None:
        """Say that run `index` (1-based) of the `total` runs of a sweep starts."""

    def started(self, step: str, waits_for: str) -> None:
        """Say that a step starts, and what it waits for: `nsys profile python llm_block.py`."""

    def doing(self, step: str, substep: str, detail: str) -> None:
        """Say what a running step does now: `process 2 of 3`, and the last line that it printed.

        `substep` is empty where the step has no parts, `detail` where it has printed nothing.
        """

    def waits(self, step: str, seconds: float) -> None:
        """Say a few times per second that the step still waits, `seconds` after its start."""

    def finished(self, step: str, state: StepState, note: str) -> None:
        """Say how a step ended; `note` is the reason where it did not end as done."""

    def warning(self, sentence: str) -> None:
        """Say what the reader should know; the same sentence is in the manifest."""


class Silent:
    """A watcher that says nothing."""

    def variant(self, name: str, index: int, total: int) -> None:
        """Ignore it."""

    def started(self, step: str, waits_for: str) -> None:
        """Ignore it."""

    def doing(self, step: str, substep: str, detail: str) -> None:
        """Ignore it."""

    def waits(self, step: str, seconds: float) -> None:
        """Ignore it."""

    def finished(self, step: str, state: StepState, note: str) -> None:
        """Ignore it."""

    def warning(self, sentence: str) -> None:
        """Ignore it."""
