"""Makes the table of a summary: where the time of a run goes, why, and what could be saved."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nsight_prof.parsers.cells import known
from nsight_prof.reports.analysis.run_time import RunTime
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.formats import brief
from nsight_prof.reports.language import ENGLISH, Words, words_of
from nsight_prof.reports.summary_models import SummaryRow
from nsight_prof.reports.view_models import KernelRow, ReportView

ROWS = 5
"""Lines beside "everything else" and the sum."""
LEAST = 0.01
"""Share of the run from which on copies have a line of their own."""
KERNELS, IDLE, COPIES, OTHER, TOTAL = "kernels", "idle", "copies", "other", "total"


@dataclass(frozen=True)
class Table:
    """Lines of the table, the longest time first, and their sum (None where no time is known)."""

    rows: tuple[SummaryRow, ...]
    total: SummaryRow | None

    def gain_ns(self, *kinds: str) -> float | None:
        """Return what lines of these kinds save together; None where it is known of none."""
        return total_of(row.gain_ns for row in self.rows if row.kind in kinds)


def table(view: ReportView, words: Words) -> Table:
    """Return where the time goes: the longest kernels by plain name and limit, idle time, the rest.

    Times and gains are parts of `view.run_time`; lines add up to the whole.
    """
    time = view.run_time
    kernels = _kernel_rows(view, words)
    if not time.whole_ns:
        return Table(tuple(_named(kernels[:ROWS])), None)
    idle, copies = _idle_rows(view, words), _copy_rows(view, words)
    longest = sorted([*kernels, *copies], key=_time, reverse=True)
    shown = longest[: ROWS - len(idle)]
    rest = [*longest[len(shown) :], *_unlisted(view, words)]
    rows = [*_named(sorted([*shown, *idle], key=_time, reverse=True)), *_other(time, rest, words)]
    gain = total_of(row.gain_ns for row in rows)
    name = words.page[f"total_{time.basis}"]
    return Table(tuple(rows), _row(time, TOTAL, name, time.whole_ns, "", gain_ns=gain))


def plain_name(kernel: KernelRow, words: Words | None = None) -> str:
    """Return what a kernel does in words, with library and type; its own name where unknown."""
    said = words or words_of(ENGLISH)
    kind = said.word("kinds", kernel.category)
    if not kind or kernel.library in ("", "other"):
        return brief(kernel.short_name, 40)
    facts = [fact for fact in (kernel.library, kernel.dtype) if fact]
    if subject(kind) == kind:
        return said.page["named"].format(kind=kind, facts=said.page["comma"].join(facts))
    return said.page["explained"].format(kind=kind, library=facts[0])


def subject(name: str) -> str:
    """Return a name without what stands in brackets behind it."""
    return re.split(r" ?\(|（", name, maxsplit=1)[0]


def total_of(values: Iterable[float | None]) -> float | None:
    """Return the sum of what is known; None where nothing is."""
    given = [value for value in values if value is not None]
    return sum(given) if given else None


def _row(
    time: RunTime,
    kind: str,
    what: str,
    time_ns: float | None,
    limited_by: str,
    *,
    gain_ns: float | None = None,
    reached: float | None = None,
    kernels: tuple[int, ...] = (),
) -> SummaryRow:
    """Return a line; no line saves more than its time."""
    whole = time.whole_ns or None
    if gain_ns is not None and time_ns is not None:
        gain_ns = min(gain_ns, time_ns)
    share = None if time_ns is None or whole is None else time_ns / whole
    gain = None if gain_ns is None or whole is None else gain_ns / whole
    return SummaryRow(kind, what, kernels, time_ns, share, limited_by, reached, gain, gain_ns)


def _time(row: SummaryRow) -> float:
    return row.time_ns or 0.0


def _kernel_rows(view: ReportView, words: Words) -> list[SummaryRow]:
    """Return a line for each plain name and limit, the one of most time first."""
    exchange = _exposed(view)
    groups: dict[tuple[str, str], list[KernelRow]] = defaultdict(list)
    for kernel in view.kernels:
        limit = words.word("limits", kernel.bound_by, words.say("not_measured"))
        limit = words.word("causes", kernel.bound_cause, limit)
        if kernel.number in exchange:
            limit = words.say("alone")
        groups[plain_name(kernel, words), limit].append(kernel)
    rows = [
        _row(
            view.run_time,
            KERNELS,
            name,
            view.run_time.of_kernels(sum(k.total_ns or 0.0 for k in kernels)),
            limit,
            gain_ns=total_of(_gain(view.run_time, k, exchange) for k in kernels),
            reached=_nearness(kernels),
            kernels=tuple(k.number for k in kernels),
        )
        for (name, limit), kernels in groups.items()
    ]
    return sorted(rows, key=_time, reverse=True)


def _gain(time: RunTime, kernel: KernelRow, exchange: dict[int, float]) -> float | None:
    if kernel.number in exchange:
        return exchange[kernel.number]
    return None if kernel.gain_ns is None else time.of_kernels(kernel.gain_ns)


def _exposed(view: ReportView) -> dict[int, float]:
    """Return what each collective kernel would save if something were computed meanwhile, in ns."""
    saved = total_of(known(f.gain_ns) for f in view.findings if f.rule == "collectives_exposed")
    ours = [k for k in view.kernels if k.category == "collective" and k.total_ns]
    whole = sum(k.total_ns or 0.0 for k in ours)
    return {k.number: (saved or 0.0) * (k.total_ns or 0.0) / whole for k in ours if saved}


def _nearness(kernels: list[KernelRow]) -> float | None:
    """Return the share of the limit, weighted by GPU time; None where nothing is near one."""
    near = [k for k in kernels if k.roof_share is not None and k.bound_by != "latency"]
    weights = [k.share if k.share is not None else 1.0 for k in near]
    if not near or not sum(weights):
        return None
    total = sum(w * (k.roof_share or 0.0) for w, k in zip(weights, near, strict=True))
    return total / sum(weights)


def _named(rows: Iterable[SummaryRow]) -> list[SummaryRow]:
    """Keep the numbers of kernels only where two lines have the same name."""
    listed = list(rows)
    names = [row.what for row in listed]
    return [
        SummaryRow(**{**row.__dict__, "kernels": ()}) if names.count(row.what) < 2 else row
        for row in listed
    ]


def _idle_rows(view: ReportView, words: Words) -> list[SummaryRow]:
    """Return the line of idle time, where it is known; what saves it are the findings about it.

    Without a finding it is at most what is not between operations that were issued before. A
    finding without a gain, what happens once, has none here either.
    """
    time = view.run_time
    if time.idle_ns is None:
        return []
    gains = _idle_gains(view.findings)
    gain = total_of(gains)
    if not gains and time.queued_ns is not None:
        gain = max(0.0, time.idle_ns - time.queued_ns)
    why = words.word("waits", time.waits, words.say("not_known"))
    return [_row(time, IDLE, words.say("idle"), time.idle_ns, why, gain_ns=gain)]


def _idle_gains(findings: Sequence[Finding]) -> list[float | None]:
    about = ("idle", "idle_outside")
    return [known(f.gain_ns) for f in findings if f.key in about and f.gain_of == "wall time"]


def _copy_rows(view: ReportView, words: Words) -> list[SummaryRow]:
    time = view.run_time
    if time.copies_ns is None or time.copies_ns < LEAST * (time.whole_ns or 0.0):
        return []
    gain = total_of(known(f.gain_ns) for f in view.findings if f.rule == "copies")
    name = words.word("kinds", "memory")
    return [_row(time, COPIES, name, time.copies_ns, words.say("alone"), gain_ns=gain)]


def _unlisted(view: ReportView, words: Words) -> list[SummaryRow]:
    """Return kernels that the report's table does not show, and copies without a line."""
    time = view.run_time
    shown = sum(k.total_ns or 0.0 for k in view.kernels)
    rest = time.of_kernels(max(0.0, (time.gpu_time_ns or 0.0) - shown))
    copies = None if _copy_rows(view, words) else time.copies_ns
    return [_row(time, OTHER, "", spent, "") for spent in (rest, copies) if spent]


def _other(time: RunTime, rest: list[SummaryRow], words: Words) -> list[SummaryRow]:
    spent = sum(map(_time, rest))
    if not spent:
        return []
    gain = total_of(row.gain_ns for row in rest)
    why = words.say("various")
    return [_row(time, OTHER, words.say("everything_else"), spent, why, gain_ns=gain)]
