"""Sections of a report about measured cases: one module a benchmark target.

A module has `section(run) -> Section | None` (None: the run has no such cases) and stands here,
mostly by the name of its target. Targets without a module get the table of reports.bench.generic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nsight_prof.reports.bench.models import Section
    from nsight_prof.reports.load import Run

SECTIONS = (
    "roofline",
    "memory_patterns",
    "gemm_staircase",
    "llm_kernels",
    "serving_baseline",
    "serving_load",
)
"""Modules of targets that have one of their own, in the order of a report."""

TARGETS = {"serving_baseline": "vllm-baseline", "serving_load": "vllm-serve"}
"""Target of a module that is not named like it."""

EXPLAINED = {
    "roofline": ("Roofs of this GPU", "no roof was measured"),
    "memory_patterns": ("Memory as programs see it", "no case has an access pattern and a time"),
    "gemm_staircase": ("Shapes of matrix products", "no product of the sweep has a time"),
    "llm_kernels": ("The operations of a transformer", "no operation has a time"),
    "serving_baseline": ("How fast the engine serves", "no point has a time"),
    "serving_load": ("The server under load", "no load has a time"),
    "repeatability": (
        "Repeatability",
        "the recipe ran once; prof run RECIPE --repeat 3 tells how well it repeats",
    ),
}
"""Title of each section, and why a report of its target may be without it."""


def sections(run: Run) -> Iterator[Section]:
    """Yield the sections that the cases of `run` allow, in the order of the report."""
    told = set()
    for name in SECTIONS:
        made = _module(name)(run)
        if made is not None:
            told.add(TARGETS.get(name, name))
            yield made
    rest = import_module(f"{__name__}.generic").section(run, told)
    repeats = import_module(f"{__name__}.repeatability").section(run)
    yield from (made for made in (rest, repeats) if made is not None)


def _module(name: str) -> Callable[[Run], Section | None]:
    section: Callable[[Run], Section | None] = import_module(f"{__name__}.{name}").section
    return section
