"""What to do: findings with one remedy are one action, the largest gain first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.page import Name, Number, Text
from nsight_prof.reports.page.formats import brief
from nsight_prof.reports.profile.view_models import KernelRow, ReportView
from nsight_prof.reports.summary.models import Action
from nsight_prof.reports.summary.plain_words import ACTIONS, EFFORT, KINDS, PROBLEMS
from nsight_prof.reports.summary.savings import Savings, Step, is_near, kernels_of

LONGEST, SUBJECTS, STAGES = 5, 3, 2
"""Actions; kinds of kernels and stages that one of them names."""
MINIMUM = 0.01
"""Part of the run from which on a gain is worth a row."""


def actions(view: ReportView, saved: Savings) -> tuple[Action, ...]:
    """Return what to do, the largest gain first."""
    whole = view.run_time.whole_ns or 0.0
    remaining, found = whole, []
    for step in saved.steps[:LONGEST]:
        if step.saves_ns < MINIMUM * whole:
            continue
        remaining = max(0.0, remaining - step.saves_ns)
        lead = step.findings[0]
        found.append(
            Action(
                remedy(view, step),
                Number(step.saves_ns, "ns"),
                Number(step.saves_ns / whole, "fraction"),
                lead.confidence,
                EFFORT.get(lead.rule) or EFFORT.get(lead.key, "medium"),
                Number(remaining, "ns"),
                lead.anchor,
            )
        )
    return tuple(found)


def near_limits(view: ReportView) -> tuple[Text, ...]:
    """Return what to do where all that is large runs near its limit already."""
    groups: dict[Text, list[Finding]] = defaultdict(list)
    for finding in view.findings:
        if finding.plain and is_near(view, finding):
            groups[finding.plain].append(finding)
    return tuple(
        Text("{what}: {advice}", what=subjects(view, found), advice=advice)
        for advice, found in groups.items()
    )


def remedy(view: ReportView, step: Step) -> Text:
    """Return what to do in a few words: for what, where that does not go without saying."""
    lead = step.findings[0]
    stages = list(dict.fromkeys(f.stage for f in step.findings if f.stage not in ("", "(all)")))
    short = ACTIONS.get(lead.rule)
    if lead.key == "kernel" or short is None:
        what = subjects(view, step.findings) if lead.key == "kernel" else problem(lead)
        return Text("{what}: {advice}", what=what, advice=lead.plain or Text(""))
    if not 0 < len(stages) <= STAGES:
        return short
    return Text("{what} (in {stage})", what=short, stage=stages)


def problem(finding: Finding) -> Text:
    """Return what is wrong without its numbers, which are of a stage: the gain says the rest."""
    return PROBLEMS.get(finding.rule) or PROBLEMS.get(finding.key) or finding.title


def subjects(view: ReportView, findings: Sequence[Finding]) -> Text:
    """Return what kernels of findings do, in plain words."""
    leads = (next(iter(kernels_of(view, finding)), None) for finding in findings)
    kinds = list(dict.fromkeys(_subject(lead) for lead in leads if lead is not None))
    more = [Text("others")] if len(kinds) > SUBJECTS else []
    return Text("{several}", several=[*kinds[:SUBJECTS], *more])


def _subject(kernel: KernelRow) -> Text | Name:
    kind = KINDS.get(kernel.category)
    if kind is None or kernel.library in ("", "other"):
        return Name(brief(kernel.short_name, 40))
    return kind
