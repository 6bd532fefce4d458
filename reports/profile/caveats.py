"""Caveats of a report, one bullet per kind of doubt, the most important first."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from nsight_prof.parsers.cells import Row, count, number, records, text
from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.parsers.metrics.columns import IMPOSSIBLE, NOT_COLLECTED
from nsight_prof.parsers.run.directory import StepState
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.run.sentences import joined, stored
from nsight_prof.reports.analysis.evidence import threshold
from nsight_prof.reports.analysis.models import RunTime
from nsight_prof.reports.analysis.profiled import profiled
from nsight_prof.reports.analysis.run_time import WALL
from nsight_prof.reports.page import Number, Text, Value, Verbatim, Word
from nsight_prof.reports.page.formats import shorten
from nsight_prof.reports.profile.view_models import Caveat, KernelRow

MOST = 8
"""Bullets of the list; what is beyond stands in the last one."""
DEPTH = "num_hidden_layers"
"""Key of config.json with the number of layers."""
LLM_BLOCK = 2, 32
"""Layers that the target llm_block.py runs where nothing else is asked for, and those of the model
whose sizes it has (Llama-3.1-8B)."""
LONGEST = 160
"""Characters of a reason that a caveat shows; table gaps has all of it."""


def caveats(run: Run, kernels: tuple[KernelRow, ...], time: RunTime) -> tuple[Caveat, ...]:
    """Return at most MOST caveats: failed steps, doubtful counters, clock, then missing values."""
    found = [*_failed(run), *_mixed(kernels, time), *_durations(kernels, time)]
    found += [*_untypical(run, kernels), *_cut(run), *_clock(run), *_warnings(run, kernels)]
    found += [*_impossible(run, kernels), *_gaps(run, kernels), *_not_collected(run)]
    if len(found) <= MOST:
        return tuple(found)
    rest = tuple(caveat.text for caveat in found[MOST - 1 :])
    return (*found[: MOST - 1], Caveat(Text("Of less weight:"), (), points=rest))


def selection_notes(run: Run, kernels: tuple[KernelRow, ...]) -> tuple[str, ...]:
    """Return the notes of the selection, and the kernels of which the trace has no launch."""
    if run.selection is None:
        return ()
    numbers = {row.kernel_id: row.number for row in kernels}
    untraced = [
        stored(
            "Kernel {number} ({name}): the trace has no launch of it",
            number=number,
            name=kernel.short_name,
        )
        for kernel in run.selection.kernels
        if not kernel.traced and (number := numbers.get(kernel.kernel_id)) is not None
    ]
    return (*run.selection.notes, *untraced)


def _failed(run: Run) -> list[Caveat]:
    found = []
    for step in run.manifest.steps:
        if step.state in (StepState.FAILED, StepState.UNSUPPORTED):
            cause: Value = Verbatim(step.error.rstrip(".") or step.state.value)
            if step.hint:
                cause = Text(
                    "{reason} ({hint})", reason=cause, hint=Verbatim(step.hint.rstrip("."))
                )
            words = Text("The step {step} gave no result: {why}.", step=step.name, why=cause)
            simple = Text("A part of the measurement failed; see the report.")
            found.append(Caveat(words, (), simple))
    return found


def _mixed(kernels: tuple[KernelRow, ...], time: RunTime) -> list[Caveat]:
    rows = [row for row in kernels if row.mixed and row.profiled]
    if not rows:
        return []
    spans = [
        Text(
            "{kernel} ({low} to {high}, {part})",
            kernel=row.number,
            low=Number(row.min_ns, "ns", digits=3),
            high=Number(row.max_ns, "ns", digits=3),
            part=Number(row.share, "fraction"),
        )
        for row in rows
    ]
    words = Text(
        "Launches of one kernel differ in their work, and counters are known of one launch only, "
        "which does not stand for all: kernels {kernels}.",
        kernels=spans,
    )
    simple = Text(
        "{part} of the {whole} goes to steps that differ in size from call to call; one call of "
        "each was measured in detail, and others may be limited by something else.",
        **_part_of(time, rows),
    )
    return [Caveat(words, (), simple)]


def _part_of(time: RunTime, rows: list[KernelRow]) -> dict[str, Value]:
    """Return what part of the run kernels take, in the one measure of the summary."""
    share = sum(row.share or 0.0 for row in rows)
    if time.basis == WALL:
        return {"part": Number(time.of_whole(share), "fraction"), "whole": Text("run")}
    return {"part": Number(share, "fraction"), "whole": Text("GPU time")}


def _durations(kernels: tuple[KernelRow, ...], time: RunTime) -> list[Caveat]:
    flagged = [row for row in kernels if row.duration_flagged]
    if not flagged:
        return []
    worst = max((row.duration_difference or 0.0 for row in flagged), key=abs)
    words = Text(
        "ncu and nsys disagree by more than {limit} on how long {who} take (at worst {worst}; "
        "{part} of the GPU time): counters were read at another clock, cache state or size of work "
        "than the typical launch. Trust their counters less.",
        limit=Number(threshold("duration_difference"), "fraction"),
        who=ranges(row.number for row in flagged),
        worst=f"{100 * worst:+.0f} %",
        part=Number(sum(row.share or 0.0 for row in flagged), "fraction"),
    )
    simple = Text(
        "For {part} of the {whole} the diagnosis is uncertain; the times are reliable.",
        **_part_of(time, flagged),
    )
    return [Caveat(words, (), simple)]


def _cut(run: Run) -> list[Caveat]:
    """Tell where a target ran some layers of a model that has more."""
    layers = _layers(run.manifest.recipe.get("target") or {})
    if layers is None:
        return []
    words = Text(
        "The program runs {n} layer of its model: what a model has once, as its head and sampling, "
        "takes a larger part of the time than in the whole model.",
        "The program runs {n} layers of its model: what a model has once, as its head and "
        "sampling, takes a larger part of the time than in the whole model.",
        n=layers,
    )
    return [Caveat(words, (), words)]


def _layers(target: Mapping[str, Any]) -> int | None:
    """Return how many layers of a model a target was told to run; None for all, or unknown."""
    args = target.get("args") or {}
    for item in args.get("override") or ():
        key, _, value = str(item).partition("=")
        if key.endswith(DEPTH) and value.isdigit():
            return int(value)
    layers = count(args.get("layers", LLM_BLOCK[0]))
    is_cut = target.get("file") == "llm_block.py" and layers is not None and layers < LLM_BLOCK[1]
    return layers if is_cut else None


def _untypical(run: Run, kernels: tuple[KernelRow, ...]) -> list[Caveat]:
    """Tell where the profiled launch takes another time than the median launch."""
    numbers = {row.kernel_id: row.number for row in kernels}
    deviations: dict[int, Value] = {}
    for kernel in run.selection.kernels if run.selection else ():
        position, off = numbers.get(kernel.kernel_id), kernel.deviation
        if position is None or off is None or not kernel.is_untypical or kernel.is_mixed:
            continue
        by: dict[str, Value] = {"launch": kernel.launch, "part": f"{100 * abs(off):.0f} %"}
        deviations[position] = (
            Text("{kernel} (launch {launch}, {part} longer)", kernel=position, **by)
            if off > 0
            else Text("{kernel} (launch {launch}, {part} shorter)", kernel=position, **by)
        )
    if not deviations:
        return []
    words = Text(
        "In the trace the profiled launch of these kernels differs from the median launch: "
        "{kernels}. All launches count as if they were like the profiled one.",
        kernels=[deviations[key] for key in sorted(deviations)],
    )
    return [Caveat(words, ())]


def _clock(run: Run) -> list[Caveat]:
    rows = [r for r in profiled(run) if number(r["sm_clock_hz"]) > 0 and number(r["total_ns"]) > 0]
    top = number(run.gpus["clock_hz"].max())
    total = sum(number(r["total_ns"]) for r in rows)
    if not rows or math.isnan(top):
        return []
    mean = sum(number(r["sm_clock_hz"]) * number(r["total_ns"]) for r in rows) / total
    if mean / top >= threshold("clock"):
        return []
    words = Text(
        "The SMs ran at {clock} under ncu (mean weighted by GPU time), not at their maximum of "
        "{highest}. Shares of a roof are at the clock of each kernel; a power or heat limit that "
        "holds the clock down comes on top.",
        clock=Number(mean, "Hz", digits=3),
        highest=Number(top, "Hz", digits=3),
    )
    return [Caveat(words, ())]


def _warnings(run: Run, kernels: tuple[KernelRow, ...]) -> list[Caveat]:
    """Return the warnings of steps, those that other caveats say left out, one bullet per step."""
    chosen = run.selection
    of_kernels = {w for k in (chosen.kernels if chosen else ()) for w in k.warnings()}
    found = []
    for step in run.manifest.steps:
        notes = [warning for warning in step.warnings if warning not in of_kernels]
        if of_kernels.intersection(step.warnings):
            notes += selection_notes(run, kernels)[len(chosen.notes) if chosen else 0 :]
        if notes:
            lines = joined("; ", (note.rstrip(".") for note in notes))
            words = Text("{step}: {warnings}.", step=step.name, warnings=Verbatim(lines))
            found.append(Caveat(words, ()))
    return found


def _impossible(run: Run, kernels: tuple[KernelRow, ...]) -> list[Caveat]:
    """Group values that failed a check of the catalogue: which, of which kernels."""
    odd = [row for row in records(run.gaps) if text(row["kind"]) == IMPOSSIBLE]
    if not odd:
        return []
    sentences = [_values_of([column], who) for column, who in _by_column(odd, kernels)]
    words = Text(
        "Not available, since impossible values came out: {values}. Passes of ncu that saw another "
        "state of the caches or clocks do that; each kernel's block has the value.",
        values=sentences,
    )
    return [Caveat(words, ())]


def _values_of(columns: list[str], who: Value) -> Text:
    """Return "L1 hits of kernels 1 to 4"; of a whole table its name."""
    labels = [Word(label(column)) for column in columns]
    return (
        Text("{values} of {who}", values=labels, who=who)
        if any(columns)
        else Text("{who}", who=who)
    )


def _gaps(run: Run, kernels: tuple[KernelRow, ...]) -> list[Caveat]:
    """Group the holes of all tables by their reason, the one of most values first."""
    grouped = defaultdict(list)
    for row in records(run.gaps):
        if text(row["kind"]) != IMPOSSIBLE and not _is_not_collected(row):
            grouped[text(row["reason"]).rstrip(".")].append(row)
    ranked = sorted(grouped.items(), key=lambda item: -len(item[1]))
    return [Caveat(_gap(reason, rows, kernels), ()) for reason, rows in ranked]


def _gap(reason: str, rows: list[Row], kernels: tuple[KernelRow, ...]) -> Text:
    cause = Word(shorten(reason, LONGEST))
    of_launches = all(text(r["table"]) == "launches" and not text(r["column"]) for r in rows)
    if of_launches and kernels:  # the table is there: it is told how its rows got their stages
        return Text("How launches count to stages: {reason}.", reason=cause)
    return Text(
        "Not available: {values}, because: {reason}.",
        values=_concerned(rows, kernels),
        reason=cause,
    )


def _is_not_collected(row: Row) -> bool:
    """Tell whether a whole column is empty because its counters were not asked for."""
    return text(row["kind"]) == NOT_COLLECTED and not text(row["kernel_id"])


def _not_collected(run: Run) -> list[Caveat]:
    """Return the columns whose counters no set of the run has, in one caveat."""
    rows = [row for row in records(run.gaps) if _is_not_collected(row)]
    found = {(label(text(row["column"])), text(row["reason"])) for row in rows}
    columns = [
        Text("{column} ({reason})", column=Word(column), reason=Word(reason))
        for column, reason in sorted(found, key=lambda pair: f"{pair[0]} ({pair[1]})")
    ]
    words = Text("Not available in this run: {columns}.", columns=columns) if columns else None
    return [Caveat(words, ())] if words else []


def _concerned(rows: list[dict[str, object]], kernels: tuple[KernelRow, ...]) -> list[Value]:
    """Return "L1 hits and L2 hits of kernels 1 to 4", a part for each set of kernels."""
    columns: dict[Value, list[str]] = defaultdict(list)
    for column, who in _by_column(rows, kernels):
        columns[who].append(column)
    return [_values_of(names, who) for who, names in columns.items()]


def _by_column(
    rows: list[dict[str, object]], kernels: tuple[KernelRow, ...]
) -> list[tuple[str, Text]]:
    """Return (column, whose it is) in the order in which the columns come."""
    numbers = {row.kernel_id: row.number for row in kernels}
    found: dict[str, list[int]] = defaultdict(list)
    others: dict[str, dict[Text, None]] = defaultdict(dict)
    for row in rows:
        column, key = text(row["column"]), text(row["kernel_id"])
        position = numbers.get(key)
        if position is not None:
            found[column].append(position)
        elif key:
            others[column][Text("a further kernel")] = None
        else:
            others[column][Text("table {name}", name=text(row["table"]))] = None
    return [
        (
            column,
            Text(
                "{several}", several=[*([ranges(found[column])] if column in found else []), *who]
            ),
        )
        for column, who in {**dict.fromkeys(found, {}), **others}.items()
    ]


def label(column: str) -> str:
    """Return what a column of a table is called in the report."""
    known = catalogue().columns.get(column)
    return known.label if known else column.removesuffix("_pct").replace("_", " ")


def ranges(numbers: Iterable[int]) -> Text:
    """Return "kernel 3" or "kernels 1 to 3, 5 and 9"."""
    runs: list[list[int]] = []
    for position in sorted(set(numbers)):
        if runs and position == runs[-1][-1] + 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    spans: list[Value] = []
    for run in runs:
        span = Text("{low} to {high}", low=run[0], high=run[-1])
        spans += [span] if len(run) > 2 else run
    if len(runs) == 1 and len(runs[0]) == 1:
        return Text("kernel {number}", number=runs[0][0])
    return Text("kernels {numbers}", numbers=spans)
