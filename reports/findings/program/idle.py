"""Idle time of the GPU by what the host did meanwhile: launches, other work, synchronisations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import pandas as pd

from nsight_prof.parsers.cells import number
from nsight_prof.parsers.names.source_text import OVER_RESULTS
from nsight_prof.parsers.names.stacks import WAITING, with_callers
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.evidence import threshold
from nsight_prof.reports.analysis.gpu_times import HOST, LAUNCHES, QUEUED, SYNCHRONISATION
from nsight_prof.reports.analysis.idle import Gaps, Stage, idle_stages
from nsight_prof.reports.analysis.lines import host_rows, item_lines, waiting_rows
from nsight_prof.reports.analysis.repeats import QUEUED_UP_TO_NS, Repeats, repeats
from nsight_prof.reports.analysis.stages import program_time
from nsight_prof.reports.analysis.timeline import idle_at_start, timeline
from nsight_prof.reports.findings.gain import BLOCKING, CALLS, of_host, of_wall_time, untraced_wall
from nsight_prof.reports.findings.launch_cost import (
    LAUNCH_NS,
    LaunchCost,
    added_to_call,
    launch_cost,
)
from nsight_prof.reports.findings.model import Finding, concatenated
from nsight_prof.reports.findings.program.idle_rules import (
    ALLOCATION_STALLS,
    FIRST_USE,
    HOST_BOUND,
    IDLE,
    IDLE_OUTSIDE,
    LAUNCH_BOUND,
    LOADED,
    POOL_RELEASE,
    REMADE_CODE,
    RESULTS_ON_HOST,
    SYNC_STALLS,
)
from nsight_prof.reports.findings.program.rule import (
    DURATIONS,
    STARTS,
    Rule,
    column,
    measured,
    wall_evidence,
)
from nsight_prof.reports.page import Evidence, Number, Text, Value, Verbatim

ALLOCATING = re.compile(
    r"cuda(?:Malloc|Free|Host(?:Alloc|Register|Unregister))(?!Async|FromPoolAsync)"
    r"|cuMem(?:Alloc|Free|Host(?:Alloc|Register|Unregister))(?!Async)"
    r"|cuda(?:Stream|Event)(?:Create|Destroy)|cu(?:Stream|Event)(?:Create|Destroy)"
)
"""CUDA calls that allocate, pin or free memory, or make streams and events, which ask the driver
for as much."""
FROM_POOL = r"cu(?:da)?(?:Malloc|MemAlloc)(?:FromPool)?Async"
"""CUDA calls that allocate from a pool of the device."""
LOADING = re.compile(
    r"cu(?:da)?(?:Module(?:Load|Get)|Library(?:Load|Get)|Link|Graph\w*Instantiate|KernelGetFunction)"
)
"""CUDA calls that load kernels, or make a graph that can be launched."""
ONCE = re.compile(f"{ALLOCATING.pattern}|{LOADING.pattern}")
UNLOADED = r"cu(?:da)?(?:Module|Library)Unload"
"""Calls that give up kernels which were loaded: plans of transforms have some of their own."""
MODULES = re.compile(r"cu(?:da)?(?:Module|Library)(?:Load|Get|Unload)")
ONCE_FOR_ALL = Text(
    "That comes once: it costs a long run nothing, and only a run as short as this one much."
)
ONCE_FOR_SIZES = Text(
    "A library builds a kernel for each new size, as cuDNN does for attention: sizes that come "
    "again find theirs. It costs a long run much only where its sizes are ever new: then round "
    "them up to a few, or take a back end that builds none."
)
"""When what is loaded comes again."""
SYNCHRONISING = r"cu(?:da)?(?:Stream|Device|Ctx)Synchronize"
TO_GPU, TO_HOST = "host to device", "device to host"
SELECTION = "cub::DeviceSelect"
"""NVTX range of the kernels that choose elements by a mask (CUB 2.7 marks its own)."""
OFTEN = 0.5
"""Part of the times that a line of a loop runs from which on another is in that loop, too."""
COMPREHENSION = re.compile(r"\[.*\bfor\b.*\bin\b.*\]")
"""Lines that make a list of all items."""
ITEM, ITEMS_IDLE, ITEM_NS = 20, 0.75, 3000.0
"""Launches per wait up to which a loop goes over items, the least part of the time in which the GPU
is idle then, and the mean kernel up to which they do next to nothing."""
MASKED_WRITE = (
    r"^\s*[\w.]+\[[^\]]*(?:[<>]|[!=]=|~|mask|\b(?:is|where|too|to)_)[^\]]*\] *[-+*/]?=(?!=)"
)
"""Lines that write elements of a tensor through a mask: torch.where needs no wait for that."""
EACH = 2
"""Launches per wait up to which the host waits after all but each of them."""
WAITS_IDLE = 0.5
"""Idle share of a stage from which on waits at a line of items are a loop over items."""
IN_CALLS = 0.5
"""Part of the gaps' time in launch calls above which nsys may have made it."""
RANGE = 0.5
"""Part of the idle time that lies before the launches of one NVTX range, so that it is named."""
IDLE_CELLS = column("idle_gaps", "idle_ns")
LAUNCHED = (*STARTS, *DURATIONS)
TORCH = "PyTorch"
"""Library of kernels whose programs copy results by calls that have names of their own."""
OPERATORS = r"[\\/]torch[\\/]"
"""Files of functions that launch kernels, unless they do a work that table `host_lines` tells."""
NAMED = 2
"""CUDA calls and NVTX ranges that a sentence names."""
DURING = {
    LAUNCHES: Text("waiting for launches"),
    HOST: Text("while the host does something else"),
    SYNCHRONISATION: Text("after the host waited for the GPU"),
    QUEUED: Text("between operations that were queued already"),
}
TRACING = Text("Without nsys, which slows launches itself, the gaps are smaller.")
BOUNDED = Text("idle time, at most that of the capture without what lies between queued operations")
CLOSED = Text(
    "idle time - gaps x (left of each gap + what nsys adds to a launch), at most the idle time of "
    "the capture without what lies between queued operations"
)
OF_PACE = Text("(1 - time in which the GPU works / wall time without nsys) x wall time")
OF_WAITS = Text(
    "time in these waits, less what nsys adds to their calls, x wall time / that without nsys; at "
    "most the idle time - what is left of its gaps"
)
TIME_IN_WAITS = Text("time of the host in waits for the GPU")
UNTRACED = Text("wall time without nsys, about")
LESS = Text(
    "wall time - calls of CUDA (at most {calls} for each launch) x what nsys adds to a launch "
    "(beyond {usual}, where none was measured without it); at least the time that the GPU works",
    usual=Number(LAUNCH_NS, "ns"),
    calls=round(CALLS),
)
BY_LINES = Text("time at lines that wait, else waits x the mean of each call")
OF_ITEMS = Text(
    "idle time of late launches, waits and the host - what is left of its gaps; at least the time "
    "at the lines that wait"
)
OF_QUEUED = Text("steps that wait x (their median - that of queued steps), at most the idle time")


