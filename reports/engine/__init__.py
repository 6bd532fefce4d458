"""Sections of a profiled serving engine; each is None where a run has no data for it."""

from __future__ import annotations

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.engine import collectives, model
from nsight_prof.reports.engine.operators.savings import Saving, Savings
from nsight_prof.reports.engine.operators.section import section as operators
from nsight_prof.reports.engine.stages.section import section as stages
from nsight_prof.reports.engine.steps.section import section as steps
from nsight_prof.reports.page import Finding, Section

__all__ = ["Saving", "Savings", "leading", "sections"]

BACKGROUND = (model.KEY, collectives.KEY)
"""Sections that do not answer what the run was asked."""


def sections(run: Run, savings: Savings) -> tuple[Section, ...]:
    """Return the sections that a profile run allows, in the order of the report.

    `savings` is what the report says of single kernels.
    """
    found = (
        stages(run),
        steps(run),
        operators(run, savings),
        model.section(run),
        collectives.section(run),
    )
    return tuple(section for section in found if section is not None)


def leading(sections: tuple[Section, ...]) -> tuple[Finding, ...]:
    """Return what leads the answer: two findings of the first section, one of each other.

    The first section of a serving engine is about prefill and decode, a finding each.
    """
    leads = [section for section in sections if section.findings and section.key not in BACKGROUND]
    first = leads[0].findings[:2] if leads else ()
    return (*first, *(section.findings[0] for section in leads[1:]))
