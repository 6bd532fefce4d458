"""Shortens a report to half a page for a reader who decides and does not tune kernels."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from reports.evidence import say, threshold
from reports.formats import brief, duration, share
from reports.language import ENGLISH, Words, words_of
from reports.method_view import glossary
from reports.program_rules import limit
from reports.view_models import Fact, FindingRow, KernelRow, ReportView, SummaryRow, SummaryView

ROWS, LEARNED, STEPS, RESERVATIONS, SUBJECTS = 5, 4, 3, 3, 3
WORTH_SAYING = 0.01
NEAR = 0.1
"""Largest gain, as a part of the GPU time, of a program that is called near its limits."""


def summarise(view: ReportView, language: str = ENGLISH) -> SummaryView:
    """Return the summary of a report in a language; the numbers are those of the report."""
    words = words_of(language)
    rows, steps = _rows(view, words), _steps(view, words)
    doubts = tuple(words.of(doubt) for doubt in _reservations(view))
    answer = _answer(view, rows, words)
    learned = [f.plain for s in view.sections for f in s.findings if f.plain][:LEARNED]
    facts = [Fact(*row) for s in view.sections for row in s.plain][:ROWS]
    told = (f"{row.what} {row.limited_by}" for row in rows)
    text = " ".join([answer, *learned, *steps, *doubts, *told, *(f.label for f in facts)])
    # The words of other languages are not looked for: the terms are those of the English summary.
    terms = glossary(text) if language == ENGLISH else words.terms(summarise(view).terms)
    return SummaryView(
        title=view.title,
        question=words.quoted(view.question),
        machine=next((fact.value for fact in view.environment if fact.label == "GPU"), ""),
        answer=answer,
        rows=rows,
        facts=tuple(words.fact(fact) for fact in facts),
        learned=tuple(words.of(sentence) for sentence in learned),
        next_steps=steps,
        reservations=doubts,
        terms=terms,
        language=language,
        words=words.page,
    )


def plain_name(kernel: KernelRow, words: Words | None = None) -> str:
    """Return what a kernel does in words, with library and type; its own name where unknown."""
    said = words or words_of(ENGLISH)
    kind = said.word("kinds", kernel.category)
    if not kind or kernel.library in ("", "other"):
        return brief(kernel.short_name, 40)
    facts = [fact for fact in (kernel.library, kernel.dtype) if fact]
    if _subject(kind) == kind:
        return said.page["named"].format(kind=kind, facts=said.page["comma"].join(facts))
    return said.page["explained"].format(kind=kind, library=facts[0])


def _answer(view: ReportView, rows: tuple[SummaryRow, ...], words: Words) -> str:
    """Say how long the GPU works, on what, what could be saved, and how long it is idle."""
    if view.gpu_time_ns is None or not rows:
        return words.of(" ".join(view.abstained[:1])) or words.say("nothing")
    names: dict[str, float] = defaultdict(float)
    for kernel in view.kernels:
        names[plain_name(kernel, words)] += kernel.share or 0.0
    most = max(names, key=names.__getitem__)
    thing = most if any(k.short_name == most for k in view.kernels) else _inside(most)
    said = {"time": duration(view.gpu_time_ns), "part": share(names[most]), "thing": thing}
    gain, idle = _gain_in_all(view), _idle_part(view, words)
    if gain is None:
        return words.say("works_unmeasured", **said) + idle
    if gain < NEAR:
        return words.say("works_near", **said, gain=share(gain)) + idle
    in_part = 1 - (view.profiled_share or 0.0) >= threshold("unmeasured")
    return words.say("works_in_part" if in_part else "works", **said, gain=share(gain)) + idle


def _idle_part(view: ReportView, words: Words) -> str:
    """Say how long the GPU is idle, where it is long; faster kernels change nothing of that."""
    if view.wall_ns is None or (view.idle_share or 0.0) < limit("idle", "share"):
        return ""
    return words.say("idle_part", wall=duration(view.wall_ns), part=share(view.idle_share))


def _gain_in_all(view: ReportView) -> float | None:
    """Return the gain of all kernels together; of the only one where there is one."""
    found = [f for f in view.findings if f.key == "bounds"]
    found = found or [f for f in view.findings if f.key == "kernel"][:1]
    return found[0].gain_program if found else None


def _rows(view: ReportView, words: Words) -> tuple[SummaryRow, ...]:
    """Return a row for each plain name and limit, the largest share of GPU time first."""
    gains = {n: row for row in view.findings if row.key == "kernel" for n in row.kernels}
    groups: dict[tuple[str, str], list[KernelRow]] = defaultdict(list)
    for kernel in view.kernels:
        limit = words.word("limits", kernel.bound_by, words.say("not_measured"))
        limit = words.word("causes", kernel.bound_cause, limit)
        groups[plain_name(kernel, words), limit].append(kernel)
    ranked = sorted(groups.items(), key=lambda item: -_sum(k.share for k in item[1]))[:ROWS]
    names = [name for (name, _), _ in ranked]
    return tuple(
        SummaryRow(
            name,
            tuple(k.number for k in kernels) if names.count(name) > 1 else (),
            _sum(k.share for k in kernels) if kernels[0].share is not None else None,
            limit,
            _nearness(kernels),
            _total([_gain(k, gains.get(k.number)) for k in kernels]),
        )
        for (name, limit), kernels in ranked
    )


def _sum(values: Iterable[float | None]) -> float:
    return sum(value or 0.0 for value in values)


def _total(values: list[float | None]) -> float | None:
    return None if all(value is None for value in values) else _sum(values)


def _nearness(kernels: list[KernelRow]) -> float | None:
    """Return the share of the limit, weighted by GPU time; None where nothing is near one."""
    known = [k for k in kernels if k.roof_share is not None and k.bound_by != "latency"]
    weights = [k.share if k.share is not None else 1.0 for k in known]
    if not known or not sum(weights):
        return None
    total = sum(w * (k.roof_share or 0.0) for w, k in zip(weights, known, strict=True))
    return total / sum(weights)


def _gain(kernel: KernelRow, finding: FindingRow | None) -> float | None:
    """Return the gain of the kernel's finding; one too small for a finding is its distance."""
    if kernel.share is None:
        return None
    if finding is not None and finding.gain_kernel is not None:
        return kernel.share * finding.gain_kernel
    if kernel.roof_share is None or kernel.bound_by == "latency":
        return None
    return kernel.share * max(0.0, 1 - kernel.roof_share)