def idle_findings(run: Run) -> list[Finding]:
    """Return a finding for each stage and cause of idle time that passes its thresholds."""
    wall, idle = program_time(run)
    found: list[Finding] = []
    for stage in idle_stages(run):
        explained = [
            finding
            for name, gaps in _gaps(run, stage).items()
            if (finding := _of_cause(run, stage, gaps, OF_CAUSE[name])) is not None
        ]
        found += explained or _unexplained(run, stage)
        found += _repeated_waits(run, stage, explained)
        wall, idle = wall - stage.wall, idle - stage.idle
    return [*found, *_outside(run, wall, idle)]


def _gaps(run: Run, stage: Stage) -> dict[str, Gaps]:
    """Return the gaps of each cause. Long ones that nothing else explains are late launches where
    they are few beside short ones, or the host is in operators of torch when the GPU idles: a
    framework is slower at some launches, and a graph closes all.
    """
    gaps, rows = stage.of_cause(HOST), host_rows(run, stage.name, idle=True)
    short = number(gaps.mean.value) < HOST_BOUND.limit("framework")
    less = number(stage.of_cause(LAUNCHES).idle.value) >= number(gaps.idle.value)
    launching = rows["inner"].fillna("").str.contains(OPERATORS) & rows["work"].eq("")
    launching &= rows["activity"].isin(("program", "launching"))
    if run.thread_lines.empty:  # else operators may wait for the lock of Python
        less |= 2 * rows.loc[launching, "idle_samples"].sum() > max(rows["idle_samples"].sum(), 1)
    found = {name: stage.of_cause(name) for name in OF_CAUSE}
    if short and less and _diagnosis(run, gaps, OF_CAUSE[HOST]).rule is HOST_BOUND:
        found[LAUNCHES] = stage.of_cause(LAUNCHES, HOST)
        found[HOST] = Gaps(stage.name, HOST, gaps.rows[:0])
    return found


def _of_cause(run: Run, stage: Stage, gaps: Gaps, cause: Cause) -> Finding | None:
    rule = cause.rule
    program_wall = program_time(run)[0]
    lost, often = number(gaps.idle.value), number(gaps.count.value)
    once = _once(run, stage, rule, lost)
    # A program that starts up once may idle long: a whole capture is held to the higher share.
    minimum = (IDLE if stage.is_capture else rule).limit("share")
    if not often > 0 or lost < minimum * number(stage.wall.value):
        return None
    if lost - once < minimum * number(stage.wall.value):
        return _startup(stage, once)
    if lost < threshold("small_gain") * number(program_wall.value):
        return None
    if rule is LAUNCH_BOUND and often < rule.limit("gaps"):
        return None
    remade = rule is HOST_BOUND and _remakes(run, gaps)
    allocating, longest = _time_in(gaps, ALLOCATING), number(gaps.longest.value)
    half = FIRST_USE.limit("loading")
    if rule is HOST_BOUND and longest >= half * allocating >= half**2 * lost:  # no loop of calls
        return _first_use(stage, gaps, longest, ONCE_FOR_ALL)
    loads = rule is not SYNC_STALLS and not remade
    if loads and _loading_ns(gaps, rule) >= FIRST_USE.limit("loading") * lost:
        return _first_use(stage, gaps, _loading_ns(gaps, rule), ONCE_FOR_ALL)
    if loads and rule is HOST_BOUND and _builds(run, stage, often):
        return _first_use(stage, gaps, lost, ONCE_FOR_SIZES)
    return _explained(run, stage, gaps, cause, once)


class Price(NamedTuple):
    """What the end of the gaps of a cause saves by `formula`, in ns of wall time, and in words.

    `waits` are the calls in which a loop waits for the GPU, `waiting` its time there; `upper` is
    the most that can be saved, and by what, where steps that were queued show the rest.
    """

    saved: float
    formula: Text
    sentence: Text
    waits: list[str]
    waiting: Number
    steps: Repeats | None = None
    upper: tuple[float, Text] | None = None


def _price(run: Run, stage: Stage, gaps: Gaps, rule: Rule, once: float) -> Price:
    lost, often = number(gaps.idle.value), number(gaps.count.value)
    wall, untraced = program_time(run)[0], untraced_wall(run)
    saved = all_gaps = of_host(run, lost - once, 0.0 if rule is HOST_BOUND else often)
    if rule is HOST_BOUND and stage.is_capture:  # the GPU is idle for no longer without nsys
        saved = max(0.0, min(saved, number((stage.idle - (wall - untraced)).value)))
    waits = [] if rule is HOST_BOUND else _waits(stage)
    waiting = _blocked(run, stage, waits)
    of_items = bool(waits) and _waits_for_items(run, stage, waiting)
    if not of_items and number(waiting.value) < LAUNCH_BOUND.limit("waiting") * lost:
        waits = []  # the host waits, and would be as late without it

    def values(saved: float) -> dict[str, Value]:
        return {
            "gain": Number(saved / number(wall.value), "fraction"),
            "saved": Number(saved, "ns"),
        }

    of_items |= bool(waits) and _goes_over_items(run, stage, waits, waiting)
    if waits:  # a host that waits comes late with what it launches next, too
        late = stage.of_cause(LAUNCHES, SYNCHRONISATION, *((HOST,) if of_items else ()))
        saved = all_gaps = of_host(run, number(late.idle.value), number(late.count.value))
    if of_items:  # what ends is the loop, with its lines, not its waits
        saved = max(saved, min(number(waiting.value), number(wall.value)))
        saved *= _in_loop(run, stage)
        sentence = Text(
            "The loop goes over items one by one, with {launches} launches for each wait. As "
            "operations on all items at once, at most {gain} of the wall time under nsys is saved "
            "({saved}).",
            launches=_launches_per_wait(stage, waits),
            **values(saved),
        )
        return Price(saved, OF_ITEMS, sentence, waits, waiting)
    if waits:
        saved = min(saved, _without_nsys(run, stage, number(waiting.value)))
        sentence = Text(
            "The host stands in these waits for {waiting}. Without them at most {gain} of the time "
            "is saved: of the {wall} under nsys, calls of CUDA would take about {added} less "
            "without it. Of the rest of its loop a CUDA graph of the step saves up to {rest} then.",
            rest=Number(all_gaps - saved, "ns"),
            waiting=waiting,
            wall=wall,
            added=wall - untraced,
            gain=values(saved)["gain"],
        )
        return Price(saved, OF_WAITS, sentence, waits, waiting)
    formula = BOUNDED if rule is HOST_BOUND else CLOSED
    standing = _standing(run, gaps) if rule is HOST_BOUND else 0.0
    if standing >= threshold("small_share") * lost:
        upper, saved = (saved, formula), of_host(run, max(0.0, lost - once - standing))
        sentence = Text(
            "For {standing} of it the host stands in calls that wait for the GPU, which has "
            "nothing to do: no work of the host, so that only the rest is counted, {gain} of the "
            "wall time under nsys ({saved}).",
            standing=Number(standing, "ns", IDLE_CELLS),
            **values(saved),
        )
        return Price(saved, formula, sentence, waits, waiting, upper=upper)
    frame = timeline(run) if rule is LAUNCH_BOUND else None
    steps = None if frame is None else repeats(frame, "" if stage.is_capture else stage.name)
    if steps is not None:  # seen to be reached: steps that did not wait for the host
        queued = of_host(run, steps.others * number((steps.period - steps.queued_period).value))
        (saved, formula), upper = sorted(
            ((saved, formula), (queued, OF_QUEUED)), key=lambda found: found[0]
        )
        sentence = Text(
            "As the queued steps show, closing these gaps saves {gain} of the wall time under nsys "
            "({saved}).",
            **values(saved),
        )
        return Price(saved, formula, sentence, waits, waiting, steps, upper)
    if rule is LAUNCH_BOUND and stage.is_capture:  # of a stage nsys may lengthen another part
        beyond = number((untraced - (wall - program_time(run)[1])).share_of(untraced).value)
        saved, formula = min(
            ((saved, formula), (beyond * number(wall.value), OF_PACE)), key=lambda found: found[0]
        )
    sentence = Text(
        "Closing these gaps saves at most {gain} of the wall time under nsys ({saved}).",
        **values(saved),
    )
    return Price(saved, formula, sentence, waits, waiting)


