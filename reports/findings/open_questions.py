"""What a run does not tell, with the reason."""

from __future__ import annotations

import math
from collections.abc import Iterator

from nsight_prof.parsers.ncu.command import to_measure
from nsight_prof.parsers.run.directory import StepState
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.run.sentences import joined
from nsight_prof.reports.analysis.evidence import threshold
from nsight_prof.reports.analysis.padding import paddings
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.analysis.run_time import GPU, run_time
from nsight_prof.reports.page import Name, Number, OpenQuestion, Text, Value, Verbatim

TABLES_OF = {"trace": ("kernels",), "counters": ("metrics", "counters")}
NAMED = 5
"""Kernels that a question names."""
NO_COUNTERS = Text("ncu counted nothing of it")
OF_ANY_LAUNCH = ["kernel_id", "launch", "passes", "bound_by", "bound_unit", "second_by"]
"""Columns of table `counters` that say nothing of what ncu counted."""


def open_questions(run: Run) -> tuple[OpenQuestion, ...]:
    """Return the questions that this run cannot answer, each with the reason."""
    return (*_time(run), *_limits(run), *_bounds(run), *_padding(run), *_order(run))


def profiled_share(run: Run) -> float:
    """Return the part of the GPU time whose kernels have counters; NaN without a trace."""
    if math.isnan(kernel_time(run)) or run.kernels["share"].isna().all():
        return math.nan
    is_profiled = run.kernels["kernel_id"].isin(run.counters["kernel_id"])
    return float(run.kernels.loc[is_profiled, "share"].sum())


def _time(run: Run) -> Iterator[OpenQuestion]:
    if math.isnan(kernel_time(run)):
        reason = _reason(run, "trace")
        yield OpenQuestion(
            Text("How much of the time each kernel takes is not known: {why}.", why=reason),
            Text(
                "How much of the time each part of the work takes is not known: {why}.", why=reason
            ),
        )


def _limits(run: Run) -> Iterator[OpenQuestion]:
    if run.counters.empty:
        reason = _reason(run, "counters")
        how = Name(to_measure(run) if run.manifest.imported else "")  # else on the first screen
        advice = Text(" Who has the program measures it: {how}.", how=how) if how.name else ""
        yield OpenQuestion(
            Text("What limits the kernels is not known: {why}.{how}", why=reason, how=advice),
            Text("What limits each part of the work is not known: {why}.", why=reason),
        )
        return
    unprofiled = 1 - profiled_share(run)
    if unprofiled >= threshold("small_share"):
        time, of_gpu = run_time(run), Number(unprofiled, "fraction")
        question = Text(
            "What limits the other kernels ({part} of the GPU time) was not measured.", part=of_gpu
        )
        of_run = Number(time.of_whole(unprofiled), "fraction")
        simple = Text("We did not measure what limits {part} of the run.", part=of_run)
        yield OpenQuestion(question, question if time.basis == GPU else simple)


def _bounds(run: Run) -> Iterator[OpenQuestion]:
    unknown = run.counters[run.counters["bound_by"].fillna("") == ""]
    gaps = run.gaps[(run.gaps["table"] == "counters") & (run.gaps["column"] == "bound_by")]
    reasons = gaps.drop_duplicates("kernel_id").set_index("kernel_id")["reason"]
    causes = unknown["kernel_id"].map(lambda key: str(reasons.get(key, "")))
    names = run.kernels.set_index("kernel_id")["short_name"]
    for reason, rows in unknown.groupby(causes, sort=False):
        different = [*dict.fromkeys(str(names.get(k, k)) for k in rows["kernel_id"])]
        who: list[Value] = [Name(name) for name in different[:NAMED]]
        if len(different) > NAMED:
            who.append(Text("{n} more", n=len(different) - NAMED))
        is_counted = rows.drop(columns=OF_ANY_LAUNCH, errors="ignore").notna().any(axis=None)
        because = Verbatim(str(reason)) if reason and is_counted else NO_COUNTERS
        text = Text("What limits {who} is not known: {why}.", who=who, why=because)
        yield OpenQuestion(text, text)


def _padding(run: Run) -> Iterator[OpenQuestion]:
    unknown = [] if run.counters.empty else [p.shape for p in paddings(run) if p.row is None]
    if unknown:
        who = [Verbatim(f"{shape.name} ({shape.stage})") for shape in unknown]
        yield OpenQuestion(
            Text(
                "How much the tile pads {who} is not known: no counted launch has their FLOPs.",
                who=who,
            )
        )


def _order(run: Run) -> Iterator[OpenQuestion]:
    """Tell where the order of launches, or the host's calls, are not in the trace."""
    if math.isnan(kernel_time(run)):
        return
    if run.launch_times.empty and (reason := _gap(run, ("launches",))):
        text = Text(
            "Whether kernels could fuse, or communication runs alone, is not known: {why}.",
            why=reason,
        )
        yield OpenQuestion(text, text)
    if not set(run.idle_gaps["cause"]) - {"unknown"} and (reason := _gap(run, ("idle_gaps",))):
        text = Text("Why the GPU is idle is not known: {why}.", why=reason)
        yield OpenQuestion(text, text)


def _gap(run: Run, tables: tuple[str, ...]) -> Verbatim | None:
    """Return why tables lack something, in the words of who read the files; None for no reason."""
    reasons = run.gaps.loc[run.gaps["table"].isin(tables), "reason"]
    return next((Verbatim(str(reason).rstrip(".")) for reason in reasons), None)


def _reason(run: Run, step_name: str) -> Text | Verbatim:
    step = run.manifest.step(step_name)
    if step is None:
        return NO_STEP[step_name]
    if step.error:
        return Verbatim(step.error.rstrip("."))
    name = Verbatim(step_name)
    if step.state is not StepState.DONE:
        return Text("the {step} step was {state}", step=name, state=Verbatim(step.state.value))
    found = run.gaps[run.gaps["table"].isin(TABLES_OF[step_name])]["reason"].tolist()
    lost = run.joins[run.joins["method"] == "none"]["reason"].value_counts()
    reasons = [str(reason) for reason in (*found[:1], *lost.index[:1])]
    if reasons:
        return Verbatim(joined("; ", reasons))
    return Text("the {step} step gave nothing that could be read", step=name)


NO_STEP = {"trace": Text("this run has no trace"), "counters": Text("this run has no counters")}
"""Why something is not known, by the step that the run lacks."""
