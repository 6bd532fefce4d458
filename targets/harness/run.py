"""The command line of a benchmark target: cases in, one JSON line a case out."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence

from targets.harness.api import Case


def run_target(
    target: str,
    cases: Callable[[Namespace], Iterable[Case]],
    argv: Sequence[str] | None = None,
    *,
    description: str,
    add_arguments: Callable[[ArgumentParser], None] | None = None,
) -> int:
    """Measure the cases of a target; return the exit code."""
    raise NotImplementedError