def _explained(run: Run, stage: Stage, gaps: Gaps, cause: Cause, once: float) -> Finding:
    rule, cost, program_wall = cause.rule, launch_cost(run), program_time(run)[0]
    price = _price(run, stage, gaps, rule, once)
    saved, bound = Number(price.saved, "ns"), None
    if price.upper is not None:
        bound = Number(price.upper[0], "ns")
    diagnosis, of_launches = _diagnosis(run, gaps, cause), rule is LAUNCH_BOUND
    minimum = (IDLE if stage.is_capture else rule).limit("share")
    return diagnosis.rule.finding(
        key="idle",
        stage=stage.name,
        title=diagnosis.title(part=gaps.idle.share_of(stage.wall), where=stage.where),
        verdict=Text(
            "{problem}{queued} {saves}{remark}",
            problem=concatenated(
                (
                    diagnosis.problem(run, stage, gaps),
                    *(_waiting(stage, price.waits) if of_launches else ()),
                )
            ),
            queued=Text(
                " {once} of this come once, before all kernels that repeat have run: start-up, "
                "which a long run does not see, and which is not in the gain.",
                once=Number(once, "ns", LAUNCHED),
            )
            if once
            else _queued_clause(price.steps),
            saves=price.sentence,
            remark=_few(gaps) if rule is HOST_BOUND else _remark(run),
        ),
        action=_action(diagnosis.rule, price.waits),
        choice=of_launches and not price.waits,
        evidence=(
            *_gap_evidence(stage, gaps, rule, minimum),
            *(_call_evidence(gaps) if of_launches else ()),
            *_queued_evidence(price.steps),
            measured(TIME_IN_WAITS, price.waiting, BY_LINES) if price.waits else None,
            *_gain_evidence(cost, saved, price.formula),
            measured(Text("could save at most"), bound, price.upper[1])
            if bound and price.upper
            else None,
            measured(UNTRACED, untraced_wall(run), LESS) if price.waits or of_launches else None,
            wall_evidence(program_wall),
            measured(Text("idle time of all causes"), stage.idle),
            *_other_causes(stage, gaps.cause),
        ),
        confidence=_confidence(stage, gaps, rule, cost),
        **of_wall_time(saved, program_wall, bound),
    )


def _queued_clause(steps: Repeats | None) -> Text | str:
    """Say how long steps take that were queued before the GPU came to them; empty without such."""
    if steps is None:
        return ""
    return Text(
        " In {queued} of {n} steps the host had launched all work before the GPU needed it: these "
        "take {period} each. In the {others} others the GPU waits for launches, throughout or in "
        "part: {usual} (median), {ratio} as long. A CUDA graph makes all as fast as queued ones.",
        queued=steps.queued,
        n=steps.queued + steps.others,
        period=steps.queued_period,
        others=steps.others,
        usual=steps.period,
        ratio=steps.ratio,
    )


def _queued_evidence(steps: Repeats | None) -> list[Evidence]:
    """Return both kinds of steps, and how many times as long the second takes."""
    if steps is None:
        return []
    few = Text("{limit} of idle time per launch at most", limit=Number(QUEUED_UP_TO_NS, "ns"))
    source = Text("prof: 0.6 to 1.3 us between two queued kernels in recorded runs of an H200")
    usual = Text("median step for which the GPU waits, {n} of them", n=steps.others)
    return [
        Evidence(
            Text("median step that was queued, {n} of them", n=steps.queued),
            steps.queued_period,
            few,
            source,
        ),
        measured(usual, steps.period),
        measured(Text("waiting over queued step"), steps.ratio),
    ]


def _repeated_waits(run: Run, stage: Stage, explained: list[Finding]) -> list[Finding]:
    """Return a finding about waits in a loop that waits for launches, where none tells of them.

    They cost little there, as the host is late anyway; but a host that waits in each step cannot
    run ahead, whatever makes its launches faster, and no CUDA graph holds such a step.
    """
    rules = {f.rule for f in explained if f.rule != LAUNCH_BOUND.key or not f.choice}
    if LAUNCH_BOUND.key not in {f.rule for f in explained} - rules or SYNC_STALLS.key in rules:
        return []
    calls = _waiting_calls(run, stage)
    waits = _waits(stage) or list(calls["name"][:1])
    waiting, wall = _blocked(run, stage, waits), program_time(run)[0]
    if not waiting.value:  # the GPU had run dry before each of them
        waiting = Number(calls["total_ns"].sum(), "ns", column("api_calls", "total_ns"))
    saved_ns = _without_nsys(run, stage, number(waiting.value))
    saved_ns = of_host(run, min(saved_ns, number(stage.idle.value)))
    saved = Number(saved_ns, "ns", waiting.refs)
    if not waits or number(saved.share_of(wall).value) < threshold("small_gain"):
        return []
    often = Number(calls["calls"].max(), "count", column("api_calls", "calls"))
    launching = stage.of_cause(LAUNCHES).idle
    return [
        SYNC_STALLS.finding(
            key="idle",
            stage=stage.name,
            title=Text("The host waits for the GPU {n} times {where}", n=often, where=stage.where),
            verdict=Text(
                "The host waits for the GPU {n} times ({call}), once in {launches} launches: it "
                "cannot run ahead, and a CUDA graph cannot hold a step that waits for a result "
                "within it. The {idle} in which the GPU waits for launches follow from that in "
                "part. It stands in these waits for {waiting}: without them at least {gain} of the "
                "time without nsys is saved.",
                n=often,
                call=Verbatim(waits[0]),
                launches=Number(number(stage.launches.value) / number(often.value), "count"),
                idle=launching,
                gain=saved.share_of(wall),
                waiting=waiting,
            ),
            evidence=(
                measured(Text("waits for the GPU"), often),
                measured(TIME_IN_WAITS, waiting, BY_LINES),
                measured(Text("idle waiting for launches"), launching),
                measured(Text("could save"), saved, OF_WAITS),
                wall_evidence(wall),
                measured(UNTRACED, untraced_wall(run), LESS),
            ),
            confidence="medium",
            **of_wall_time(saved, wall),
        )
    ]


