"""Shortens a report to half a page for a reader who decides and does not tune kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from importlib import resources

import yaml

from reports.evidence import say, threshold
from reports.formats import brief, duration, listed, share
from reports.method_view import glossary
from reports.view_models import Fact, FindingRow, KernelRow, ReportView, SummaryRow, SummaryView

ROWS, LEARNED, STEPS, RESERVATIONS, SUBJECTS = 5, 4, 3, 3, 3
NOT_MEASURED = "not measured"
WORTH_SAYING = 0.01
NEAR = 0.1
"""Largest gain, as a part of the GPU time, of a program that is called near its limits."""


def summarise(view: ReportView) -> SummaryView:
    """Return the summary of a report; the numbers are those of the report."""
    rows, steps, doubts = _rows(view), _steps(view), _reservations(view)
    answer = _answer(view, rows)
    learned = tuple(f.plain for s in view.sections for f in s.findings if f.plain)[:LEARNED]
    facts = tuple(Fact(*row) for s in view.sections for row in s.plain)[:ROWS]
    told = (f"{row.what} {row.limited_by}" for row in rows)
    words = " ".join([answer, *learned, *steps, *doubts, *told, *(f.label for f in facts)])
    return SummaryView(
        title=view.title,
        question=view.question,
        machine=next((fact.value for fact in view.environment if fact.label == "GPU"), ""),
        answer=answer,
        rows=rows,
        facts=facts,
        learned=learned,
        next_steps=steps,
        reservations=doubts,
        terms=glossary(words),
    )


def plain_name(kernel: KernelRow) -> str:
    """Return what a kernel does in words, with library and type; its own name where unknown."""
    kind = _words()["kinds"].get(kernel.category)
    if kind is None or kernel.library in ("", "other"):
        return brief(kernel.short_name, 40)
    facts = [fact for fact in (kernel.library, kernel.dtype) if fact]
    return f"{kind} ({', '.join(facts)})" if "(" not in kind else f"{kind}, {facts[0]}"


@cache
def _words() -> dict[str, dict[str, str]]:
    source = resources.files("reports").joinpath("plain_words.yaml").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, str]] = yaml.safe_load(source)
    return loaded


def _answer(view: ReportView, rows: tuple[SummaryRow, ...]) -> str:
    """Return one sentence: how long the GPU works, on what, and what could be saved."""
    if view.gpu_time_ns is None or not rows:
        return " ".join(view.abstained[:1]) or "This run holds nothing that answers the question."
    names: dict[str, float] = defaultdict(float)
    for kernel in view.kernels:
        names[plain_name(kernel)] += kernel.share or 0.0
    most = max(names, key=names.__getitem__)
    thing = most if any(k.short_name == most for k in view.kernels) else most[0].lower() + most[1:]
    works = f"The GPU works for {duration(view.gpu_time_ns)}, {share(names[most])} of it on {thing}"
    gain = _gain_in_all(view)
    if gain is None:
        return f"{works}; what limits it was not measured."
    if gain < NEAR:
        return f"{works}; it runs near its limits: faster code could save at most {share(gain)}."
    open_part = 1 - (view.profiled_share or 0.0)
    where = " in the part that was measured" if open_part >= threshold("unmeasured") else ""
    return f"{works}; faster code could save at most {share(gain)} of that time{where}."


def _gain_in_all(view: ReportView) -> float | None:
    """Return the gain of all kernels together; of the only one where there is one."""
    found = [f for f in view.findings if f.key == "bounds"]
    found = found or [f for f in view.findings if f.key == "kernel"][:1]
    return found[0].gain_program if found else None


def _rows(view: ReportView) -> tuple[SummaryRow, ...]:
    """Return a row for each plain name and limit, the largest share of GPU time first."""
    gains = {n: row for row in view.findings if row.key == "kernel" for n in row.kernels}
    groups: dict[tuple[str, str], list[KernelRow]] = defaultdict(list)
    for kernel in view.kernels:
        limit = _words()["limits"].get(kernel.bound_by, NOT_MEASURED)
        limit = _words()["causes"].get(kernel.bound_cause, limit)
        groups[plain_name(kernel), limit].append(kernel)
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


def _steps(view: ReportView) -> tuple[str, ...]:
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
    return tuple(_step(view, rows) for rows in (better or ranked)[:STEPS])


def _near(row: FindingRow) -> bool:
    return row.advice in (say("advice", "near"), say("advice", "near_dram"))


def _step(view: ReportView, rows: list[FindingRow]) -> str:
    gain = f"up to {share(_sum(row.gain_program for row in rows))} of the {rows[0].gain_of}"
    advice = rows[0].advice
    if rows[0].key != "kernel":
        return f"{rows[0].title}: {advice} ({gain})."
    plain = {kernel.number: _subject(kernel) for kernel in view.kernels}
    subjects = list(dict.fromkeys(plain[row.kernels[0]] for row in rows if row.kernels))
    first, *rest = subjects[:SUBJECTS]
    own = {kernel.short_name for kernel in view.kernels}
    lowered = [name if name in own else f"{name[0].lower()}{name[1:]}" for name in rest]
    more = ["others"] if len(subjects) > SUBJECTS else []
    saved = "" if _near(rows[0]) else f" ({gain})"
    return f"{listed([first, *lowered, *more])}: {advice}{saved}."


def _subject(kernel: KernelRow) -> str:
    """Return the plain name without its explanation."""
    name = plain_name(kernel)
    return name if name == kernel.short_name else name.partition(" (")[0]


def _reservations(view: ReportView) -> tuple[str, ...]:
    """Return what weakens the answer: what is open, failed steps, doubtful counters."""
    serious = [caveat.plain for caveat in view.caveats if caveat.plain]
    return (*view.abstained[:1], *serious)[:RESERVATIONS]
