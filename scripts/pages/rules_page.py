"""Makes docs/rules.md: every rule behind a finding, from the rules that the reports use."""

from __future__ import annotations

from collections.abc import Iterable

from nsight_prof.reports.findings.kernels.fact import All, AnyOf, Condition, Expression
from nsight_prof.reports.findings.kernels.roofs import FULL, FULL_SOURCE, ROOFS
from nsight_prof.reports.findings.kernels.rule import Rule
from nsight_prof.reports.findings.kernels.rules import RULES
from nsight_prof.reports.findings.program.backends import BACKENDS
from nsight_prof.reports.findings.program.rule import Rule as ProgramRule
from nsight_prof.reports.findings.program.rules import RULES as OF_PROGRAMS
from nsight_prof.reports.findings.values.findings import RULES as OF_VALUES
from nsight_prof.reports.page import Text
from nsight_prof.reports.page.writer import Writer

PROGRAM_RULES = (*OF_PROGRAMS, *OF_VALUES)
INTRO = """# Rules of the findings

A finding of a report comes from one of these rules; `cause` in `metrics.json` is its key. A rule
fires where all of its conditions hold, and abstains where a number that decides is not known: the
report says so. Thresholds of NVIDIA are those of the section files of Nsight Compute 2025.

The gain of a kernel's rule is an estimate of its time saved. It never goes beyond the roof: a
resource that the fix does not relieve (DRAM, L2, L1, a pipe, the issue slots) takes as long as
it is busy now. The gain for the program is that of the kernel times its share (Amdahl).

What bounds a kernel is what it uses most: bytes or FLOPs over a roof, or the cycles in which one
unit is busy (the units that Nsight Compute's SpeedOfLight looks at, each as a part of all cycles).
From 80 % on the kernel is bound by it; from 60 to 80 % the report names two things, the second one
that is used as much or what the warps wait for; below 60 % the kernel waits. Where Nsight Compute
says that a unit is busier which was not counted, the bound is left open. Bytes through DRAM are
held to the roof for their mix of reads and writes, where that was measured.

A kernel at a roof (60 % or more of one) is explained by a defect only where the fix takes work
off that roof. One that waits is explained by the first cause that is found: defects, then too few
warps, then what the warps wait for. Of several defects the one with the largest gain comes first.

What warps wait for can contradict a roof or a defect: below {full} of a roof
({source}) the confidence is then a step
lower, and the finding says so. Other doubts cost a step each: ncu and nsys disagree on the
duration, the launch was joined by a loose name, the share of the GPU time is not known, or the gain
ends at the shortest launch of the trace, which is that of another kernel. Launches that do
different work cost two steps.

"Issue slots busy, of the active cycles" leaves out the time in which an SM holds no warp: rules
about waits look at that. What bounds a kernel is the share of all cycles.

Counters do not tell bytes that are needed from those that come twice. A program that knows prints a
line of JSON, and `l2_thrashing` holds its kernels to it: bytes that a launch must move through
DRAM.

```json
{"work": [{"kernel": "part of its name", "stage": "decode", "bytes": 268435456}]}
```
"""


def rules_page() -> str:
    """Return the page as markdown."""
    intro = INTRO.replace("{full}", f"{FULL:g} %").replace("{source}", FULL_SOURCE)
    parts = [intro, "## Kernels\n", _kernel_table(RULES), _saturated()]
    parts += [_kernel_section(rule) for rule in RULES]
    parts += ["## The program\n", _program_table()]
    parts += [_program_section(rule) for rule in PROGRAM_RULES]
    parts += ["### Kernels of which a better one is usual", "", _backends()]
    return "\n".join(parts).rstrip() + "\n"


def _kernel_table(rules: Iterable[Rule]) -> str:
    lines = ["| Rule | Question | Fires where |", "| --- | --- | --- |"]
    lines += [f"| [{r.key}](#{r.key}) | {r.question} | {_words(r.when)} |" for r in rules]
    return "\n".join(lines) + "\n"


def _words(expression: Expression) -> str:
    """Return an expression in words; tests of what a kernel is are told by the question."""
    if isinstance(expression, Condition):
        label = expression.fact.label
        return f"{_english(label)} {_english(expression.threshold)}" if label else ""
    if isinstance(expression, AnyOf):
        return "; ".join(map(_words, expression.members))
    assert isinstance(expression, All)
    both = " and ".join(
        w for p in expression.members if not isinstance(p, AnyOf) and (w := _words(p))
    )
    either = [_words(p) for p in expression.members if isinstance(p, AnyOf)]
    return ", and one of: ".join(words for words in (both, *either) if words)


def _kernel_section(rule: Rule) -> str:
    lines = [f"### {rule.key}", "", rule.question, ""]
    lines += [f"- Fires where {_words(rule.when)}."]
    if rule.bounds:
        lines += [f"- For kernels bound by {', '.join(rule.bounds)}."]
    if rule.unless:
        lines += [f"- Not where {' or '.join(rule.unless)} fires."]
    if rule.contradicted_by:
        lines += [f"- Contradicted where {' or '.join(map(_words, rule.contradicted_by))}."]
    lines += [f"- Source: {_english(rule.source)}.", f"- Gain: {rule.estimate}"]
    if rule.attainable < 1:
        attainable = f"{100 * rule.attainable:g} % of a roof: {rule.attainable_source}."
        lines += [f"- It takes a kernel up to {attainable}"]
    lines += [
        f"- Confidence: {rule.confidence} at best.",
        f"- To try: {_english(rule.action)}",
        f"- It is wrong if: {_english(rule.disproof)}",
        "",
    ]
    return "\n".join(lines)


def _saturated() -> str:
    lines = [
        "A kernel that no rule explains is told by its roof:",
        "",
        "| Key | Bound by | Contradicted where | It is wrong if |",
        "| --- | --- | --- | --- |",
    ]
    for bound, roof in ROOFS.items():
        doubts = " or ".join(map(_words, roof.contradicted_by)) or "–"
        lines += [f"| {roof.key} | {bound} | {doubts} | {_english(roof.disproof)} |"]
    return "\n".join(lines) + "\n"


def _program_table() -> str:
    lines = ["| Rule | Question | Needs |", "| --- | --- | --- |"]
    lines += [f"| [{r.key}](#{r.key}) | {r.question} | {r.requires} |" for r in PROGRAM_RULES]
    return "\n".join(lines) + "\n"


def _backends() -> str:
    lines = ["| Kernels | To try | It is wrong if | Source |", "| --- | --- | --- | --- |"]
    for backend in BACKENDS.values():
        texts = (backend.label, backend.action, backend.disproof, backend.source)
        lines.append(f"| {' | '.join(map(_english, texts))} |")
    return "\n".join(lines) + "\n"


def _english(text: Text | None) -> str:
    return "" if text is None else Writer().text(text)


def _program_section(rule: ProgramRule) -> str:
    lines = [f"### {rule.key}", "", rule.question, "", f"- Needs {rule.requires}."]
    lines += [
        f"- `{name}`: {limit.value:g} ({_english(limit.source)})."
        for name, limit in rule.thresholds.items()
    ]
    words = (
        ("Could save", rule.gain),
        ("To try", _english(rule.action)),
        ("It is wrong if", _english(rule.disproof)),
    )
    lines += [f"- {label}: {text}" for label, text in words if text]
    return "\n".join([*lines, ""])
