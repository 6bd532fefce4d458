"""Profiles CUDA programs with Nsight and reports what limits their kernels.

For programs and notebooks: ``from nsight_prof import load_run``; docs/api.md has the columns.
The packages beside this file are links to the folders at the top of the checkout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsight_prof.reports.notebook import NotebookRun as Run
    from nsight_prof.reports.notebook import load_run as load_run

__all__ = ["Run", "load_run"]


def __getattr__(name: str) -> Any:
    """Import what the API offers when it is first asked for: pandas takes a second."""
    if name in __all__:
        from nsight_prof.reports import notebook

        return {"Run": notebook.NotebookRun, "load_run": notebook.load_run}[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
