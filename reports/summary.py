"""Shortens a report to half a page for a reader who decides and does not tune kernels."""

from __future__ import annotations

from collections import defaultdict

from nsight_prof.reports.analysis.run_time import GPU, RunTime
from nsight_prof.reports.bench.adapter import translated
from nsight_prof.reports.evidence import threshold
from nsight_prof.reports.findings.program.idle import IDLE as IDLE_RULE
from nsight_prof.reports.formats import count, duration, share
from nsight_prof.reports.language import ENGLISH, Words, words_of
from nsight_prof.reports.method_view import summary_terms
from nsight_prof.reports.profile.first_screen import first_screen
from nsight_prof.reports.summary_models import SummaryGpu, SummaryView
from nsight_prof.reports.summary_rows import (
    COPIES,
    IDLE,
    KERNELS,
    OTHER,
    Table,
    plain_name,
    subject,
    table,
)
from nsight_prof.reports.summary_steps import inside, steps
from nsight_prof.reports.view_models import Fact, ReportView

FACTS, LEARNED, RESERVATIONS = 5, 4, 4
WORTH_SAYING, WORTH_NAMING = 0.01, 0.005
"""Parts of the run from which on a gain is told, and from which on pauses and code are parted."""
OF_ENGINEERS = ("no_shapes",)
"""Open questions that are nothing to a reader of the summary."""
NEAR = 0.1
"""Largest gain, as a part of the run, of a program that is called near its limits."""


def summarise(view: ReportView, language: str = ENGLISH) -> SummaryView:
    """Return the summary of a report in a language; the numbers are those of the report."""
    words = words_of(language)
    shown = table(view, words)
    found = [f for s in view.sections for f in s.findings if not f.technical]
    advice = [translated(f.action, words) for f in found if f.action]
    learned = [translated(f.plain or f.verdict, words) for f in found if not f.action]
    to_do, hints = steps(view, advice, words)
    doubts = _reservations(view, shown, words)
    answer = _answer(view, shown, words)
    facts = _facts(view, words)
    machine = _machine(view.run_time, words)
    told = (f"{row.what} {row.limited_by} {duration(row.gain_ns)}" for row in shown.rows)
    labels = (f"{fact.label} {fact.value}" for fact in facts)
    text = " ".join([view.question, answer, *learned, *to_do, *doubts, *told, *labels])
    # The words of other languages are not looked for: the terms are those of the English summary.
    terms = summary_terms(text) if language == ENGLISH else words.terms(summarise(view).terms)
    return SummaryView(
        title=view.title,
        question=words.quoted(view.question),
        first=first_screen(view, shown, answer, machine, words),
        machine=machine,
        answer=answer,
        basis=view.run_time.basis,
        rows=shown.rows,
        total=shown.total,
        gpus=_gpus(view, words),
        facts=facts,
        learned=tuple(learned[:LEARNED]),
        next_steps=to_do,
        hints=hints,
        reservations=doubts,
        terms=terms,
        language=language,
        words=words.page,
    )


def _answer(view: ReportView, shown: Table, words: Words) -> str:
    """Say how long the run takes, on what, how long the GPU is idle, and what could be saved."""
    time = view.run_time
    if not time.whole_ns or not view.kernels:
        return words.of(" ".join(view.abstained[:1])) or words.say("nothing")
    spent = {"time": duration(time.whole_ns), "n": count(time.gpus)}
    key = "takes_gpu" if time.basis == GPU else "takes_gpus" if time.gpus > 1 else "takes"
    parts = [words.say(key, **spent), _where(view, words), _savings(view, shown, words)]
    return words.page["between"].join(part for part in parts if part)


def _where(view: ReportView, words: Words) -> str:
    """Say what takes the time: idle time first where it is longest."""
    time = view.run_time
    names: dict[str, float] = defaultdict(float)
    for kernel in view.kernels:
        names[plain_name(kernel, words)] += kernel.share or 0.0
    most = max(names, key=names.__getitem__)
    idle = (time.idle_ns or 0.0) / (time.whole_ns or 1.0)
    own = any(kernel.short_name == most for kernel in view.kernels)
    part = time.part(names[most]) or 0.0
    said = {"thing": most if own else inside(most), "part": share(part), "idle": share(idle)}
    if idle < IDLE_RULE.limit("share"):
        return words.say("on_work", **{k: said[k] for k in ("thing", "part")})
    return words.say("on_idle" if idle > part else "on_work_and_idle", **said)