def _waiting_calls(run: Run, stage: Stage) -> pd.DataFrame:
    """Return rows of table `api_calls` of synchronisations in the loop of a whole capture.

    Copies of pageable memory synchronise, too: as many are taken to be theirs.
    """
    calls = run.api_calls[run.api_calls["name"].fillna("").str.fullmatch(SYNCHRONISING)]
    operations = run.memory_operations
    to_gpu = operations.loc[operations["kind"] == TO_GPU, "calls"].sum()
    often = calls["calls"] - to_gpu
    launches = number(stage.launches.value) / stage.gpus
    repeated = (often >= LAUNCH_BOUND.limit("waits")) & stage.is_capture
    rows = calls[repeated & (launches <= LAUNCH_BOUND.limit("launches") * often)]
    return rows.sort_values("calls", ascending=False)


def _waits(stage: Stage) -> list[str]:
    """Return the calls in which the host waits for the GPU in a loop, the most frequent first."""
    gaps = stage.gaps[stage.gaps["waited"].fillna("").str.fullmatch(BLOCKING)]
    if gaps.empty:
        return []
    # A gap across the end of a range counts in both.
    often = gaps.groupby("stage")["gaps"].sum().max() / stage.gpus
    launches = number(stage.launches.value) / stage.gpus
    if often < LAUNCH_BOUND.limit("waits") or launches > LAUNCH_BOUND.limit("launches") * often:
        return []
    sums = gaps.groupby("waited")["gaps"].sum().sort_values(ascending=False)
    return [str(call) for call in sums.index]


def _once(run: Run, stage: Stage, rule: Rule, lost: float) -> float:
    """Return the idle time of a whole capture that comes once, at its start."""
    once = idle_at_start(run) if rule is HOST_BOUND and stage.is_capture else 0.0
    return min(once, lost) if once >= HOST_BOUND.limit("share") * lost else 0.0


def _startup(stage: Stage, once: float) -> Finding:
    """Return a finding without a gain about time that comes once."""
    lost = Number(once, "ns", LAUNCHED)
    return FIRST_USE.finding(
        key="idle_outside",
        stage=stage.name,
        title=Text(
            "The GPU waits at start-up for {part} of the time {where}",
            part=lost.share_of(stage.wall),
            where=stage.where,
        ),
        verdict=Text(
            "The GPU is idle for {lost} of {wall} {where} before all kernels that repeat have run "
            "once: start-up. That comes once: it costs a long run nothing, and only a run as short "
            "as this one much.",
            **_idle_in(stage, lost),
        ),
        evidence=(measured(Text("idle time that comes once"), lost),),
        gain_of="wall time",
        confidence="medium",
    )


def _blocked(run: Run, stage: Stage, waits: list[str]) -> Number:
    """Return how long the host stands in the waits after which the GPU ran dry.

    Without them it does the rest of its loop, no faster: that is what can be saved at most, however
    long the GPU is idle. With samples of Python it is the time at the lines that wait, which goes
    with them (a boolean mask also launches what counts its elements); else that of the calls: the
    copy of a value, and the synchronisation.
    """
    rows = waiting_rows(run, stage.name)
    if len(rows):
        return Number(rows["time_ns"].sum(), "ns", column("host_lines", "time_ns"))
    often = stage.gaps.loc[stage.gaps["waited"].isin(waits), "gaps"].sum() / stage.gpus
    calls = run.api_calls[run.api_calls["calls"] >= LAUNCH_BOUND.limit("waits")]
    blocking = calls[calls["name"].fillna("").str.fullmatch(BLOCKING)]
    each = (blocking["total_ns"] / blocking["calls"]).sum()
    number_of_waits = blocking["calls"].max() if len(blocking) else 0
    return Number(
        min(often, number_of_waits) * number(each),
        "ns",
        (*column("api_calls", "total_ns"), *column("idle_gaps", "gaps")),
    )


def _without_nsys(run: Run, stage: Stage, waiting_ns: float) -> float:
    """Return the part of the wall time that waits take of the program without nsys, as ns.

    nsys lengthens the calls in which the host waits, too, but where the GPU works meanwhile.
    """
    calls = run.api_calls[run.api_calls["name"].fillna("").str.fullmatch(BLOCKING)]
    idle = waiting_rows(run, stage.name)["idle_ns"].sum()
    added = min(float(idle), calls["calls"].sum() / stage.gpus * added_to_call(run))
    wall = program_time(run)[0]
    return (waiting_ns - added) * number(wall.value) / number(untraced_wall(run).value)


def _goes_over_items(run: Run, stage: Stage, waits: list[str], waiting: Number) -> bool:
    """Tell whether a loop has a wait for every few launches of tiny kernels, the GPU next to
    nothing to do, and the host more to do at its launches than in its waits: then it goes over
    items one by one.
    """
    rows = waiting_rows(run, stage.name).nlargest(1, "samples")
    if rows["source"].fillna("").str.contains(MASKED_WRITE).any():
        return False
    return (
        number(stage.kernel_mean.value) < ITEM_NS
        and number(_launches_per_wait(stage, waits).value) <= ITEM
        and number(stage.idle_share.value) >= ITEMS_IDLE
        and _launches_longer(run, stage, waiting)
    )


def _waits_for_items(run: Run, stage: Stage, waiting: Number) -> bool:
    """Tell whether the line at which the host waits launches for one item after another, or goes
    over what it reads there, and the host has more to do at its launches than in its waits.
    """
    rows = waiting_rows(run, stage.name)
    launches = rows["activity"].eq("launching").any()
    over = rows.nlargest(1, "samples")["source"].fillna("").str.contains(OVER_RESULTS).any()
    return (
        number(stage.idle_share.value) >= WAITS_IDLE
        and bool(over or (launches and item_lines(run, rows, "samples")))
        and _launches_longer(run, stage, waiting)
    )


def _launches_longer(run: Run, stage: Stage, waiting: Number) -> bool:
    """Tell whether the GPU waits longer for launches than the host for the GPU."""
    rows = waiting_rows(run, stage.name)
    standing = rows.loc[rows["activity"].isin(WAITING), "time_ns"].sum()
    late = number(stage.of_cause(LAUNCHES).idle.value)
    return late >= (standing if len(rows) else number(waiting.value))


