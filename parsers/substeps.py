"""Says what a long computation does now, to whoever watches it; nobody, by default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Watcher = Callable[[str, str], None]


def _nobody(_name: str, _detail: str) -> None:
    """Ignore it."""


_watcher: ContextVar[Watcher] = ContextVar("watcher", default=_nobody)


def substep(name: str, detail: str = "") -> None:
    """Say which part begins, and what of it: "figures", "roofline"."""
    _watcher.get()(name, detail)


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Let `watcher` hear of all parts that begin within."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)
