"""Makes docs/rules.md: every rule behind a finding, from the rules that the reports use."""

from __future__ import annotations

from collections.abc import Iterable

from nsight_prof.reports.findings.program.backends import BACKENDS
from nsight_prof.reports.findings.program.rule import Rule as ProgramRule
from nsight_prof.reports.findings.program.rules import RULES as PROGRAM_RULES
from nsight_prof.reports.page import Text
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.rules import (
    Condition,
    Rule,
    against_bound,
    full_roof,
    kernel_rules,
    known_facts,
    reach_source,
    saturated,
)

INTRO = """# Rules of the findings

A finding of a report comes from one of these rules; `cause` in `metrics.json` is its key. A rule
fires where all of its conditions hold, and abstains where a number that decides is not known: the
report says so. Thresholds of NVIDIA are those of the section files of Nsight Compute 2025.

The gain of a kernel's rule is an estimate of its time saved. It never goes beyond the roof: a
resource that the repair does not relieve (DRAM, L2, L1, a pipe, the issue slots) takes as long as
it is busy now. The gain for the program is that of the kernel times its share (Amdahl).

A kernel at a roof (60 % or more of one) is explained by a defect only where the repair takes work
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
    kernels = kernel_rules()
    full, source = full_roof()
    intro = INTRO.replace("{full}", f"{full:g} %").replace("{source}", source)
    parts = [intro, "## Kernels\n", _kernel_table(kernels.values()), _saturated()]
    parts += [_kernel_section(rule) for rule in kernels.values()]
    parts += ["## The program\n", _program_table()]
    parts += [_program_section(rule) for rule in PROGRAM_RULES]
    parts += ["### Kernels of which a better one is usual", "", _backends()]
    return "\n".join(parts).rstrip() + "\n"


def _kernel_table(rules: Iterable[Rule]) -> str:
    lines = ["| Rule | Question | Fires where |", "| --- | --- | --- |"]
    lines += [f"| [{r.key}](#{r.key}) | {r.asks} | {_conditions(r)} |" for r in rules]
    return "\n".join(lines) + "\n"


def _conditions(rule: Rule) -> str:
    held = " and ".join(_held(rule.when))
    if not rule.any:
        return held
    groups = [" and ".join(_held(group)) for group in rule.any]
    return f"{held}, and one of: {'; '.join(groups)}"


def _held(conditions: Iterable[Condition]) -> list[str]:
    """Return conditions in words; tests of what a kernel is are told by the question."""
    facts = known_facts()
    return [
        f"{facts[c.fact].label.format(stall='of the top reason')} {c.words(facts[c.fact].unit)}"
        for c in conditions
        if facts[c.fact].label
    ]


def _kernel_section(rule: Rule) -> str:
    lines = [f"### {rule.key}", "", rule.asks, ""]
    lines += [f"- Fires where {_conditions(rule)}."]
    if rule.bounds:
        lines += [f"- For kernels bound by {', '.join(rule.bounds)}."]
    if rule.unless:
        lines += [f"- Not where {' or '.join(rule.unless)} fires."]
    if rule.against:
        lines += [f"- Contradicted where {' or '.join(_held(rule.against))}."]
    lines += [
        f"- Source: {rule.source}.",
        f"- Gain: {rule.estimate}",
        *(
            [f"- It takes a kernel up to {100 * rule.reach:g} % of a roof: {reach_source(rule)}."]
            if rule.reach < 1
            else []
        ),
        f"- Confidence: {rule.confidence} at best.",
        f"- To try: {rule.action.format(limiter=rule.limiter)}",
        f"- It is wrong if: {rule.disprove}",
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
    for bound, facts in saturated().items():
        doubts = " or ".join(_held(against_bound(bound))) or "–"
        lines += [f"| {facts['key']} | {bound} | {doubts} | {facts['disprove']} |"]
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
