"""Turns a run into findings ranked by what they gain for the whole program, and says what is open.

A finding needs evidence; what the evidence does not answer is in reports.findings.open_questions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from nsight_prof.parsers.run.run import Run, once
from nsight_prof.reports.findings.kernels.findings import bound_findings, kernel_findings
from nsight_prof.reports.findings.model import CAUSE_OF, Finding
from nsight_prof.reports.findings.open_questions import open_questions
from nsight_prof.reports.findings.padding import padding_findings
from nsight_prof.reports.findings.program.rules import program_findings
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.verdicts.lines import located

OVERVIEW = ("time", "bounds")
"""Findings about the whole program that come first: they have no gain of their own."""


@once
def findings(run: Run) -> list[Finding]:
    """Return what takes the time, and then everything else by its gain in time, largest first.

    A cause stands before its symptom in the same stage, which its repair may end.
    """
    found = program_findings(run)
    found += [*bound_findings(run), *kernel_findings(run, found), *padding_findings(run)]
    found = [located(run, finding) for finding in found]
    ranks = count(1)
    return [
        f if f.key in OVERVIEW else replace(f, rank=next(ranks))
        for f in sorted(found, key=lambda f: _order(f, found))
    ]


def _order(finding: Finding, found: Sequence[Finding]) -> tuple[int, float, int]:
    """Return a key by which the largest gain is first, and a cause right before its symptom."""
    symptoms = [f for f in found if f.rule in CAUSE_OF.get(finding.rule, ()) and _meet(f, finding)]
    gain = max(map(_gain, (finding, *symptoms)))
    return _position(finding), -gain, 0 if symptoms else 1


def _meet(first: Finding, second: Finding) -> bool:
    return first.key == second.key and first.stage == second.stage


def _position(finding: Finding) -> int:
    return OVERVIEW.index(finding.key) if finding.key in OVERVIEW else len(OVERVIEW)


def _gain(finding: Finding) -> float:
    if not math.isnan(finding.gain_ns):
        return finding.gain_ns
    if finding.counted_ns > 0:
        return finding.counted_ns
    return 0.0 if math.isnan(finding.gain_kernel) else finding.gain_kernel / 1e9


def headline(run: Run) -> list[str]:
    """Return at most three short sentences: what a reader should know first."""
    write = Writer()
    found = [f"{write.text(finding.headline)}." for finding in findings(run)]
    unanswered = [write.text(question.text) for question in open_questions(run)]
    # Who asked for counters and got none must learn that before the third finding.
    limit = 2 if run.counters.empty and unanswered else 3
    return [*found[:limit], *unanswered][:3]
