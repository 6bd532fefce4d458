"""Turns a run into findings ranked by what they gain for the whole program, and says what is open.

A finding needs evidence; what the evidence does not answer is in reports.findings.open_questions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from nsight_prof.parsers.cells import number
from nsight_prof.parsers.run.run import Run, once
from nsight_prof.reports.analysis.evidence import threshold
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.analysis.run_time import run_time
from nsight_prof.reports.analysis.stages import program_time
from nsight_prof.reports.findings.gain import behind_host, untraced_wall
from nsight_prof.reports.findings.gain_intervals import with_interval
from nsight_prof.reports.findings.kernels.findings import KERNEL, bound_findings, kernel_findings
from nsight_prof.reports.findings.model import CAUSE_OF, HOST_WORKS, OF_VALUES, Finding
from nsight_prof.reports.findings.open_questions import open_questions
from nsight_prof.reports.findings.padding import padding_findings
from nsight_prof.reports.findings.program.fusion import ELEMENTWISE_CHAIN
from nsight_prof.reports.findings.program.idle_rules import HOST_BOUND, IDLE, LAUNCH_BOUND
from nsight_prof.reports.findings.program.launch_rules import BLOCKING_LAUNCHES
from nsight_prof.reports.findings.program.needless import NEEDLESS_WORK
from nsight_prof.reports.findings.program.rules import program_findings
from nsight_prof.reports.findings.values.double import with_beginning
from nsight_prof.reports.findings.values.findings import value_findings
from nsight_prof.reports.page import Text
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.verdicts.choices import marked
from nsight_prof.reports.verdicts.lines import located
from nsight_prof.reports.verdicts.owners import in_words_of_owner

REPAIR = 0.05
"""Part of the time that a repair must save to stand before choices that save more."""
MOST_OF: dict[str | tuple[str, str], float] = {
    **dict.fromkeys(HOST_WORKS, 0.5),
    "casts_and_copies": 0.9,
    "needless_work": 0.7,
    **dict.fromkeys(OF_VALUES, 0.3),
    ("sync_stalls", "one_by_one"): 0.5,
    ("sync_stalls", "host_bound"): 0.1,
    "results_on_host": 0.5,
}
"""Rules that are a cause only where they save that part of what the other finding does: a cast that
is all but all of a chain is what to leave out, not what to fuse; and a work of the host that takes
less than half of the time in which the GPU waits for it leaves more to another, as do waits in a
loop over items, waits that take a tenth of the time in which the host works, and work on results in
a loop that waits for each. Choices (graphs) come after either. Work that values show to be needless
is a cause from a third on: its repair is sure, and that of the symptom does it faster only."""
BUSY_WITH = 0.25
"""Part of the time from which on a kernel of which nobody can say how much faster it gets stands
before what saves less than a repair: at its roof only less work does it."""
OUTWEIGHS = 0.5
"""Part of what a choice about launches saves, from which on a repair of kernels stands before it:
under nsys launches take longer than without."""
OF_CHOICE = 0.25
"""Part of what a choice about kernels saves, from which on a repair stands before it."""
ALIKE = 0.95
"""Part of a gain from which on another one is about the same: times of two runs differ as much."""
NEEDLESS = {NEEDLESS_WORK.key, "sorted_indices", *OF_VALUES}
"""Rules and keys of findings about work that need not be done at all."""
OVERVIEW = ("time", "bounds")
"""Findings about the whole program that come first: they have no gain of their own."""


@once
def findings(run: Run) -> list[Finding]:
    """Return what takes the time, and then everything else by its gain in time, largest first.

    A cause stands before its symptom in the same stage, which its repair may end, and repairs of
    some gain before choices of the owner, which come at a price. Kernels that take less than a
    hundredth of the time of CUDA graphs that were traced as wholes are left out.
    """
    found = [*program_findings(run), *value_findings(run)]
    found += [*bound_findings(run), *kernel_findings(run, found), *padding_findings(run)]
    if not any(f.rule == BLOCKING_LAUNCHES.key for f in found):  # the host waits in each of these
        found = [behind_host(run, finding) for finding in found]
    time_ns = number(program_time(run)[0].value or kernel_time(run))
    found = [located(run, marked(run, in_words_of_owner(run, finding))) for finding in found]
    found = [with_beginning(run, finding) for finding in found]
    found = [with_interval(finding, kernel_time(run), time_ns) for finding in found]
    ranks = count(1)
    graphs_ns = threshold("small_gain") * (run_time(run).graphs_ns or 0.0)
    found = [f for f in found if not f.share * kernel_time(run) < graphs_ns or f.key in OVERVIEW]
    longest = set(run.counters.nlargest(1, "duration_ns")["kernel_id"])
    minimum = REPAIR * time_ns
    added = number((program_time(run)[0] - untraced_wall(run)).value or 0.0)

    def order(finding: Finding) -> tuple[int, bool, bool, float, int]:
        return _order(finding, found, minimum, kernel_time(run), longest, added)

    ordered = producers_first(run, sorted(found, key=order))
    return [f if f.key in OVERVIEW else replace(f, rank=next(ranks)) for f in ordered]


def producers_first(run: Run, ordered: list[Finding]) -> list[Finding]:
    """Return findings with those about kernels whose gains nobody can tell apart by which kernels
    run first: what comes later works on what they made, and may go with it.
    """
    for at, (first, second) in enumerate(zip(ordered, ordered[1:], strict=False)):
        if not (first.kernel_ids and second.kernel_ids) or first.choice or second.choice:
            continue
        if _gain(second) < ALIKE * _gain(first) or not 0 < _gain(second) <= _gain(first):
            continue
        starts = run.launches["start_ns"].astype(float).groupby(run.launches["kernel_id"]).min()
        began = [starts.reindex(list(f.kernel_ids)).min() for f in (first, second)]
        if began[1] < began[0] and not _meet(first, second):
            ordered[at], ordered[at + 1] = second, first
    return ordered


def _order(
    finding: Finding,
    found: Sequence[Finding],
    minimum: float,
    kernels_ns: float,
    longest: set[str],
    added_ns: float,
) -> tuple[int, bool, bool, float, int]:
    """Return a key by which the largest gain is first, and a cause right before its symptom.

    What gains nothing, or nobody knows how much, stands behind all else, what could gain most
    first; but before it, without a trace, where it is about the `longest` launch.

    Choices that make kernels faster stand behind all else where a repair saves `minimum` ns and not
    next to nothing beside them, unless it mends kernels that the choice replaces.
    """
    # What comes once gains nothing: it explains no symptom that comes again.
    causes = CAUSE_OF.get(finding.rule, ()) if _gain(finding) > 0 else ()
    minimum_part = MOST_OF.get(finding.rule, 0.0)

    def enough(symptom: Finding) -> float:
        return MOST_OF.get((finding.rule, symptom.rule), minimum_part) * _gain(symptom)

    waits = finding.rule == LAUNCH_BOUND.key and not finding.choice  # so that it comes late
    symptoms = [
        f
        for f in found
        if (f.rule in causes or (waits and f.choice and f.rule == HOST_BOUND.key))
        and _meet(f, finding)
        and ((f.choice and finding.rule not in OF_VALUES) or _gain(finding) >= enough(f))
    ]
    gain = max(map(_gain, (finding, *symptoms)))
    chosen = finding.choice and finding.gain_of == "GPU time"
    replaced = set(finding.kernel_ids)
    required = max(minimum, OF_CHOICE * gain)
    late = chosen and any(
        not f.choice and _gain(f) >= required and f.key not in OVERVIEW
        and not replaced & set(f.kernel_ids)
        for f in found
    )  # fmt: skip
    bound = 0.0 if math.isnan(finding.most_ns) else finding.most_ns
    after_repair = 0
    if finding.choice and finding.gain_of == "wall time":
        kernels = (f for f in found if not f.choice and f.kernel_ids)
        largest = max(map(_unhidden, kernels), default=0.0)
        if max(minimum, OUTWEIGHS * (gain - added_ns)) <= largest < gain:
            gain, after_repair = largest, 2
    elif _unhidden(finding) > gain:
        launching = [
            _gain(f) for f in found if f.gain_of == "wall time" and (f.choice or f.rule == IDLE.key)
        ]
        if OUTWEIGHS * (max(launching, default=math.inf) - added_ns) <= _unhidden(finding):
            gain = _unhidden(finding)
    if not gain and finding.key == KERNEL:
        gain = minimum if finding.share * kernels_ns * REPAIR >= BUSY_WITH * minimum else 0.0
    symptom = after_repair or -len(symptoms)
    position = OVERVIEW.index(finding.key) if finding.key in OVERVIEW else len(OVERVIEW)
    asked = not (_gain(finding) or kernels_ns > 0 or longest.isdisjoint(finding.kernel_ids))
    return position - asked, not gain, late, -(gain or bound), symptom


def _unhidden(finding: Finding) -> float:
    """Return the gain, of work that need not be done, or by fewer kernels, that of the GPU: to
    launch it takes the host, too, and under nsys more than without.
    """
    fewer = {finding.rule, finding.key} & {*NEEDLESS, ELEMENTWISE_CHAIN.key}
    of_gpu = finding.most_ns if fewer else math.nan
    return max(_gain(finding), 0.0 if math.isnan(of_gpu) else of_gpu)


def _meet(first: Finding, second: Finding) -> bool:
    """Tell whether two findings are about one time: waits of a stage, or the same kernels."""
    if first.kernel_ids and second.kernel_ids:
        return bool(set(first.kernel_ids) & set(second.kernel_ids))
    return first.key == second.key and first.stage == second.stage


def _gain(finding: Finding) -> float:
    if not math.isnan(finding.gain_ns):
        return finding.gain_ns
    if finding.counted_ns > 0:
        return finding.counted_ns
    return 0.0 if math.isnan(finding.gain_kernel) else finding.gain_kernel / 1e9


def headline(run: Run, first: Sequence[Text] = ()) -> list[str]:
    """Return at most three short sentences: what a reader should know first; `first` go before."""
    write = Writer()
    found = [write.text(text) for text in first]
    found += [f"{write.text(finding.headline)}." for finding in findings(run)]
    unanswered = [write.text(question.text) for question in open_questions(run)]
    # Who asked for counters and got none must learn that before the third finding.
    limit = 2 if run.counters.empty and unanswered else 3
    return [*found[:limit], *unanswered][:3]