def _in_loop(run: Run, stage: Stage) -> float:
    """Return the part of the idle time in which the host is at lines that run about as often as the
    one at which it waits most, or within the list that goes over what waits; 1 where nobody knows.
    """
    runs = run.timed_lines.groupby(["file", "line"])["hits"].sum()
    waits, rows = waiting_rows(run, stage.name), host_rows(run, stage.name, idle=True)
    if waits.empty or runs.empty:
        return 1.0
    first = waits.nlargest(1, "samples").iloc[0]
    total = max(1, rows["idle_samples"].sum())
    for line in item_lines(run, waits, "samples")[:1]:
        if COMPREHENSION.search(line.source):  # runs once for all items, which are all within it
            around = with_callers(rows)
            at_line = (around["file"] == line.file) & (around["line"] == line.line)
            return float(around.loc[at_line, "idle_samples"].sum() / total)
    often = OFTEN * runs.get((first["file"], first["line"]), 0)
    hits = [runs.get(at, 0) for at in zip(rows["file"], rows["line"], strict=True)]
    inside = rows.loc[[often <= times for times in hits], "idle_samples"].sum()
    return float(inside / total)


def _launches_per_wait(stage: Stage, waits: list[str]) -> Number:
    rows = stage.gaps[stage.gaps["waited"].isin(waits)]
    often = Number(rows["gaps"].sum(), "count", column("idle_gaps", "gaps"))
    return stage.launches.per(often, "count")


def _waiting(stage: Stage, waits: list[str]) -> Iterator[Text]:
    """Say that the host waits for results, which comes first, and where it is for a mask."""
    if not waits:
        return
    yield Text(
        " Again and again the GPU runs dry after the host has waited for it ({call}): such a host "
        "cannot run ahead, and a CUDA graph cannot hold a step that waits for a result within it.",
        call=Verbatim(waits[0]),
    )
    if stage.gaps["nvtx_range"].fillna("").str.contains(SELECTION).any():
        yield Text(
            " Some of these waits are for a boolean mask or nonzero() (cub::DeviceSelect), of "
            "whose result the host must know the size."
        )


def _few(gaps: Gaps) -> Text | str:
    """Say of few gaps that they may not come again."""
    few = round(number(gaps.count.value))
    if few >= LAUNCH_BOUND.limit("gaps"):
        return ""
    return Text(
        " It is {n} gap: whether it comes again in a longer run, this one does not tell.",
        " They are {n} gaps: whether they come again in a longer run, this one does not tell.",
        n=few,
    )


def _action(rule: Rule, waits: list[str]) -> Text | None:
    """Return the action of a rule: that against launches, after that against waits, where so."""
    if rule is not LAUNCH_BOUND or not waits or rule.action is None:
        return rule.action
    return Text(
        "First take synchronisations out of the steps (.item(), .cpu(), boolean masks, print of a "
        "tensor): keep results on the GPU, multiply by the mask or use torch.where. {then}",
        then=rule.action,
    )


def _diagnosis(run: Run, gaps: Gaps, cause: Cause) -> Cause:
    """Return what explains long gaps best: calls that allocate, results that the host works on."""
    if cause.rule is not HOST_BOUND:
        return cause
    allocating = ALLOCATION_STALLS.limit("allocating") * number(gaps.idle.value)
    if _time_in(gaps, ALLOCATING) >= allocating:
        return ALLOCATIONS
    if _gives_back(run, gaps):
        return POOL
    if _remakes(run, gaps):
        return REMADE
    operations = run.memory_operations
    copied = operations.loc[operations["kind"] == TO_HOST, "calls"].sum()
    after_waits, waits = sum(v for _, v in gaps.by("waited")), gaps.by("waited", "gaps")
    enough = after_waits >= RESULTS_ON_HOST.limit("after_waits") * number(gaps.idle.value)
    number_of_waits = sum(n for _, n in waits)
    often = number_of_waits >= min(LAUNCH_BOUND.limit("waits"), number(gaps.count.value) / 2)
    often &= number_of_waits >= LAUNCH_BOUND.limit("gaps")
    often &= 2 * _standing(run, gaps) < number(gaps.idle.value)
    return RESULTS if enough and often and 2 * copied >= sum(n for _, n in waits) else cause


def _standing(run: Run, gaps: Gaps) -> float:
    """Return the ns of gaps in which the host waits for a GPU that has nothing to do."""
    return 0.0 if _gives_back(run, gaps) else _time_in(gaps, re.compile(BLOCKING))


def _gives_back(run: Run, gaps: Gaps) -> bool:
    """Return whether the host stands in synchronisations while the GPU has nothing to do, in a
    program that allocates from a pool: what was freed goes back to the driver there.
    """
    calls = run.api_calls[run.api_calls["name"].fillna("").str.match(FROM_POOL)]
    often = calls["calls"].sum() >= LAUNCH_BOUND.limit("waits")
    lasts = _time_in(gaps, re.compile(SYNCHRONISING))
    return bool(often) and lasts >= ALLOCATION_STALLS.limit("allocating") * number(gaps.idle.value)


def _unloads(run: Run) -> Number:
    """Return how many modules of code the program unloads."""
    calls = run.api_calls[run.api_calls["name"].fillna("").str.fullmatch(UNLOADED)]
    return Number(calls["calls"].sum(), "count", column("api_calls", "calls"))


def _builds(run: Run, stage: Stage, often: float) -> bool:
    """Return whether kernels are built, and loaded, in most of `often` gaps, or at the lines at
    which the host is for most of the idle time.
    """
    half = FIRST_USE.limit("loading")
    modules = run.api_calls[run.api_calls["name"].fillna("").str.fullmatch(LOADED)]
    loaded = number(modules["calls"].sum())
    if loaded < LAUNCH_BOUND.limit("waits"):
        return False
    rows = host_rows(run, stage.name, idle=True)
    loading = rows.loc[rows["call"].fillna("").str.fullmatch(LOADED), ["file", "line"]]
    at_lines = rows.merge(loading.drop_duplicates(), on=["file", "line"])["idle_samples"].sum()
    return bool(loaded >= half * often or at_lines > half * rows["idle_samples"].sum())


def _remakes(run: Run, gaps: Gaps) -> bool:
    """Return whether most of long gaps goes to code that is loaded, and unloaded again."""
    loading = FIRST_USE.limit("loading") * number(gaps.idle.value)
    often = number(_unloads(run).value) >= REMADE_CODE.limit("reloads")
    return often and _time_in(gaps, MODULES) >= loading


def _time_in(gaps: Gaps, calls: re.Pattern[str]) -> float:
    """Return the ns of gaps that the host spends most of in one of some calls."""
    return sum(value for call, value in gaps.by("call") if calls.match(call))


def _loading_ns(gaps: Gaps, rule: Rule) -> float:
    """Return the ns of gaps in which the host loads kernels.

    A launch that takes 0.1 ms while the GPU is idle loads what it launches: no full queue holds it.
    """
    launching = gaps.in_call.value if rule is HOST_BOUND else None
    return min(number(gaps.idle.value), _time_in(gaps, LOADING) + number(launching or 0.0))


