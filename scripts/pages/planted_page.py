"""Writes docs/proof-planted.md: the planted defects, and what the report made of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.page.formats import NA, count, escape, seconds, share, significant
from nsight_prof.reports.page.writer import Writer
from scripts.pages.first_look import FirstLook, look_at, read_first_look
from scripts.pages.marked import anchor
from scripts.pages.proof import FACTOR, Score, Verdict, left_out, planted, score, verdicts

COLUMNS = (
    *("defect", "time", "repaired", "first finding", "named", "gone"),
    *("estimated gain", "measured gain", "ratio"),
)
CLOCKS = {
    "untraced": "Times are those of the programs without a profiler.",
    "trace": "Times are those of the programs under nsys, which lengthens each launch.",
}
QUESTIONS = (
    ("named", "Is the planted cause the first finding?", 0.9),
    ("gone", "Is it gone in the twin?", 0.9),
    (
        "priced",
        f"Is the estimated gain within a factor of {FACTOR:g} of the measured one?",
        0.75,
    ),
)

WORTH = 0.1
"""Part of its time that a repair must save for a defect to be worth a name."""
LARGE = f"Fixes that gained {share(WORTH)} or more"
SMALLER = (
    f"A fix that gained less than {share(WORTH)} shows that nothing worth a name was planted, "
    "whatever was meant. Programs of the third set were written with this limit, before they were "
    "recorded."
)

LEARNT = (
    "The first recording, on an H200, corrected some rules: how atomics on one address queue, what "
    "local memory counts, which limit of occupancy is real, when the shortest launch is a bound, "
    "which copies are needless, and which rule prices a misaligned product. For these, that "
    "recording is no independent test; a new one, or another GPU, is."
)
"""What the rules owe to the recorded run, so that nobody takes a fit for a prediction."""


OTHERS = (
    "The second set has the same kinds of defects in other programs "
    "([second.yaml](../targets/defects/second.yaml)): other kernels, sizes and data types.",
    "The third set has them in other programs again "
    "([third.yaml](../targets/defects/third.yaml)), and many of its defects are mild: they cost a "
    "third or a half of the time.",
)
"""What each set after the first one is, in their order."""


@dataclass(frozen=True)
class Recording:
    """A recorded set with its verdicts.

    `look` is what the rules made of it at first, None where nobody kept that; `missing` says
    why a pair is not in it, by name.
    """

    title: str
    run: Run
    judged: list[Verdict]
    look: FirstLook | None
    missing: dict[str, str]

    @property
    def mark(self) -> str:
        """What headings of pairs end in, so that those of two sets differ."""
        return "" if self.title == "First set" else f" ({self.title.lower()})"

    def heading(self, one: Verdict) -> str:
        """Return the heading of the words on a pair."""
        return one.planted.title + self.mark


def recording(run: Run, title: str = "First set") -> Recording:
    """Judge the planted defects of a run; its folder may have a first look.

    Raises:
        ArtifactUnreadable: the run has no planted defects, or its trace cannot be read.
    """
    return Recording(title, run, verdicts(run), read_first_look(run.path), left_out(run))


def planted_page(sets: Sequence[Recording]) -> str:
    """Return the page of runs of recipes/planted-defects.yaml, one of each set, as markdown."""
    parts = [
        "<!-- Written by scripts/proof from recorded runs; do not edit. -->",
        "# Proof: small programs with planted defects",
        _introduction(sets),
        _summary(sets),
        *(_sample(one) for one in sets),
        *(part for one in sets for part in _set(one)),
    ]
    for one in sets:
        parts += [
            f"## What is planted, and what the report said{one.mark}",
            *(_details(one, verdict) for verdict in one.judged),
        ]
    return "\n\n".join(parts) + "\n"


def _introduction(sets: Sequence[Recording]) -> str:
    *most, last = (count(len(one.judged)) for one in sets)
    programs = f"{', '.join(most)} and {last}" if most else last
    where = "; ".join(dict.fromkeys(_machine(one.run) for one in sets))
    other = "".join(f" {words}" for words in OTHERS[: len(sets) - 1])
    return (
        f"{programs} small programs have one defect each, and a fixed twin that does "
        f"the same work ([targets/defects](../targets/defects/defects.yaml)).{other} All were "
        f"profiled on {where}. The report was made of each as "
        "though it were a program of its own. `prof run planted-defects` records them anew. [Whole "
        "programs](proof.md), of which nothing was known before, are the harder test."
    )


def _machine(run: Run) -> str:
    gpus = sorted({str(gpu["name"]) for gpu in run.manifest.gpus if gpu.get("name")})
    tools = ", ".join(f"{name} {version}" for name, version in sorted(run.manifest.tools.items()))
    return f"{' and '.join(gpus) or 'an unknown GPU'} ({tools}, {run.manifest.created[:10]})"


def _summary(sets: Sequence[Recording]) -> str:
    """Return the table of scores: of all programs, then of those whose repair gained enough."""
    columns: list[tuple[str, Score, Score | None]] = []
    for one in sets:
        large = [v for v in one.judged if v.planted.gain >= WORTH]
        if one.look is not None:
            told = look_at(large, one.look) if _same_programs(one) else None
            columns.append((f"{one.title.lower()}, first look", one.look.score, told))
        columns.append((f"{one.title.lower()}, rules of now", score(one.judged), score(large)))
    lines = [
        f"| question | {' | '.join(title for title, *_ in columns)} | wanted |",
        f"| --- |{' --- |' * len(columns)} --- |",
    ]
    for key, words, wanted in QUESTIONS:
        cells = [_of(found, key) for _, found, _ in columns]
        lines.append(f"| {words} | {' | '.join(cells)} | {share(wanted)} |")
    for key, words, wanted in QUESTIONS:
        cells = [_of(found, key) for *_, found in columns]
        lines.append(f"| {LARGE}: {_small(words)} | {' | '.join(cells)} | {share(wanted)} |")
    return "\n".join(lines) + f"\n\n{SMALLER}"


def scores(found: Score) -> str:
    """Return the answers to the three questions in a sentence."""
    return (
        f"named {_of(found, 'named')}, gone in the twin {_of(found, 'gone')}, gain within "
        f"{FACTOR:g} {_of(found, 'priced')}"
    )


def _same_programs(one: Recording) -> bool:
    """Tell whether a first look judged the programs that are judged now."""
    names = {verdict.planted.name for verdict in one.judged}
    look = one.look
    return look is not None and look.score.programs == len(names) and set(look.wrong) <= names


def _small(words: str) -> str:
    return words[0].lower() + words[1:]


def _of(found: Score | None, key: str) -> str:
    if found is None or not found.programs:
        return NA
    held = getattr(found, key)
    return f"{held} of {found.programs} ({share(held / found.programs)})"


def _sample(one: Recording) -> str:
    """Say whether the rules had seen the recording, and which pairs it lacks."""
    if one.look is None:
        text = (
            f"**{one.title}: in sample.** It has no record of a first look, so rules may have been "
            "mended on it: its score says that they can tell these defects, not how they do on "
            "programs never seen."
        )
    else:
        wrong = ", ".join(f"`{name}` ({', '.join(held)})" for name, held in one.look.wrong.items())
        text = (
            f"**{one.title}: out of sample at its first look.** The rules of commit "
            f"`{one.look.commit[:10]}` judged it before anybody had seen what they make of it. "
            f"Not right then: {wrong or 'nothing'}. What the rules of now do better on it is in "
            "sample."
        )
    missing = "; ".join(f"`{name}`: {escape(why)}" for name, why in one.missing.items())
    return f"{text} Left out, because a program failed: {missing}." if missing else text


def _set(one: Recording) -> list[str]:
    parts = [f"## {one.title}", _table(one), _legend(planted(one.run)[1])]
    return parts if one.mark else [*parts, LEARNT]


def _table(of: Recording) -> str:
    lines = [
        f"| {' | '.join(COLUMNS)} |",
        "| --- | ---: | ---: | --- | --- | --- | ---: | ---: | ---: |",
    ]
    for one in of.judged:
        plan, top = one.planted, one.top
        cells = (
            f"[{escape(plan.title)}](#{anchor(of.heading(one))})",
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


def _details(of: Recording, one: Verdict) -> str:
    plan = one.planted
    lines = [
        f"### {escape(of.heading(one))}",
        f"- Planted: {plan.defect}",
        f"- Fixed: {plan.twin}",
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
    write = Writer()
    gain = f" (would gain {share(finding.gain_program)})" if finding.gain_program > 0 else ""
    return f"{escape(write.text(finding.title))}{gain}. {escape(write.text(finding.verdict))}"


def _cause(finding: Finding) -> str:
    return finding.rule or finding.key


def _mark(right: bool) -> str:
    return "yes" if right else "no ✗"