def _savings(view: ReportView, shown: Table, words: Words) -> str:
    """Say what could be saved at most: by shorter pauses, and by faster code."""
    whole = view.run_time.whole_ns or 1.0
    code = shown.gain_ns(KERNELS, OTHER, COPIES)
    idle = shown.gain_ns(IDLE) or 0.0
    counted = view.profiled_share or 0.0
    if code is None or not counted:
        saved = (code or 0.0) + idle
        if saved < WORTH_SAYING * whole:
            return words.say("unmeasured")
        return words.say("save_waits", time=duration(saved), gain=share(saved / whole))
    saved = code + idle
    said = {"time": duration(saved), "gain": share(saved / whole)}
    if saved < NEAR * whole:
        answer = words.say("save_near", **said)
    elif idle >= WORTH_NAMING * whole:
        answer = words.say("save_both", idle=duration(idle), code=duration(code), **said)
    else:
        answer = words.say("save_code", **said)
    in_part = 1 - counted >= threshold("unmeasured")
    more = [words.say("in_part", part=share(view.run_time.part(1 - counted)))] if in_part else []
    return words.page["between"].join([answer, *more])


def _gpus(view: ReportView, words: Words) -> tuple[SummaryGpu, ...]:
    """Return how each of several GPUs spent the run, then whether any of them worked."""
    if view.working_gpus < 2:
        return ()
    each = [
        SummaryGpu(f"GPU {gpu.gpu}", gpu.busy_ns, gpu.copies_alone_ns, gpu.idle_ns, gpu.idle_share)
        for gpu in view.gpus
    ]
    wall, none = view.wall_ns or 0.0, view.idle_together
    if none is None:
        return tuple(each)
    together = words.say("any_gpu", n=count(len(each)))
    return (*each, SummaryGpu(together, wall * (1 - none), None, wall * none, none))


def _facts(view: ReportView, words: Words) -> tuple[Fact, ...]:
    """Return what was measured."""
    found = [fact for section in view.sections for fact in section.facts][:FACTS]
    return tuple(Fact(translated(f.label, words), translated(f.value, words)) for f in found)


def _machine(time: RunTime, words: Words) -> str:
    """Return the GPUs that worked: "NVIDIA H200, one of 2 in the machine"."""
    if time.present <= 1:
        return time.gpu
    said = {"name": time.gpu or "GPU", "n": count(time.gpus), "total": count(time.present)}
    if not time.gpus:
        return words.say("unknown_gpus", name=time.gpu or "GPU", total=count(time.present))
    return words.say("all_gpus" if time.gpus == time.present else "some_gpus", **said)


def _reservations(view: ReportView, shown: Table, words: Words) -> tuple[str, ...]:
    """Return what weakens the answer: what is open, failed steps, doubtful counters."""
    open_ones = [q for q in view.abstained if words.recognise(q)[0] not in OF_ENGINEERS]
    said = [_open(view, question, words) for question in open_ones[:1]]
    idle = next((row.share or 0.0 for row in shown.rows if row.kind == IDLE), 0.0)
    if idle >= IDLE_RULE.limit("share"):
        said.append(words.say("tracing"))
    said += [words.of(caveat.plain) for caveat in view.caveats if caveat.plain]
    return tuple(said[:RESERVATIONS])


def _open(view: ReportView, question: str, words: Words) -> str:
    """Return an open question; the share of kernels without counters as a part of the run."""
    part = view.run_time.part(1 - (view.profiled_share or 0.0))
    if words.recognise(question)[0] == "others_open" and part is not None:
        whole = words.word("words", f"whole_{view.run_time.basis}")
        return words.say("others_open", part=share(part), whole=whole)
    return words.of(question)


__all__ = ["plain_name", "subject", "summarise"]