def _first_use(stage: Stage, gaps: Gaps, loading_ns: float, comes: Text) -> Finding:
    """Return a finding without a gain: what comes once costs a long run nothing."""
    calls: list[Value] = [Verbatim(c) for c, _ in gaps.by("call") if ONCE.match(c)]
    calls = calls or [Text("in the first launches themselves")]
    limit = FIRST_USE.thresholds["loading"]
    return FIRST_USE.finding(
        key="idle_outside",
        stage=stage.name,
        title=Text(
            "The GPU waits for kernels to be loaded for {part} of the time {where}",
            part=gaps.idle.share_of(stage.wall),
            where=stage.where,
        ),
        verdict=Text(
            "The GPU is idle for {lost} of {wall} {where} while the host loads what it uses for "
            "the first time ({calls}). {comes}",
            calls=calls[:NAMED],
            comes=comes,
            **_idle_in(stage, gaps.idle),
        ),
        evidence=(
            measured(Text("idle time"), gaps.idle),
            limit.met(
                Text("of it in calls of first use"),
                Number(loading_ns, "ns", (*IDLE_CELLS, *column("idle_gaps", "in_call_ns"))),
            ),
        ),
        gain_of="wall time",
        confidence="medium",
    )


def _launch_problem(run: Run, stage: Stage, gaps: Gaps) -> Text:
    return Text(
        "The GPU is idle for {lost} of {wall} {where} because the host launches too slowly: "
        "{n} gap of {gap}, while a kernel takes {kernel} on average.{range}{others}",
        "The GPU is idle for {lost} of {wall} {where} because the host launches too slowly: "
        "{n} gaps of {gap}, while a kernel takes {kernel} on average.{range}{others}",
        gap=gaps.mean,
        kernel=stage.kernel_mean,
        range=_range(run, stage, gaps),
        **_lost(stage, gaps),
    )


def _host_problem(_run: Run, stage: Stage, gaps: Gaps) -> Text:
    return Text(
        "The GPU is idle for {lost} of {wall} {where} while the host does something else: {n} "
        "gap, the longest {longest}.{activity}{waited}{others}",
        "The GPU is idle for {lost} of {wall} {where} while the host does something else: {n} "
        "gaps, the longest {longest}.{activity}{waited}{others}",
        longest=gaps.longest,
        activity=_activity(gaps),
        waited=_waited(gaps),
        **_lost(stage, gaps),
    )


def _results_problem(run: Run, stage: Stage, gaps: Gaps) -> Text:
    return Text(
        "{problem} It is work on results that were copied back to the host just before{calls}: the "
        "host waits for them (a synchronisation), then the GPU for it.",
        problem=_host_problem(run, stage, gaps),
        calls=" (.cpu(), .item(), .tolist())" if run.kernels["library"].eq(TORCH).any() else "",
    )


def _remade_problem(run: Run, stage: Stage, gaps: Gaps) -> Text:
    return Text(
        "{problem} Modules of code are loaded and unloaded again and again ({n} times): a library "
        "makes anew in the loop what it could keep, as plans of Fourier transforms (cuFFT) or "
        "compiled kernels.",
        problem=_host_problem(run, stage, gaps),
        n=_unloads(run),
    )


def _pool_problem(run: Run, stage: Stage, gaps: Gaps) -> Text:
    return Text(
        "{problem} The GPU has nothing to do while it synchronises: what was freed to the memory "
        "pool of the device (cudaFreeAsync) goes back to the driver at each synchronisation, and "
        "is mapped anew (cudaMallocAsync), as with a release threshold of 0.",
        problem=_host_problem(run, stage, gaps),
    )


def _sync_problem(_run: Run, stage: Stage, gaps: Gaps) -> Text:
    return Text(
        "The GPU is idle for {lost} of {wall} {where} because the host waits until it has finished "
        "({call}) before it launches more: {n} time, {gap} each.{behind}{others}",
        "The GPU is idle for {lost} of {wall} {where} because the host waits until it has finished "
        "({call}) before it launches more: {n} times, {gap} each.{behind}{others}",
        call=Verbatim(gaps.by("waited", "gaps")[0][0]),
        gap=gaps.mean,
        behind=_behind(stage),
        **_lost(stage, gaps),
    )


def _lost(stage: Stage, gaps: Gaps) -> dict[str, Value]:
    counted = {"n": round(number(gaps.count.value)), "others": _all_causes(stage, gaps)}
    return _idle_in(stage, gaps.idle) | counted


def _idle_in(stage: Stage, lost: Number) -> dict[str, Value]:
    return {"lost": lost, "wall": stage.wall, "where": stage.where}


class Cause(NamedTuple):
    """The rule about idle time of a cause, and the words of its finding.

    `title` takes `part` and `where`.
    """

    rule: Rule
    title: Callable[..., Text]
    problem: Callable[[Run, Stage, Gaps], Text]


OF_CAUSE = {
    LAUNCHES: Cause(
        LAUNCH_BOUND,
        partial(Text, "The GPU waits for launches for {part} of the time {where}"),
        _launch_problem,
    ),
    HOST: Cause(
        HOST_BOUND,
        partial(Text, "The GPU waits for the host for {part} of the time {where}"),
        _host_problem,
    ),
    SYNCHRONISATION: Cause(
        SYNC_STALLS,
        partial(Text, "The GPU waits after synchronisations for {part} of the time {where}"),
        _sync_problem,
    ),
}
"""What explains idle time of a cause; the GPU's own time between queued work has no rule."""
ALLOCATIONS = Cause(
    ALLOCATION_STALLS,
    partial(Text, "The GPU waits for allocations for {part} of the time {where}"),
    _host_problem,
)
"""What explains that of the host where it spends most of it in calls that allocate."""
POOL = Cause(
    POOL_RELEASE,
    partial(
        Text, "The GPU waits while a memory pool gives memory back for {part} of the time {where}"
    ),
    _pool_problem,
)
"""What explains it where what is freed goes back to the driver at synchronisations."""
REMADE = Cause(
    REMADE_CODE,
    partial(Text, "The GPU waits while plans or code are made anew for {part} of the time {where}"),
    _remade_problem,
)
"""What explains it where it loads and unloads code."""
RESULTS = Cause(
    RESULTS_ON_HOST,
    partial(Text, "The GPU waits for the host to work on results for {part} of the time {where}"),
    _results_problem,
)
"""What explains it where the host had waited for results, and copied them, before most gaps."""


def _behind(stage: Stage) -> Text | str:
    """Say of synchronisations that slow launches beside them follow from them."""
    idle = stage.of_cause(LAUNCHES).idle
    if not number(idle.share_of(stage.wall).value) >= LAUNCH_BOUND.limit("share"):
        return ""
    return Text(
        " A host that waits for results cannot run ahead: the {idle} in which the GPU waits for "
        "launches follow from that, too.",
        idle=idle,
    )