def _steps(view: ReportView, words: Words) -> tuple[str, ...]:
    """Return what to do: findings of one advice are one step, the largest gain first."""
    groups: dict[tuple[str, str], list[FindingRow]] = defaultdict(list)
    for row in view.findings:
        if row.advice and (row.gain_program or 0.0) >= WORTH_SAYING:
            groups[row.advice, row.gain_of].append(row)
    # Who is near the limit gains little by better code: that is told where nothing else is.
    ranked = sorted(
        groups.values(), key=lambda rows: (_near(rows[0]), -_sum(row.gain_ns for row in rows))
    )
    better = [rows for rows in ranked if not _near(rows[0])]
    return tuple(_step(view, rows, words) for rows in (better or ranked)[:STEPS])


def _near(row: FindingRow) -> bool:
    return row.advice in (say("advice", "near"), say("advice", "near_dram"))


def _step(view: ReportView, rows: list[FindingRow], words: Words) -> str:
    key = {"GPU time": "gpu_time", "wall time": "wall_time"}.get(rows[0].gain_of)
    whole = words.say(key) if key else words.of(rows[0].gain_of)
    gain = words.say("gain", part=share(_sum(row.gain_program for row in rows)), whole=whole)
    advice = words.of(rows[0].advice)
    if rows[0].key != "kernel":
        return words.say("step", what=words.of(rows[0].title), advice=advice, gain=gain)
    plain = {kernel.number: _subject_of(kernel, words) for kernel in view.kernels}
    subjects = list(dict.fromkeys(plain[row.kernels[0]] for row in rows if row.kernels))
    first, *rest = subjects[:SUBJECTS]
    own = {kernel.short_name for kernel in view.kernels}
    lowered = [name if name in own else _inside(name) for name in rest]
    more = [words.say("others")] if len(subjects) > SUBJECTS else []
    what = words.listed([first, *lowered, *more])
    if _near(rows[0]):
        return words.say("step_near", what=what, advice=advice)
    return words.say("step", what=what, advice=advice, gain=gain)


def _subject_of(kernel: KernelRow, words: Words) -> str:
    """Return the plain name without its explanation."""
    name = plain_name(kernel, words)
    return name if name == brief(kernel.short_name, 40) else _subject(name)


def _inside(name: str) -> str:
    """Return a name inside of a sentence: no capital but that of an acronym, as of GPU."""
    return name if name[:2].isupper() else f"{name[:1].lower()}{name[1:]}"


def _subject(name: str) -> str:
    """Return a name without what stands in brackets behind it."""
    return re.split(r" ?\(|（", name, maxsplit=1)[0]


def _reservations(view: ReportView) -> tuple[str, ...]:
    """Return what weakens the answer: what is open, failed steps, doubtful counters."""
    serious = [caveat.plain for caveat in view.caveats if caveat.plain]
    return (*view.abstained[:1], *serious)[:RESERVATIONS]
