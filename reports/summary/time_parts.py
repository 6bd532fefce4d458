"""Where the time of a run goes, why, and what could be saved: the lines of the summary's table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from nsight_prof.parsers.build.bound import LABELS, is_borderline
from nsight_prof.reports.analysis.gpu_times import HOST, LAUNCHES, SYNCHRONISATION
from nsight_prof.reports.analysis.models import RunTime
from nsight_prof.reports.analysis.run_time import GPU
from nsight_prof.reports.findings.program.idle_rules import (
    ALLOCATION_STALLS,
    FIRST_USE,
    HOST_BOUND,
    LAUNCH_BOUND,
    SYNC_STALLS,
)
from nsight_prof.reports.page import Name, Text, Verbatim
from nsight_prof.reports.page.formats import brief
from nsight_prof.reports.profile.view_models import KernelRow, ReportView
from nsight_prof.reports.summary.models import Savings, SummaryRow
from nsight_prof.reports.summary.plain_words import CAUSES, EXPLAINED, KINDS, LIMITS, WAITS

ROWS = 5
"""Lines beside "everything else" and the sum."""
OWN_LINE = 0.01
"""Share of the run from which on copies have a line of their own."""
KERNELS, IDLE, COPIES, GRAPHS = "kernels", "idle", "copies", "graphs"
OTHER, TOTAL = "other", "total"
PARTS, ALL_STEPS = "parts-of-time-all", "steps-all"
"""Id of the sum of the lines."""
ALONE = Text("nothing is computed meanwhile")
IN_PART_ALONE = Text("does not fully overlap with computation")
UNMEASURED = Text("not measured")
FIRST_USED = Text("kernels are loaded at start-up, once")
IN_GRAPHS = Text("work in CUDA graphs that were traced as wholes")
RUN, GPU_TIME = Text("run"), Text("GPU time")
EXPLAIN = {
    LAUNCHES: {LAUNCH_BOUND.key},
    SYNCHRONISATION: {SYNC_STALLS.key},
    HOST: {HOST_BOUND.key, ALLOCATION_STALLS.key},
}
"""Rules of findings about idle time of a cause, unless what is loaded once explains it."""


@dataclass(frozen=True)
class TimeParts:
    """Lines of the table, the longest time first, and their sum (None where no time is known)."""

    rows: tuple[SummaryRow, ...]
    total: SummaryRow | None


def whole_of(time: RunTime) -> Text:
    """Return what shares of a time are shares of."""
    return GPU_TIME if time.basis == GPU else RUN


def time_parts(view: ReportView, saved: Savings) -> TimeParts:
    """Return where the time goes: the longest kernels by plain name and limit, idle time, the rest.

    Times and gains, at most, are parts of `view.run_time`; lines add up to the whole.
    """
    time = view.run_time
    kernels = _kernel_rows(view, saved)
    if not time.whole_ns:
        return TimeParts(tuple(_numbered(kernels[:ROWS])), None)
    idle, copies, graphs = _idle_rows(view, saved), _copy_rows(time, saved), _graph_rows(time)
    longest = sorted([*kernels, *copies, *graphs], key=_time, reverse=True)
    listed = longest[: ROWS - len(idle)]
    rest = [*longest[len(listed) :], *_unlisted(view, saved, copies)]
    rows = [*_numbered(sorted([*listed, *idle], key=_time, reverse=True)), *_other_row(time, rest)]
    gain = total_of(row.gain_ns for row in rows)
    name = Text("All GPU time") if time.basis == GPU else Text("The whole run")
    return TimeParts(tuple(rows), _row(time, TOTAL, name, time.whole_ns, None, gain))


def plain_name(kernel: KernelRow, kinds: Mapping[str, Text] = KINDS) -> Text | Name:
    """Return what a kernel does in words, with library and type; its own name where unknown."""
    kind = kinds.get(kernel.category)
    if kind is None or kernel.library in ("", "other"):
        return job(kernel)
    if kernel.category in EXPLAINED and kinds is not KINDS:
        return Text("{kind}, {library}", kind=kind, library=kernel.library)
    facts = Verbatim(", ".join(fact for fact in (kernel.library, kernel.dtype) if fact))
    return Text("{kind} ({facts})", kind=kind, facts=facts)


def largest_job(view: ReportView) -> tuple[Text | Name, float | None]:
    """Return what the GPU does for the longest time, and what part of the run that takes.

    All kernels of a kind count as one, whatever library they are of; a kernel of no library keeps
    its name.
    """
    shares: dict[Text | Name, float] = defaultdict(float)
    for kernel in view.kernels:
        shares[job(kernel)] += kernel.share or 0.0
    longest = max(shares, key=shares.__getitem__)
    share, time = view.run_time.of_whole(shares[longest]), view.run_time
    if time.graphs_ns and time.graphs_ns > (share or 0.0) * (time.whole_ns or 0.0):
        return IN_GRAPHS, time.graphs_ns / (time.whole_ns or 1.0)
    return longest, share


def job(kernel: KernelRow) -> Text | Name:
    """Return what a kernel does in plain words; the name of one that is of no library."""
    kind = KINDS.get(kernel.category)
    if kind is None or kernel.library in ("", "other"):
        return Name(brief(kernel.short_name, 40))
    return kind


def total_of(values: Iterable[float | None]) -> float | None:
    """Return the sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _row(
    time: RunTime,
    kind: str,
    what: Text | Name,
    time_ns: float | None,
    limited_by: Text | None,
    gain_ns: float | None = None,
) -> SummaryRow:
    """Return a line; no line saves more than its time."""
    total_ns = time.whole_ns or None
    if gain_ns is not None and time_ns is not None:
        gain_ns = min(gain_ns, time_ns)
    share = None if time_ns is None or total_ns is None else time_ns / total_ns
    gain = None if gain_ns is None or total_ns is None else gain_ns / total_ns
    return SummaryRow(kind, what, limited_by, time_ns, share, gain, gain_ns)