def _range(run: Run, stage: Stage, gaps: Gaps) -> Text | str:
    """Say before which NVTX range most of the idle time lies; empty where ranges do not tell.

    Beside it stands that range's part of the GPU time, which is what one would look at otherwise.
    """
    total, frame = number(gaps.idle.value), timeline(run)
    (name, idle), *_ = gaps.by("nvtx_range") or [("", 0.0)]
    if frame is None or not name or name == stage.name or idle < RANGE * total:
        return ""
    rows = frame if stage.is_capture else frame[frame["stage"] == stage.name]
    inside = rows["nvtx_path"].str.rsplit("/", n=1).str[-1] == name
    if not inside.any():
        return ""  # numbers in its name stand as *
    busy = Number(rows.loc[inside, "duration_ns"].sum(), "ns", DURATIONS)
    all_busy = Number(rows["duration_ns"].sum(), "ns", DURATIONS)
    return Text(
        " {part} of this time lies before what NVTX range {range} launches, which has {busy} of "
        "the GPU time there.",
        part=Number(idle, "ns", gaps.idle.refs).share_of(gaps.idle),
        range=Verbatim(name),
        busy=busy.share_of(all_busy),
    )


def _remark(run: Run) -> Text:
    """Say what is not counted as gain, what a graph keeps of a gap, and what nsys adds to gaps."""
    return Text(
        " Not counted: {graph_gap} per gap, which a CUDA graph keeps. Of the idle time of the run "
        "about {added} is nsys itself, which lengthens calls of CUDA.",
        graph_gap=LAUNCH_BOUND.thresholds["graph_gap"].number,
        added=program_time(run)[0] - untraced_wall(run),
    )


def _all_causes(stage: Stage, gaps: Gaps) -> Text | str:
    """Say how much the stage is idle for all causes, where that is more by a per cent."""
    total, here = number(stage.idle_share.value), number(gaps.idle.share_of(stage.wall).value)
    if not total - here >= threshold("small_gain"):
        return ""
    where: Value = Text("the capture") if stage.is_capture else stage.link
    return Text(
        " Other causes bring the idle share of {where} to {share}.",
        where=where,
        share=stage.idle_share,
    )


def _activity(gaps: Gaps) -> Text:
    """Say what the host did: a CUDA call that takes long, else the program's own code."""
    total, calls = number(gaps.idle.value), gaps.by("call")
    doing: list[Value] = []
    launching = number(gaps.in_call.value or 0.0)
    code = total - sum(value for _, value in calls) - launching
    if launching >= 0.1 * total:
        doing.append(_with_share(Text("the launch that ends the gap"), launching, gaps))
    if code >= 0.1 * total:
        doing.append(_with_share(Text("the program's own code on the host (CPU)"), code, gaps))
    large = [(name, value) for name, value in calls if value >= 0.1 * total][:NAMED]
    doing += [_with_share(Verbatim(name), value, gaps) for name, value in large]
    ranges = gaps.by("host_range")
    inside = [_with_share(Verbatim(n), value, gaps) for n, value in ranges if value >= 0.1 * total]
    inside = inside[:NAMED]
    if inside:
        return Text(
            " Meanwhile the host is in {doing}, in NVTX range {ranges}.", doing=doing, ranges=inside
        )
    after = [name for name, value in gaps.by("nvtx_range") if value >= 0.2 * total][:NAMED]
    if not after:
        return Text(" Meanwhile the host is in {doing}.", doing=doing)
    return Text(
        " Meanwhile the host is in {doing}. What it launches next is in NVTX range {ranges}.",
        doing=doing,
        ranges=[Verbatim(name) for name in after],
    )


def _with_share(what: Value, ns: float, gaps: Gaps) -> Text:
    share = Number(ns, "ns", gaps.idle.refs).share_of(gaps.idle)
    return Text("{what} ({part})", what=what, part=share)


def _waited(gaps: Gaps) -> Text | str:
    calls = gaps.by("waited", "gaps")
    if not calls:
        return ""
    return Text(
        " Before that it had waited for the GPU {n} time ({call}), so nothing is queued.",
        " Before that it had waited for the GPU {n} times ({call}), so nothing is queued.",
        n=round(sum(value for _, value in calls)),
        call=Verbatim(calls[0][0]),
    )


def _gap_evidence(stage: Stage, gaps: Gaps, rule: Rule, minimum: float) -> list[Evidence]:
    """Return the gaps and the thresholds that they are held to."""
    long_gap = HOST_BOUND.thresholds["long_gap"]
    side = Text("{limit} or more each", limit=long_gap.number)
    if rule is not HOST_BOUND:
        limit = long_gap if gaps.rows["cause"].nunique() < 2 else HOST_BOUND.thresholds["framework"]
        side = Text("under {limit} each", limit=limit.number)
    return [
        _share_evidence(gaps.idle, stage.wall, minimum, rule.thresholds["share"].source),
        measured(Text("idle time"), gaps.idle),
        measured(Text("gaps"), gaps.count),
        Evidence(Text("mean gap"), gaps.mean, side, long_gap.source),
        measured(Text("longest gap"), gaps.longest),
        measured(Text("mean kernel"), stage.kernel_mean),
    ]


def _share_evidence(idle: Number, wall: Number, minimum: float, source: Text) -> Evidence:
    share = idle.share_of(wall)
    return Evidence(
        Text("idle share"),
        Number(100 * number(share.value), "%", share.refs).by(share.formula or Text("")),
        Text("{limit} or more", limit=Number(minimum, "fraction")),
        source,
    )


def _call_evidence(gaps: Gaps) -> list[Evidence]:
    if not gaps.calls_known:
        return []
    late = Text("gaps in which the launch call had not begun when the GPU ran dry")
    return [
        measured(late, gaps.late_calls),
        measured(Text("idle before the launch call"), gaps.before_call),
        measured(Text("idle in the launch call"), gaps.in_call),
        measured(Text("idle from its return to the start on the GPU"), gaps.after_call),
    ]


def _gain_evidence(cost: LaunchCost, saved: Number, formula: Text) -> list[Evidence]:
    """Return what the gain is computed from, so that it can be done by hand."""
    save = Text("could save")
    if formula is BOUNDED:
        return [measured(save, saved, BOUNDED)]
    graph_gap = LAUNCH_BOUND.thresholds["graph_gap"]
    costs = []
    if cost.traced.value:
        label = Text("launch call under nsys, mean of the capture")
        if cost.is_median:
            label = Text("launch call under nsys, median: some calls of the capture wait")
        costs.append(measured(label, cost.traced, Text("nsys: calls named *LaunchKernel*")))
    if cost.untraced.value:
        costs += [
            Evidence(
                Text("launch call without a profiler"),
                cost.untraced,
                _between_processes(cost.untraced),
                cost.source,
            ),
            measured(
                Text("what nsys adds to a launch"),
                cost.added,
                Text("the first less the second, at least 0"),
            ),
        ]
    return [
        measured(Text("left of each gap"), graph_gap.number, graph_gap.source),
        *costs,
        measured(save, saved, formula),
    ]


