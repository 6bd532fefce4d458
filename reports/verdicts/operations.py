"""What a line of Python does that a finding is about: operations that experts know by name.

A line is known by its text, which was kept when it was sampled, or by the function of a library
that it is in. What it does becomes part of the title, and its remedy the first of the actions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.reports.analysis.lines import HostLine
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program import idle_rules
from nsight_prof.reports.findings.program.rule import of_row
from nsight_prof.reports.page import Text, Verbatim


class Operation(NamedTuple):
    """What a line does, behind "the program", and what to do about it.

    `pattern` is searched in the text of the line, `inner` in the innermost frame of a library,
    "file:line function"; an empty one is not searched.
    """

    does: Text
    action: Text
    pattern: str = ""
    inner: str = ""

    def is_at(self, line: HostLine) -> bool:
        """Tell whether a line does it."""
        of_text = bool(self.pattern) and re.search(self.pattern, line.source) is not None
        return of_text or (bool(self.inner) and re.search(self.inner, line.inner) is not None)


OPERATIONS = packaged_yaml("nsight_prof.reports.verdicts", "operations.yaml")
WAITS, WORKS, LAUNCHES = (
    tuple(of_row(Operation, row) for row in OPERATIONS[kind])
    for kind in ("waits", "works", "launches")
)
"""Operations for whose result the host waits, work of the host, and sources of small launches."""
PYTHON = of_row(Operation, OPERATIONS["python"])
"""What the host does at a line of its own that is none of these, in no library."""


CALLED = re.compile(r"([A-Za-z_][\w.]*)\(")
KEYWORDS = re.compile(
    r"^(?:if|for|while|return|elif|and|or|not|in|print|range|len|zip|enumerate|int|float|str|list"
    r"|dict|tuple|super|isinstance|append|items|size_t|sizeof|static_cast|reinterpret_cast)$"
)
"""Words before a bracket that are no operator, or say nothing of it."""
LISTED = 3


def calls_at(source: str) -> Text | str:
    """Return a sentence on what a line of source calls; empty where that is nothing, or unknown."""
    names = dict.fromkeys(
        name.removeprefix("self.") for name in CALLED.findall(source.partition("#")[0])
    )
    called = [Verbatim(name) for name in names if not KEYWORDS.search(name.split(".")[-1])][:LISTED]
    return Text(" It calls {names} there.", names=called) if called else ""


def with_operation(
    finding: Finding,
    lines: Sequence[HostLine],
    waits: Sequence[HostLine],
    *,
    of_items: bool = False,
) -> Finding:
    """Return a finding with what the program does at its lines, where that is known.

    `waits` are the lines at which the host waits for results, most samples first. `of_items`: the
    first line works on one item of a loop after another.
    """
    rule = finding.rule
    is_wait = rule == idle_rules.SYNC_STALLS.key
    is_wait |= rule == idle_rules.LAUNCH_BOUND.key and not finding.choice
    if is_wait:
        return _with_words(finding, _found(lines[:1], WAITS), _after(finding))
    if rule == idle_rules.RESULTS_ON_HOST.key:
        return _with_words(finding, _found(waits[:1], WAITS))
    if rule == idle_rules.LAUNCH_BOUND.key:
        operation = _found(lines[:1], LAUNCHES) or (LAUNCHES[-1] if of_items else None)
        return _with_words(finding, operation, _after(finding))
    if rule == idle_rules.HOST_BOUND.key and not finding.choice:
        default = PYTHON if lines[0].doing == "program" else None
        return _with_words(finding, _found(lines[:1], (*WAITS[:1], *WORKS, *WAITS[1:])) or default)
    return finding


def _found(lines: Sequence[HostLine], operations: Sequence[Operation]) -> Operation | None:
    return next((op for op in operations if any(op.is_at(line) for line in lines)), None)


def _after(finding: Finding) -> Text | None:
    """Return what to do after the operation is mended: launch less often."""
    return idle_rules.LAUNCH_BOUND.action if finding.rule == idle_rules.LAUNCH_BOUND.key else None


def _with_words(finding: Finding, operation: Operation | None, then: Text | None = None) -> Finding:
    if operation is None:
        return finding
    title = Text("{title}: the program {does}", title=finding.title, does=operation.does)
    action = operation.action
    if then is not None:
        action = Text("{action} Then: {then}", action=action, then=then)
    is_headline = finding.headline == finding.title
    return replace(
        finding, title=title, headline=title if is_headline else finding.headline, action=action
    )
