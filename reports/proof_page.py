"""Writes docs/proof.md: the table of planted defects, and what the report made of each."""

from __future__ import annotations

from collections.abc import Sequence

from reports.evidence import Finding
from reports.formats import NA, count, escape, seconds, share, significant
from reports.load import Run
from reports.proof import FACTOR, Verdict, planted, verdicts

COLUMNS = (
    *("defect", "time", "repaired", "first finding", "named", "gone"),
    *("estimated gain", "measured gain", "ratio"),
)
CLOCKS = {
    "untraced": "Times are those of the programs without a profiler.",
    "trace": "Times are those of the programs under nsys, which lengthens each launch.",
}

LEARNT = (
    "The first recording, on an H200, corrected some rules: how atomics on one address queue, what "
    "local memory counts, which limit of occupancy is real, when the shortest launch is a bound, "
    "which copies are needless, and which rule prices a misaligned product. For these, that "
    "recording is no independent test; a new one, or another GPU, is."
)
"""What the rules owe to the recorded run, so that nobody takes a fit for a prediction."""


def proof_page(run: Run) -> str:
    """Return the page of a run of recipes/planted-defects.yaml as markdown.

    Raises:
        ArtifactUnreadable: the run has no planted defects, or its trace cannot be read.
    """
    judged = verdicts(run)
    parts = [
        "<!-- Written by scripts/proof from a recorded run; do not edit. -->",
        "# Proof: planted defects",
        _introduction(run, judged),
        _summary(judged),
        _table(judged),
        _legend(planted(run)[1]),
        LEARNT,
        "## What is planted, and what the report said",
        *(_details(one) for one in judged),
    ]
    return "\n\n".join(parts) + "\n"


def _introduction(run: Run, judged: Sequence[Verdict]) -> str:
    gpus = sorted({str(gpu["name"]) for gpu in run.manifest.gpus if gpu.get("name")})
    where = " and ".join(gpus) or "an unknown GPU"
    tools = ", ".join(f"{name} {version}" for name, version in sorted(run.manifest.tools.items()))
    return (
        f"{count(len(judged))} small programs have one defect each, and a repaired twin that does "
        f"the same work ([targets/defects](../targets/defects/defects.yaml)). Both were profiled "
        f"on {where} ({tools}, {run.manifest.created[:10]}). The report was made of each as "
        "though it were a program of its own. `scripts/proof` makes this page from the recorded "
        f"run, without a GPU; `prof run planted-defects` records a new one."
    )


def _summary(judged: Sequence[Verdict]) -> str:
    def row(words: str, held: Sequence[bool], wanted: float) -> str:
        part = sum(held) / len(held)
        return f"| {words} | {sum(held)} of {len(held)} ({share(part)}) | {share(wanted)} |"

    return "\n".join(
        [
            "| question | programs | wanted |",
            "| --- | --- | --- |",
            row("Is the planted cause the first finding?", [v.named for v in judged], 0.9),
            row("Is it gone in the twin?", [v.gone for v in judged], 0.9),
            row(
                f"Is the estimated gain within a factor of {FACTOR:g} of the measured one?",
                [v.priced for v in judged],
                0.75,
            ),
        ]
    )


def _table(judged: Sequence[Verdict]) -> str:
    lines = [
        f"| {' | '.join(COLUMNS)} |",
        "| --- | ---: | ---: | --- | --- | --- | ---: | ---: | ---: |",
    ]
    for one in judged:
        plan, top = one.planted, one.top
        cells = (
            f"[{escape(plan.title)}](#{anchor(plan.title)})",
            seconds(plan.seconds["defect"]),
            seconds(plan.seconds["twin"]),
            f"`{_cause(top)}`" if top else "none",
            _mark(one.named),
            _mark(one.gone),
            share(one.estimate),
            share(plan.gain),
            significant(one.ratio, 2) + ("" if one.priced else " ✗"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _legend(step: str) -> str:
    return (
        f"{CLOCKS[step]} Gains are parts of that time: of the kernels alone where the defect is "
        "one of kernels, of the whole program where it is one of the program. The estimate is "
        f"that of all findings of the planted cause. ✗ marks what is not as it should be: a "
        f"ratio is right from {significant(1 / FACTOR, 2)} to {FACTOR:g}; {NA} is an estimate "
        "that the report did not make."
    )


def _details(one: Verdict) -> str:
    plan = one.planted
    lines = [
        f"### {escape(plan.title)}",
        f"- Planted: {plan.defect}",
        f"- Repaired: {plan.twin}",
        f"- Expected: {' or '.join(f'`{key}`' for key in plan.expects)}",
        f"- Said: {_said(one.top)}",
    ]
    if not one.named:
        others = [f for f in one.found if plan.named_by(f)]
        rank = f"finding {one.found.index(others[0]) + 1}" if others else "not among the findings"
        lines.append(f"- The planted cause is {rank}.")
    if not one.gone:
        still = next(f for f in one.left if plan.named_by(f))
        lines.append(f"- Of the twin, too: {_said(still)}")
    return f"{lines[0]}\n\n" + "\n".join(lines[1:])


def _said(finding: Finding | None) -> str:
    if finding is None:
        return "nothing."
    gain = f" (would gain {share(finding.gain_program)})" if finding.gain_program > 0 else ""
    return f"{escape(finding.title)}{gain}. {escape(finding.sentence)}"


def _cause(finding: Finding) -> str:
    return finding.cause or finding.key


def _mark(right: bool) -> str:
    return "yes" if right else "no ✗"


def anchor(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")
