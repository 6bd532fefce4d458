"""Explains tidy tables: rooflines, bounds, findings, plots and rendered reports.

For programs and notebooks: ``from reports import load_run``; docs/api.md has the columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reports.load import Run as Run
    from reports.load import load_run as load_run

__all__ = ["Run", "load_run"]


def __getattr__(name: str) -> Any:
    """Import what the API offers when it is first asked for: pandas takes a second."""
    if name in __all__:
        from reports import load

        return getattr(load, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
