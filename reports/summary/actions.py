"""What to do: findings with one remedy are one action, the largest gain first."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from nsight_prof.reports.analysis.stages import stage_words
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program.copies import CHANNELS_LAST
from nsight_prof.reports.findings.program.fusion import ELEMENTWISE_CHAIN
from nsight_prof.reports.findings.program.idle_rules import LAUNCH_BOUND
from nsight_prof.reports.findings.program.launch_rules import SMALL_KERNELS
from nsight_prof.reports.page import Number, Text
from nsight_prof.reports.profile.view_models import ReportView
from nsight_prof.reports.summary.choices import MINIMUM
from nsight_prof.reports.summary.models import Action, Savings, Step
from nsight_prof.reports.summary.plain_words import ACTIONS, COSTS, EFFORT, NO_COSTS, PROBLEMS
from nsight_prof.reports.summary.savings import OF_IDLE, is_near, kernels_of, most_ns
from nsight_prof.reports.summary.time_parts import job

LONGEST, SUBJECTS, STAGES = 5, 3, 2
"""Actions; kinds of kernels and stages that one of them names."""
IN_TORCH = {
    CHANNELS_LAST[0]: Text("Keep images channels-last, as convolutions read them"),
    LAUNCH_BOUND.action: ACTIONS[LAUNCH_BOUND.key],  # of gaps of a framework, too
    SMALL_KERNELS.action: Text("Merge tiny steps: CUDA graphs or torch.compile"),
    ELEMENTWISE_CHAIN.action: Text("Fuse steps that pass data through memory: torch.compile"),
}
"""What to do in a few words, by the action of a finding that names functions of PyTorch."""


def actions(view: ReportView, saved: Savings) -> tuple[Action, ...]:
    """Return what to do, the largest gain first."""
    total_ns = view.run_time.whole_ns or 0.0
    found = list[Action]()
    for step in saved.steps[:LONGEST]:
        if max(step.saves_ns, step.most_ns) < MINIMUM * total_ns:
            continue
        lead, do = step.findings[0], remedy(view, step)
        if step.is_choice:
            costs = COSTS.get(lead.rule) or NO_COSTS
            do = Text("{what}. The owner's choice. Costs: {costs}", what=do, costs=costs)
        found.append(
            Action(
                do,
                Number(step.saves_ns, "ns"),
                Number(step.saves_ns / total_ns, "fraction"),
                Number(step.estimate_ns, "ns"),
                Number(step.most_ns, "ns"),
                step.sure,
                step.because,
                EFFORT.get(lead.rule) or EFFORT.get(lead.key, "medium"),
                tuple((f.rank or 0, f.anchor) for f in step.findings),
                f"step-{len(found) + 1}",
                share_of(view, step),
                Number(sum(most_ns(view, finding) for finding in step.findings), "ns"),
            )
        )
    return tuple(found)


def share_of(view: ReportView, step: Step) -> float | None:
    """Return the part of the run that a step acts on: its kernels, or idle time; None if unknown.

    A finding may be about more than the kernels that the report lists.
    """
    time = view.run_time
    if step.findings[0].key in OF_IDLE:
        return time.idle_ns / time.whole_ns if time.idle_ns and time.whole_ns else None
    kernels = {k.number: k for finding in step.findings for k in kernels_of(view, finding)}
    if not kernels:
        return None
    unlisted = sum(
        max(0.0, finding.share - sum(k.share or 0.0 for k in kernels_of(view, finding)))
        for finding in step.findings
        if not math.isnan(finding.share)
    )
    return time.of_whole(sum(kernel.share or 0.0 for kernel in kernels.values()) + unlisted)


def near_limits(view: ReportView) -> tuple[Text, ...]:
    """Return what to do where all that is large runs near its limit already."""
    groups: dict[Text, list[Finding]] = defaultdict(list)
    for finding in view.findings:
        if finding.advice and is_near(view, finding):
            groups[finding.advice].append(finding)
    return tuple(
        Text("{what}: {advice}", what=subjects(view, found), advice=advice)
        for advice, found in groups.items()
    )


def remedy(view: ReportView, step: Step) -> Text:
    """Return what to do in a few words: for what, where that does not go without saying."""
    lead = step.findings[0]
    stages = list(dict.fromkeys(f.stage for f in step.findings if f.stage not in ("", "(all)")))
    short = IN_TORCH.get(lead.action) or ACTIONS.get(lead.rule)
    if lead.key == "kernel" or short is None:
        what = subjects(view, step.findings) if lead.key == "kernel" else problem(lead)
        return Text("{what}: {advice}", what=what, advice=lead.advice or Text(""))
    return _in_stages(short, stages)


def _in_stages(what: Text, stages: Sequence[str]) -> Text:
    """Return what is said with the stages that it is said of, where these are few."""
    if not 0 < len(stages) <= STAGES:
        return what
    return Text("{what} (in {stage})", what=what, stage=[stage_words(stage) for stage in stages])


def problem(finding: Finding) -> Text:
    """Return what is wrong without its numbers, which are of a stage: the gain says the rest."""
    return PROBLEMS.get(finding.rule) or PROBLEMS.get(finding.key) or finding.title


def subjects(view: ReportView, findings: Sequence[Finding]) -> Text:
    """Return what kernels of findings do, in plain words, and in which stage if it is one."""
    found = (next(iter(kernels_of(view, finding)), None) for finding in findings)
    leads = [lead for lead in found if lead is not None]
    kinds = list(dict.fromkeys(job(lead) for lead in leads))
    more = [Text("others")] if len(kinds) > SUBJECTS else []
    stages = list(dict.fromkeys(stage for lead in leads for stage in lead.stages))
    several = Text("{several}", several=[*kinds[:SUBJECTS], *more])
    return _in_stages(several, stages if len(stages) == 1 and len(view.stages) > 2 else ())