def _between_processes(value: Number) -> Text | None:
    """Say how far a time is known: a launch differs by process."""
    if value.low is None or value.high is None:
        return None
    low, high = (Number(end, "ns", value.refs) for end in (value.low, value.high))
    return Text("{low} to {high} by process", low=low, high=high)


def _other_causes(stage: Stage, cause: str) -> list[Evidence]:
    """Return the idle time of each other cause, and what lies before and after all gaps."""
    found = [
        measured(Text("idle {when}", when=DURING[gaps.cause]), gaps.idle)
        for gaps in stage.causes
        if gaps.cause in DURING and gaps.cause != cause and number(gaps.idle.value) > 0
    ]
    if stage.causes and number(stage.at_ends.value) > 0:
        label = Text("idle before the first or after the last work of the capture")
        found.append(measured(label, stage.at_ends))
    return found


def _confidence(stage: Stage, gaps: Gaps, rule: Rule, cost: LaunchCost) -> str:
    """Return how sure it is: tracing lengthens launches, and long gaps hardly."""
    in_calls = (
        gaps.calls_known
        and number(gaps.in_call.share_of(gaps.idle).value) > IN_CALLS
        and not cost.added.value
    )
    if stage.is_capture or (rule is LAUNCH_BOUND and in_calls):
        return "low"
    return "high" if rule is HOST_BOUND else "medium"


def _unexplained(run: Run, stage: Stage) -> list[Finding]:
    """Return a finding for idle time whose causes are small each, or not in the trace."""
    program_wall = program_time(run)[0]
    if not _matters(stage.wall, stage.idle, program_wall):
        return []
    queued = number(stage.of_cause(QUEUED).idle.value or 0.0)
    late = number(stage.of_cause(LAUNCHES).count.value or 0.0)
    # A range also counts what lies before the first kernel of the capture and after the last.
    saved = of_host(run, number(stage.idle.value) - queued, late)
    launches = Number(number(stage.launches.value) / stage.gpus, "count", stage.launches.refs)
    per_launch = stage.idle.per(launches, "ns")
    waits = _waiting_calls(run, stage)
    waits = waits[number(stage.launches.value) / stage.gpus <= EACH * waits["calls"]]
    each: Text | str = ""
    if per_launch.value is not None:
        each = Text(", {gap} per launch", gap=per_launch)
    values = _idle_in(stage, stage.idle)
    return [
        IDLE.finding(
            stage=stage.name,
            title=Text(
                "The GPU is idle for {part} of the time {where}",
                part=stage.idle_share,
                where=stage.where,
            ),
            headline=Text("The GPU is idle for {lost} of {wall} {where}", **values),
            verdict=Text(
                "The GPU is idle for {lost} of {wall} {where} ({part}{each}).{causes}{waits} "
                "Without the gaps the program would save at most {gain} of its wall time. "
                "{tracing}",
                part=stage.idle_share,
                each=each,
                causes=_causes_of(stage),
                waits=_after_each(waits),
                gain=Number(saved / number(program_wall.value), "fraction"),
                tracing=TRACING,
                **values,
            ),
            action=IDLE.action if waits.empty else SYNC_STALLS.action,
            advice=IDLE.advice if waits.empty else SYNC_STALLS.advice,
            evidence=(
                _share_evidence(
                    stage.idle, stage.wall, IDLE.limit("share"), IDLE.thresholds["share"].source
                ),
                measured(Text("idle time"), stage.idle),
                measured(Text("idle time per launch"), per_launch),
                wall_evidence(program_wall),
                *_other_causes(stage, ""),
            ),
            confidence="low" if stage.is_capture else "medium",
            **of_wall_time(Number(saved, "ns"), program_wall),
        )
    ]


def _after_each(waits: pd.DataFrame) -> Text | str:
    """Say that the host waits after nearly every launch, whatever the gaps are put down to."""
    if waits.empty:
        return ""
    return Text(
        " The host waits for the GPU {n} times ({call}), after nearly every launch: it cannot run "
        "ahead, and each wait leaves the GPU without work.",
        n=Number(waits["calls"].iloc[0], "count", column("api_calls", "calls")),
        call=Verbatim(str(waits["name"].iloc[0])),
    )


def _matters(wall: Number, idle: Number, program_wall: Number) -> bool:
    enough = number(idle.share_of(program_wall).value) >= threshold("small_gain")
    return enough and number(idle.share_of(wall).value) >= IDLE.limit("share")


def _causes_of(stage: Stage) -> Text | str:
    """Say how the idle time divides by cause; empty where the trace does not tell."""
    causes = stage.causes
    if not causes or causes[0].cause == "unknown":
        return ""
    total = Number(sum(number(gaps.idle.value) for gaps in causes), "ns")
    clauses: list[Value] = [
        Text("{part} {when}", part=gaps.idle.share_of(total), when=DURING[gaps.cause])
        for gaps in causes
        if gaps.cause in DURING
        and number(gaps.idle.share_of(total).value) >= threshold("small_share")
    ]
    return Text(" Of this, {parts}.", parts=clauses)


def _outside(run: Run, wall: Number, idle: Number) -> list[Finding]:
    """Return a finding without a gain for idle time of the capture in none of its stages.

    Too little rather than too much: ranges also begin before the first kernel and end after the
    last, and those of several threads overlap. What happens once costs a long run nothing.
    """
    program_wall = program_time(run)[0]
    if not _matters(wall, idle, program_wall):
        return []
    values = {"lost": idle, "part": idle.share_of(program_wall)}
    gaps = run.idle_gaps[(run.idle_gaps["stage"] == "") & (run.idle_gaps["cause"] == HOST)]
    longest: Text | str = ""
    if len(gaps):
        longest = Text(
            " The longest of {n} gaps takes {longest}.",
            n=Number(gaps["gaps"].sum(), "count", column("idle_gaps", "gaps")),
            longest=Number(gaps["longest_ns"].max(), "ns", column("idle_gaps", "longest_ns")),
        )
    return [
        IDLE_OUTSIDE.finding(
            title=Text(
                "The GPU is idle for {lost} outside of the stages ({part} of the wall time)",
                **values,
            ),
            verdict=Text(
                "The GPU is idle for {lost} outside of the stages ({part} of the wall time): while "
                "the program starts, loads or prepares, before, between or after them.{longest} "
                "It matters where it comes again and again, not where it comes once.",
                longest=longest,
                **values,
            ),
            evidence=(
                Evidence(
                    Text("idle time outside of the stages"),
                    idle,
                    Text(
                        "{limit} or more of the time there", limit=IDLE.thresholds["share"].number
                    ),
                    Text("idle time of the capture less that of its stages"),
                ),
            ),
            gain_of="wall time",
            confidence="low",
        )
    ]