def _time(row: SummaryRow) -> float:
    return row.time_ns or 0.0


def limit_of(kernel: KernelRow) -> Text:
    """Return what limits a kernel in plain words."""
    limit = CAUSES.get(kernel.bound_cause) or LIMITS.get(kernel.bound_by, UNMEASURED)
    if not is_borderline(kernel.bound_by, kernel.roof_share or 0.0):
        return limit
    nearest = [LIMITS[key] for key, label in LABELS.items() if label == kernel.roof_label]
    return Text("{limits}", limits=[limit, *nearest[:1]])


def _kernel_rows(view: ReportView, saved: Savings) -> list[SummaryRow]:
    """Return a line for each plain name and limit, the one of most time first."""
    exposed = any(finding.rule == "collectives_exposed" for finding in view.findings)
    groups: dict[tuple[Text | Name, Text], list[KernelRow]] = defaultdict(list)
    for kernel in view.kernels:
        alone = exposed and kernel.category == "collective"
        name = plain_name(kernel, {**KINDS, **EXPLAINED})
        groups[name, IN_PART_ALONE if alone else limit_of(kernel)].append(kernel)
    time = view.run_time
    rows = [
        replace(
            _row(
                time,
                KERNELS,
                name,
                time.of_kernels(sum(k.total_ns or 0.0 for k in kernels)),
                limit,
                total_of(saved.kernels[k.number] for k in kernels),
            ),
            reached=reached(kernels),
            kernels=tuple(k.number for k in kernels),
            measured=limit != UNMEASURED,
        )
        for (name, limit), kernels in groups.items()
    ]
    return sorted(rows, key=_time, reverse=True)


def reached(kernels: Iterable[KernelRow]) -> float | None:
    """Return the share of the limit, weighted by GPU time; None where nothing is near one."""
    known = [k for k in kernels if k.roof_share is not None and k.bound_by != "latency"]
    weights = [k.share if k.share is not None else 1.0 for k in known]
    if not known or not sum(weights):
        return None
    total = sum(w * (k.roof_share or 0.0) for w, k in zip(weights, known, strict=True))
    return total / sum(weights)


def _numbered(rows: Iterable[SummaryRow]) -> list[SummaryRow]:
    """Keep the numbers of kernels only where two lines have the same name."""
    listed = list(rows)
    names = [row.what for row in listed]
    return [replace(row, kernels=()) if names.count(row.what) < 2 else row for row in listed]


def idle_cause(view: ReportView) -> Text:
    """Return for what the GPU waits most: kernels that are loaded once, where a finding says so."""
    waits, found = view.run_time.waits, {finding.rule for finding in view.findings}
    if FIRST_USE.key in found and waits and not found & EXPLAIN.get(waits, set()):
        return FIRST_USED
    causes = (waits, view.run_time.waits_also)
    known = [WAITS[cause] for cause in causes if cause in WAITS]
    return Text("{causes}", causes=known) if known else Text("not known")


def _idle_rows(view: ReportView, saved: Savings) -> list[SummaryRow]:
    time = view.run_time
    if time.idle_ns is None:
        return []
    name = Text("waiting: the GPU has nothing to do")
    return [_row(time, IDLE, name, time.idle_ns, idle_cause(view), saved.idle)]


def _graph_rows(time: RunTime) -> list[SummaryRow]:
    if not time.graphs_ns:
        return []
    return [replace(_row(time, GRAPHS, IN_GRAPHS, time.graphs_ns, UNMEASURED), measured=False)]


def _copy_rows(time: RunTime, saved: Savings) -> list[SummaryRow]:
    if time.copies_ns is None or time.copies_ns < OWN_LINE * (time.whole_ns or 0.0):
        return []
    return [_row(time, COPIES, KINDS["memory"], time.copies_ns, ALONE, saved.copies)]


def _unlisted(view: ReportView, saved: Savings, copies: list[SummaryRow]) -> list[SummaryRow]:
    """Return kernels that the report's table does not show, and copies without a line."""
    time = view.run_time
    known = sum(k.total_ns or 0.0 for k in view.kernels)
    rest = time.of_kernels(max(0.0, (time.gpu_time_ns or 0.0) - known))
    rows = [
        replace(_row(time, OTHER, Text(""), rest, None, saved.unlisted), measured=False),
        _row(time, OTHER, Text(""), None if copies else time.copies_ns, None, saved.copies),
    ]
    return [row for row in rows if row.time_ns]


def _other_row(time: RunTime, rest: list[SummaryRow]) -> list[SummaryRow]:
    spent_ns = sum(map(_time, rest))
    if not spent_ns:
        return []
    gain = total_of(row.gain_ns for row in rest)
    line = _row(time, OTHER, Text("everything else"), spent_ns, Text("several limits"), gain)
    return [replace(line, measured=any(row.measured for row in rest))]
