"""Says what a reader must be wary of, a bullet a kind of doubt, the most important first."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from nsight_prof.parsers.cells import Row, number, records, text
from nsight_prof.parsers.columns import IMPOSSIBLE, NOT_COLLECTED
from nsight_prof.parsers.metrics import catalogue
from nsight_prof.parsers.run_dir import StepState
from nsight_prof.reports.analysis.run_time import WALL, RunTime
from nsight_prof.reports.evidence import threshold
from nsight_prof.reports.formats import clock, duration, listed, share
from nsight_prof.reports.load import Run
from nsight_prof.reports.profiled import profiled
from nsight_prof.reports.view_models import Caveat, KernelRow

MOST = 8
"""Bullets of the list; what is beyond stands in the last one."""


def caveats(run: Run, kernels: tuple[KernelRow, ...], time: RunTime) -> tuple[Caveat, ...]:
    """Return at most MOST caveats: failed steps, doubtful counters, clock, then missing values."""
    found = [*_failed(run), *_mixed(kernels, time), *_durations(kernels, time)]
    found += [*_untypical(run, kernels), *_clock(run), *_warnings(run, kernels)]
    found += [*_impossible(run, kernels), *_gaps(run, kernels), *_not_collected(run)]
    if len(found) <= MOST:
        return tuple(found)
    rest = tuple(caveat.text for caveat in found[MOST - 1 :])
    return (*found[: MOST - 1], Caveat("Of less weight:", (), parts=rest))


def selection_notes(run: Run, kernels: tuple[KernelRow, ...]) -> tuple[str, ...]:
    """Return the notes of the selection, and the kernels of which the trace has no launch."""
    if run.selection is None:
        return ()
    numbers = {row.kernel_id: row.number for row in kernels}
    untraced = [
        f"Kernel {number} ({kernel.short_name}): the trace has no launch of it"
        for kernel in run.selection.kernels
        if not kernel.traced and (number := numbers.get(kernel.kernel_id)) is not None
    ]
    return (*run.selection.notes, *untraced)


def _failed(run: Run) -> list[Caveat]:
    found = []
    for step in run.manifest.steps:
        if step.state in (StepState.FAILED, StepState.UNSUPPORTED):
            hint = f" ({step.hint.rstrip('.')})" if step.hint else ""
            reason = step.error.rstrip(".") or step.state.value
            words = f"The step {step.name} gave no result: {reason}{hint}."
            found.append(Caveat(words, (), "A part of the measurement failed; see the report."))
    return found


def _mixed(kernels: tuple[KernelRow, ...], time: RunTime) -> list[Caveat]:
    rows = [row for row in kernels if row.mixed and row.profiled]
    if not rows:
        return []
    spans = [
        f"{row.number} ({duration(row.min_ns)} to {duration(row.max_ns)}, {share(row.share)})"
        for row in rows
    ]
    words = (
        "Launches of one kernel that do different amounts of work: one launch does not stand for "
        f"all, and counters are known for one only. Kernels {listed(spans)}."
    )
    plain = (
        f"{_part_of(time, rows)} goes to steps that differ in size from call to call; one call "
        "of each was measured in detail."
    )
    return [Caveat(words, (), plain)]


def _part_of(time: RunTime, rows: list[KernelRow]) -> str:
    """Return "18.1 % of the run": what kernels take, in the one measure of the summary."""
    taken = sum(row.share or 0.0 for row in rows)
    if time.basis == WALL:
        return f"{share(time.part(taken))} of the run"
    return f"{share(taken)} of the GPU time"


def _durations(kernels: tuple[KernelRow, ...], time: RunTime) -> list[Caveat]:
    flagged = [row for row in kernels if row.duration_flagged]
    if not flagged:
        return []
    worst = max((row.duration_difference or 0.0 for row in flagged), key=abs)
    part = share(sum(row.share or 0.0 for row in flagged))
    words = (
        f"ncu and nsys disagree by more than {share(threshold('duration_difference'))} on how long "
        f"{ranges(row.number for row in flagged)} take{'s' if len(flagged) == 1 else ''} (at worst "
        f"{100 * worst:+.0f} %; {part} of the GPU time): counters were read at another clock, "
        "cache state or size of work than the typical launch. Trust their counters less."
    )
    plain = (
        f"For {_part_of(time, flagged)} the two measuring tools differ by up to "
        f"{share(abs(worst))} on how long it takes, so the limits named there are less certain."
    )
    return [Caveat(words, (), plain)]


def _untypical(run: Run, kernels: tuple[KernelRow, ...]) -> list[Caveat]:
    """Tell where the profiled launch takes another time than the median launch."""
    numbers = {row.kernel_id: row.number for row in kernels}
    parts = {
        number: f"{number} (launch {kernel.launch}, {100 * abs(kernel.deviation):.0f} % "
        f"{'longer' if kernel.deviation > 0 else 'shorter'})"
        for kernel in (run.selection.kernels if run.selection else ())
        if kernel.is_untypical and not kernel.is_mixed and kernel.deviation is not None
        for number in [numbers.get(kernel.kernel_id)]
        if number is not None
    }
    if not parts:
        return []
    one = len(parts) == 1
    words = (
        f"In the trace the profiled launch{'' if one else 'es'} of kernel{'' if one else 's'} "
        f"{listed([parts[key] for key in sorted(parts)])} differ{'s' if one else ''} from the "
        "median launch; all launches count as if they were like the profiled one."
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
    words = (
        f"The SMs ran at {clock(mean)} under ncu (mean weighted by GPU time), not at their maximum "
        f"of {clock(top)}. Shares of a roof are at the clock of each kernel; a power or heat limit "
        "that holds the clock down comes on top."
    )
    plain = (
        f"The GPU ran at {share(mean / top)} of its highest clock, as it does under heavy load; "
        "all limits here are those at that clock."
    )
    return [Caveat(words, (), plain)]


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
            lines = "; ".join(note.rstrip(".") for note in notes)
            found.append(Caveat(f"{step.name}: {lines}.", ()))
    return found


def _impossible(run: Run, kernels: tuple[KernelRow, ...]) -> list[Caveat]:
    """Group values that failed a check of the catalogue: which, of which kernels."""
    odd = [row for row in records(run.gaps) if text(row["kind"]) == IMPOSSIBLE]
    if not odd:
        return []
    parts = [f"{label(column)} of {who}" for column, who in _by_column(odd, kernels)]
    words = (
        f"Not available, since impossible values came out: {listed(parts)}. Passes of ncu that saw "
        "another state of the caches or clocks do that; each kernel's block has the value."
    )
    return [Caveat(words, ())]


def _gaps(run: Run, kernels: tuple[KernelRow, ...]) -> list[Caveat]:
    """Group the holes of all tables by their reason, the one of most values first."""
    grouped = defaultdict(list)
    for row in records(run.gaps):
        if text(row["kind"]) != IMPOSSIBLE and not _is_not_collected(row):
            grouped[text(row["reason"]).rstrip(".")].append(row)
    ranked = sorted(grouped.items(), key=lambda item: -len(item[1]))
    return [
        Caveat(f"Not available: {listed(_concerned(rows, kernels))}, because: {reason}.", ())
        for reason, rows in ranked
    ]


def _is_not_collected(row: Row) -> bool:
    """Tell whether a whole column is empty because its counters were not asked for."""
    return text(row["kind"]) == NOT_COLLECTED and not text(row["kernel_id"])


def _not_collected(run: Run) -> list[Caveat]:
    """Return the columns whose counters no set of the run has, in one caveat."""
    rows = [row for row in records(run.gaps) if _is_not_collected(row)]
    parts = {f"{label(text(row['column']))} ({text(row['reason'])})" for row in rows}
    return [Caveat(f"Not available in this run: {listed(sorted(parts))}.", ())] if parts else []


def _concerned(rows: list[dict[str, object]], kernels: tuple[KernelRow, ...]) -> list[str]:
    """Return "L1 hits and L2 hits of kernels 1 to 4", a part for each set of kernels."""
    columns: dict[str, list[str]] = defaultdict(list)
    for column, who in _by_column(rows, kernels):
        columns[who].append(label(column))
    return [f"{listed(names)} of {who}" if names[0] else who for who, names in columns.items()]


def _by_column(
    rows: list[dict[str, object]], kernels: tuple[KernelRow, ...]
) -> list[tuple[str, str]]:
    """Return (column, whose it is) in the order in which the columns come."""
    numbers = {row.kernel_id: row.number for row in kernels}
    found: dict[str, list[int]] = defaultdict(list)
    others: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        column, key = text(row["column"]), text(row["kernel_id"])
        place = numbers.get(key)
        if place is not None:
            found[column].append(place)
        else:
            others[column].add("a further kernel" if key else f"table {text(row['table'])}")
    return [
        (column, listed([*([ranges(found[column])] if column in found else []), *sorted(who)]))
        for column, who in {**dict.fromkeys(found, set()), **others}.items()
    ]


def label(column: str) -> str:
    """Return what a column of a table is called in the report."""
    known = catalogue().columns.get(column)
    return known.label if known else column.removesuffix("_pct").replace("_", " ")


def labelled(reason: str) -> str:
    """Return "L1 hits: no such counter" for "l1_hit_pct: no such counter"."""
    column, colon, rest = reason.partition(": ")
    return f"{label(column)}{colon}{rest}" if colon else reason


def ranges(numbers: Iterable[int]) -> str:
    """Return "kernel 3" or "kernels 1 to 3, 5 and 9"."""
    places = sorted(set(numbers))
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][-1] + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    parts = []
    for run in runs:
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(place) for place in run]
    return f"kernel{'s' if len(places) > 1 else ''} {listed(parts)}"
