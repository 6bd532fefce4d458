"""First screen of report and summary: the verdict, what to do, and how sure that is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache

from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.reports.analysis.run_time import WALL
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.formats import duration, rounded_share
from nsight_prof.reports.language import Words
from nsight_prof.reports.summary_models import Action, FirstScreen, SummaryRow
from nsight_prof.reports.summary_rows import IDLE, OTHER, Table
from nsight_prof.reports.summary_steps import english, gain_of, is_near, problem, subjects
from nsight_prof.reports.view_models import ReportView

MOST, STAGES = 5, 2
"""Rows of the table of what to do; stages that one of them names."""
WORTH = 0.01
"""Part of the run from which on a gain is worth a row."""
LARGE = 0.1
"""Part of the run that one line must save to be the verdict; a run that saves less in all is near
its limits."""


def first_screen(
    view: ReportView, shown: Table, answer: str, machine: str, words: Words
) -> FirstScreen:
    """Return the first screen of `view`.

    `shown` divides its time; `answer` is the verdict where there is no other.
    """
    time = view.run_time
    found = _actions(view, words)
    first = next(iter(found), None)
    gpu = machine or words.page["unnamed_gpu"]
    spent = {"gpu": gpu, "time": duration(time.whole_ns)}
    key = "line_unsure" if first is None else "line"
    line = words.say(key, **spent, sure=first.sure if first else "") if time.whole_ns else gpu
    saves = words.page["saves_most" if time.basis == WALL else "saves_gpu"]
    return FirstScreen(
        line, _verdict(view, shown, first, words) or answer, found, saves, alt=words.page["picture"]
    )


def _verdict(view: ReportView, shown: Table, first: Action | None, words: Words) -> str:
    """Return the one sentence that says what is wrong; empty where no time is known."""
    time = view.run_time
    if not time.whole_ns or not shown.rows:
        return ""
    whole = words.word("words", f"whole_{time.basis}")
    rows = [row for row in shown.rows if row.kind != OTHER] or list(shown.rows)
    longest = max(rows, key=lambda row: row.time_ns or 0.0)
    best = max(rows, key=lambda row: row.gain or 0.0)
    if best.kind == IDLE and (best.gain or 0.0) >= LARGE:
        return words.say("verdict_idle", part=rounded_share(best.share), why=best.limited_by)
    said = {"thing": best.what, "part": rounded_share(best.share), "whole": whole}
    if (best.gain or 0.0) >= LARGE:
        gain = rounded_share(best.gain)
        return words.say("verdict_part", limit=_limit(best, words), gain=gain, **said)
    total = sum(row.gain or 0.0 for row in shown.rows)
    if all(row.gain is None for row in shown.rows if row.kind not in (IDLE, OTHER)):
        said |= {"thing": longest.what, "part": rounded_share(longest.share)}
        return words.say("verdict_open", **said)
    if total < LARGE:
        return words.say("verdict_near", gain=rounded_share(total))
    said = {"gain": rounded_share(total), "whole": whole}
    if first is not None and first.gain >= total / 2:
        return words.say("verdict_step", do=first.do, **said)
    return words.say("verdict_spread", **said)


def _limit(row: SummaryRow, words: Words) -> str:
    if row.reached is None:
        return row.limited_by
    return words.page["used"].format(limit=row.limited_by, part=rounded_share(row.reached))


def _actions(view: ReportView, words: Words) -> tuple[Action, ...]:
    """Return what to do, findings of one advice together, the largest gain first."""
    whole = view.run_time.whole_ns or 0.0
    groups: dict[str, list[Finding]] = defaultdict(list)
    for row in view.findings:
        if row.rank is not None and row.plain and gain_of(view, row) and not is_near(row):
            groups[english(row.plain)].append(row)
    gains = {key: min(1.0, sum(gain_of(view, row) for row in groups[key])) for key in groups}
    left, made = whole, []
    for key in sorted(gains, key=lambda key: -gains[key])[:MOST]:
        rows, saved = groups[key], gains[key] * whole
        if gains[key] < WORTH:
            continue
        left = max(0.0, left - saved)
        sure = words.word("levels", rows[0].confidence, rows[0].confidence)
        effort = words.word("levels", _effort().get(rows[0].rule, "medium"))
        do = _do(view, rows, words)
        made.append(Action(do, saved, gains[key], sure, effort, left, rows[0].anchor))
    return tuple(made)


def _do(view: ReportView, rows: list[Finding], words: Words) -> str:
    """Return what to do in a few words: for what, where that does not go without saying."""
    advice = words.of(english(rows[0].plain))
    if rows[0].key == "kernel":
        return words.say("step_near", what=subjects(view, rows, words), advice=advice).rstrip(".。")
    short = words.word("actions", rows[0].rule)
    if not short:
        what = problem(rows, words)
        return words.say("step_near", what=what, advice=advice).rstrip(".。")
    stages = list(dict.fromkeys(row.stage for row in rows if row.stage not in ("", "(all)")))
    if not 0 < len(stages) <= STAGES:
        return short
    return words.say("in_stage", what=short, stage=words.listed(stages))


@cache
def _effort() -> Mapping[str, str]:
    loaded: Mapping[str, str] = packaged_yaml("nsight_prof.reports", "plain_words.yaml")["effort"]
    return loaded
