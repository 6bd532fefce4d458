"""Shortens the report of a benchmark, or of a job of ranks, to half a page for who decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from nsight_prof.parsers.ranks.times import LATE
from nsight_prof.parsers.run.directory import RunDir
from nsight_prof.reports.engine.rank_times import (
    TimesRow,
    longest_part,
    mean_share,
    saved_together,
    straggler,
    waiting_findings,
)
from nsight_prof.reports.engine.ranks import JobView, communication_findings, known_ranks
from nsight_prof.reports.page import Fact, Finding, Name, Number, Section, Text
from nsight_prof.reports.profile.method_view import summary_terms
from nsight_prof.reports.studies.models import (
    RESERVATIONS,
    BenchReport,
    BenchSummary,
    actions,
    leading,
)

ANSWERS, ROWS, LEARNED = 2, 8, 6


def bench_summary(view: BenchReport) -> BenchSummary:
    """Return the summary of a report: what its findings say to everybody."""
    findings = _general(view.sections)
    found = _distinct(findings)[: ANSWERS + LEARNED]
    if not found:
        findings = leading(view.sections, 1 + LEARNED)
        found = [finding.verdict for finding in findings]
    to_do = actions(findings)
    rows = tuple(fact for section in view.sections for fact in section.facts)[:ROWS]
    reservations = [caveat.lay_text for caveat in view.caveats if caveat.lay_text][:RESERVATIONS]
    nothing = Text("This run holds nothing that answers the question.")
    summary = BenchSummary(
        title=view.title,
        question=view.question,
        subject=view.subject,
        machine=view.gpu,
        answer=tuple(found[:ANSWERS]) or (nothing,),
        rows=rows,
        to_do=to_do,
        learned=tuple(found[ANSWERS:]),
        reservations=tuple(reservations),
    )
    return replace(summary, terms=summary_terms(summary.words))


def _general(sections: tuple[Section, ...]) -> list[Finding]:
    """Return the leading findings that say something to everybody."""
    general = [
        replace(section, blocks=tuple(f for f in section.findings if not f.technical), children=())
        for section in sections
    ]
    return leading(tuple(general), ANSWERS + LEARNED)


def _distinct(findings: list[Finding]) -> list[Text]:
    """Return what findings say to everybody, once for each kind of sentence."""
    found: dict[str, Text] = {}
    for finding in findings:
        text = finding.lay_verdict or finding.verdict
        found.setdefault(text.message, text)
    return list(found.values())


def job_summary(view: JobView) -> BenchSummary:
    """Return who holds the job up or what bounds it, what there is to gain, and how sure."""
    subject = Text(
        "{known} of {n} rank, {time} of GPU time in kernels.",
        "{known} of {n} ranks, {time} of GPU time in kernels.",
        known=view.rank_count,
        n=view.rank_total,
        time=Number(view.gpu_time_ns, "ns", digits=3),
    )
    summary = BenchSummary(
        title=view.title,
        question=view.question,
        subject=subject,
        machine=", ".join(sorted({row.gpu for row in view.ranks if row.gpu})),
        answer=_answer(view),
        rows=tuple(_rows(view)),
        to_do=tuple(_to_do(view)),
        learned=(),
        reservations=tuple(_reservations(view)),
    )
    return replace(summary, terms=summary_terms(summary.words))


def _answer(view: JobView) -> tuple[Text, ...]:
    first = next(waiting_findings(view.times, view.steps), None)
    if first is None or first.rule == "rank_waits":
        return (
            Text("Which rank holds the others up is not known: no collective is common to them."),
        )
    return (
        first.verdict,
        *(found.lay_verdict or found.verdict for found in communication_findings(view)),
    )


def _compared(view: JobView) -> list[TimesRow]:
    return [row for row in view.times if row.wait_ns is not None and row.wall_ns]


def _to_do(view: JobView) -> Iterator[Text]:
    compared, slow = _compared(view), straggler(view.times)
    if slow is not None:
        late = next(waiting_findings(view.times, view.steps))
        yield from [late.action] if late.action else []
        # Who waits longest is late by the least.
        waiting = min(compared, key=lambda row: row.late_ns or 0.0).rank
        runs = (RunDir(Path("RUN")).rank(rank).path for rank in (waiting, slow.rank))
        yield Text(
            "Compare rank {rank} with rank {other}, which waits longest: {command}.",
            rank=slow.rank,
            other=waiting,
            command=Name(" ".join(["prof compare", *map(str, runs)])),
        )
    elif compared:
        yield _remedy(longest_part(compared), compared[0].rank)
        yield from (found.action for found in communication_findings(view) if found.action)


def _remedy(column: str, rank: int) -> Text:
    """Return what shortens the largest part of the time, where no rank is late."""
    command = Name(f"prof report RUN --rank {rank}")
    return {
        "compute_ns": Text(
            "Make the kernels faster: {command} ranks those of one rank by what they could save.",
            command=command,
        ),
        "later_wait_ns": Text(
            "See in the full report which rank is slow in which steps, and divide the work anew."
        ),
        "transfer_ns": Text("Let transfers run beside other kernels, or send less."),
        "copies_ns": Text(
            "Copy less, or beside kernels: {command} lists the copies of one rank.", command=command
        ),
        "idle_ns": Text(
            "Let the hosts launch earlier: {command} shows what the host of one rank does while "
            "its GPU is idle.",
            command=command,
        ),
    }[column]


def _rows(view: JobView) -> Iterator[Fact]:
    compared = _compared(view)
    if compared:
        yield Fact(
            Text("Where the time goes, mean over GPUs"),
            Text(
                "compute {compute}, waiting for ranks {wait}, transfer {transfer}, copies "
                "{copies}, idle {idle}",
                compute=mean_share(compared, "compute_ns"),
                wait=mean_share(compared, "later_wait_ns"),
                transfer=mean_share(compared, "transfer_ns"),
                copies=mean_share(compared, "copies_ns"),
                idle=mean_share(compared, "idle_ns"),
            ),
        )
        together = saved_together(view.times, view.steps)
        yield Fact(Text("Ranks that arrive together save at most"), together)
        yield Fact(
            Text("Transfers beside other kernels save at most"), mean_share(compared, "transfer_ns")
        )
    slow = straggler(view.times)
    if slow is not None:
        yield Fact(
            Text("Rank {rank} is late by (95 %)", rank=slow.rank),
            Text(
                "{late} ({low} to {high})",
                late=slow.number("late_ns"),
                low=slow.number("late_low_ns"),
                high=slow.number("late_high_ns"),
            ),
        )
    residuals = [row.clock_residual_ns for row in view.times if row.clock_residual_ns is not None]
    if residuals:
        yield Fact(
            Text("Times of two ranks compare within (95 %)"),
            Number(max(residuals), "ns", digits=2),
        )


def _reservations(view: JobView) -> Iterator[Text]:
    if view.rank_count < view.rank_total:
        yield known_ranks(view)
    if (slow := straggler(view.times)) is not None:
        yield Text(
            "At least {low} of the lateness of rank {rank} is more than chance (95 %).",
            low=slow.number("late_low_ns"),
            rank=slow.rank,
        )
    elif any(row.late_low_ns is not None for row in view.times):
        yield Text(
            "A rank that is late by less than {limit} of the time, or too unevenly to tell it from "
            "chance, is not named.",
            limit=Number(LATE, "fraction"),
        )
    yield from view.caveats[:RESERVATIONS]
