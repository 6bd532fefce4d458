"""Shortens a report to half a page for a reader who decides and does not tune kernels."""

from __future__ import annotations

from dataclasses import replace

from nsight_prof.reports.analysis.models import RunTime
from nsight_prof.reports.analysis.run_time import GPU
from nsight_prof.reports.page import Number, Section, Text, Value, Verbatim
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profile.method_view import summary_terms
from nsight_prof.reports.profile.view_models import ReportView
from nsight_prof.reports.serving.workload import UNKNOWN_GPU, headed
from nsight_prof.reports.summary.actions import near_limits
from nsight_prof.reports.summary.first_screen import MOSTLY, first_screen
from nsight_prof.reports.summary.models import SummaryGpu, SummaryView
from nsight_prof.reports.summary.savings import savings
from nsight_prof.reports.summary.time_parts import (
    largest_job,
    time_parts,
    whole_of,
)

FACTS, LEARNED, RESERVATIONS, HINTS = 5, 4, 4, 2


def summarise(view: ReportView) -> SummaryView:
    """Return the summary of a report; the numbers are those of the report."""
    saved = savings(view)
    time_parts_ = time_parts(view, saved)
    answer = _answer(view)
    machine = _machine(view.run_time)
    first = first_screen(view, time_parts_, saved, headed(view.workload, machine), answer[0])
    advice, learned = _learned(view.sections)
    near = () if first.actions else near_limits(view)
    facts = tuple(fact for section in view.sections for fact in section.facts)[:FACTS]
    summary = SummaryView(
        title=view.title,
        question=view.question,
        first=first,
        machine=machine,
        answer=() if first.verdict == answer[0] else answer,
        basis=view.run_time.basis,
        rows=time_parts_.rows,
        total=time_parts_.total,
        gpus=_gpus(view),
        facts=facts,
        learned=tuple(text for text in learned if text != first.verdict)[:LEARNED],
        hints=(*advice, *near),
        reservations=_reservations(view),
        terms=(),
    )
    return replace(summary, terms=summary_terms(_english(summary)))


def _answer(view: ReportView) -> tuple[Text, ...]:
    """Say on what the run spends its time."""
    time = view.run_time
    if not time.whole_ns or not view.kernels:
        open_questions = [question.lay_text or question.text for question in view.abstained]
        return (*open_questions, Text("This run holds nothing that answers the question."))[:1]
    found = []
    if time.basis == GPU:
        total = Number(time.whole_ns, "ns")
        found.append(
            Text("The GPU works for {time}; how long it waits in between is not known.", time=total)
        )
    longest, share = largest_job(view)
    works = time.whole_ns - (time.idle_ns or 0.0)
    facts: dict[str, Value] = {"thing": longest, "whole": whole_of(time)}
    largest = Text(
        "The largest job of the GPU is {thing}: {part} of the {whole}.",
        **facts,
        part=Number(share, "fraction"),
    )
    if works < (1 - MOSTLY) * time.whole_ns:  # small parts of the run would mislead
        largest = Text(
            "The GPU works for {works} of the {whole}. Its largest job is {thing}: {part} of that.",
            **facts,
            works=Number(works / time.whole_ns, "fraction"),
            part=Number((share or 0.0) * time.whole_ns / works if works else None, "fraction"),
        )
    unmeasured = [] if view.profiled_share else [Text("What limits it was not measured.")]
    return (*found, largest, *unmeasured)


def _learned(sections: tuple[Section, ...]) -> tuple[tuple[Text, ...], tuple[Text, ...]]:
    """Return what sections say to do, as a larger batch, and what else they found."""
    found = [f for section in sections for f in section.findings if not f.technical]
    advice = tuple(f.action for f in found if f.action and not f.offers)
    return advice[:HINTS], tuple(f.lay_verdict or f.verdict for f in found if not f.action)


def _gpus(view: ReportView) -> tuple[SummaryGpu, ...]:
    """Return how each of several GPUs spent the run, then whether any of them worked."""
    if view.working_gpus < 2:
        return ()
    each = [
        SummaryGpu(
            Text("GPU {number}", number=gpu.gpu),
            gpu.busy_ns,
            gpu.copies_alone_ns,
            gpu.idle_ns,
            gpu.idle_share,
        )
        for gpu in view.gpus
    ]
    wall, none = view.wall_ns or 0.0, view.idle_together
    if none is None:
        return tuple(each)
    together = Text("{n} GPUs together: at least one works", n=len(each))
    return (*each, SummaryGpu(together, wall * (1 - none), None, wall * none, none))


def _machine(time: RunTime) -> Text:
    """Return the GPUs that worked: "NVIDIA H200, 1 of the 2 in the machine"."""
    name: Text | Verbatim = Verbatim(time.gpu) if time.gpu else UNKNOWN_GPU
    if time.present <= 1:
        return Text("{name}", name=name)
    if not time.gpus:
        total = time.present
        return Text("{name}, one or more of the {total} in the machine", name=name, total=total)
    if time.gpus == time.present:
        return Text("{n} x {name}", n=time.gpus, name=name)
    given: dict[str, Value] = {"name": name, "n": time.gpus, "total": time.present}
    return Text("{name}, {n} of the {total} in the machine", **given)


def _reservations(view: ReportView) -> tuple[Text | str, ...]:
    """Return what weakens the answer: what is open, failed steps, doubtful counters."""
    asked = (question.lay_text for question in view.abstained)
    found: list[Text | str] = []
    found += [simple for simple in asked if simple is not None][:1]
    found += [caveat.lay_text for caveat in view.caveats if caveat.lay_text]
    return tuple(found[:RESERVATIONS])


def _english(summary: SummaryView) -> str:
    """Return all words of a summary in English: the glossary explains the terms in them."""
    first = summary.first
    rows = [value for row in summary.rows for value in (row.what, row.limited_by) if value]
    facts = [value for fact in summary.facts for value in (fact.label, fact.value)]
    texts: list[Value] = [first.line, first.verdict, *(action.do for action in first.actions)]
    texts += [
        *(text for c in first.choices for text in (c.do, c.gains, c.costs)),
        *summary.answer,
        *summary.learned,
        *summary.hints,
        *summary.reservations,
    ]
    times = [Number(row.time_ns, "ns") for row in summary.rows]
    write = Writer()
    return " ".join([summary.question, *map(write.value, (*texts, *rows, *facts, *times))])
