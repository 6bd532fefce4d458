"""Sections of the report of a profiled serving engine: the model, its steps and its operators.

A module has `section(run) -> Section | None`; None where the run has nothing of the kind.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from nsight_prof.reports.bench.adapter import page_section

if TYPE_CHECKING:
    from nsight_prof.reports.load import Run
    from nsight_prof.reports.page import Finding, Section

SECTIONS = ("stages", "steps", "operators", "model")
"""Modules in the order of a report."""
BACKGROUND = "model"
"""Section about what is so without a run: it does not answer what the run was asked."""


def sections(run: Run) -> tuple[Section, ...]:
    """Return the sections that a profile run allows, in the order of the report."""
    made = []
    for name in SECTIONS:
        if find_spec(f"{__name__}.{name}") is not None:
            made.append(import_module(f"{__name__}.{name}").section(run))
    return tuple(page_section(section) for section in made if section is not None)


def leading(made: tuple[Section, ...]) -> tuple[Finding, ...]:
    """Return what leads the answer: two findings of the first section, one of each other.

    The first section of a serving engine is about prefill and decode, a finding each.
    """
    telling = [section for section in made if section.findings and section.key != BACKGROUND]
    first = telling[0].findings[:2] if telling else ()
    return (*first, *(section.findings[0] for section in telling[1:]))
