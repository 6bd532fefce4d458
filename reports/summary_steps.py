"""Says what to do next in plain words, and what it saves of the run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from nsight_prof.parsers.cells import known
from nsight_prof.reports.evidence import say
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.formats import brief, duration, share
from nsight_prof.reports.language import Words
from nsight_prof.reports.page import Text
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.summary_rows import plain_name, subject
from nsight_prof.reports.view_models import KernelRow, ReportView

STEPS, SUBJECTS = 3, 3
WORTH_SAYING = 0.01


def steps(
    view: ReportView, advice: Sequence[str], words: Words
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what to do, and those steps of it that save no time.

    Findings of one advice are one step, the largest gain first. `advice` of sections is before
    them: a batch that gives more output gains more than the same work in less time.
    """
    groups: dict[str, list[Finding]] = defaultdict(list)
    for row in view.findings:
        if row.plain and gain_of(view, row) >= WORTH_SAYING:
            groups[english(row.plain)].append(row)
    # Who is near the limit gains little by better code: that is told where nothing else is.
    ranked = sorted(
        groups.values(), key=lambda rows: (is_near(rows[0]), -sum(gain_of(view, r) for r in rows))
    )
    better = [rows for rows in ranked if not is_near(rows[0])]
    said = [*advice, *(_step(view, rows, words) for rows in (better or ranked))]
    hints = advice if better else said
    return tuple(said[:STEPS]), tuple(hints[:STEPS])


def english(text: Text | None) -> str:
    """Return a text in English; empty for none."""
    return "" if text is None else Writer().text(text)


def inside(name: str) -> str:
    """Return a name inside of a sentence: no capital but that of an acronym, as of GPU."""
    return name if name[:2].isupper() else f"{name[:1].lower()}{name[1:]}"


def gain_of(view: ReportView, row: Finding) -> float:
    """Return what a finding saves, as a part of the whole run; 0 where it is not known."""
    time = view.run_time
    gain = known(row.gain_ns)
    if gain is None or not time.whole_ns:
        return 0.0
    saved = gain if row.gain_of == "wall time" else time.of_kernels(gain)
    return min(1.0, (saved or 0.0) / time.whole_ns)


def is_near(row: Finding) -> bool:
    """Return whether a finding says that only less work helps."""
    return english(row.plain) in (say("advice", "near"), say("advice", "near_dram"))


def _open(row: Finding) -> bool:
    return english(row.plain) == say("advice", "unknown")


def _step(view: ReportView, rows: list[Finding], words: Words) -> str:
    gain = min(1.0, sum(gain_of(view, row) for row in rows))
    time = duration(gain * (view.run_time.whole_ns or 0.0))
    whole = words.word("words", f"whole_{view.run_time.basis}")
    key = "may_save" if _open(rows[0]) else "saves"
    saved = words.say(key, time=time, part=share(gain), whole=whole)
    kernels = rows[0].key == "kernel"
    what = subjects(view, rows, words) if kernels else problem(rows, words)
    advice = words.of(english(rows[0].plain))
    if kernels and is_near(rows[0]):
        return words.say("step_near", what=what, advice=advice)
    return words.say("step", what=what, advice=advice, gain=saved)


def problem(rows: list[Finding], words: Words) -> str:
    """Return what is wrong without its numbers, which are of a stage: the gain says the rest."""
    key, values = words.recognise(english(rows[0].title))
    title = values.get("what") if key == "backend" else words.word("problems", rows[0].rule)
    if not title:
        return words.of(english(rows[0].title))
    stages = list(dict.fromkeys(row.stage for row in rows if row.stage not in ("", "(all)")))
    if not stages:
        return title
    return words.say("in_stage", what=title, stage=words.listed(stages))


def subjects(view: ReportView, rows: list[Finding], words: Words) -> str:
    """Return what kernels of findings do, in plain words."""
    plain = {kernel.kernel_id: _subject_of(kernel, words) for kernel in view.kernels}
    named = list(dict.fromkeys(name for row in rows if (name := _first(row, plain))))
    first, *rest = named[:SUBJECTS]
    own = {kernel.short_name for kernel in view.kernels}
    lowered = [name if name in own else inside(name) for name in rest]
    more = [words.say("others")] if len(named) > SUBJECTS else []
    return words.listed([first, *lowered, *more])


def _first(row: Finding, plain: Mapping[str, str]) -> str:
    """Return what the first kernel of a finding does that the report shows."""
    return next((plain[key] for key in row.kernel_ids if key in plain), "")


def _subject_of(kernel: KernelRow, words: Words) -> str:
    """Return the plain name without its explanation."""
    name = plain_name(kernel, words)
    return name if name == brief(kernel.short_name, 40) else subject(name)
