"""Adds to findings the lines of the source that their time belongs to."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from nsight_prof.parsers.cells import count, number, records, text
from nsight_prof.parsers.metrics.formulas import WARP
from nsight_prof.parsers.names import stacks
from nsight_prof.parsers.names.source_text import (
    OVER_RESULTS,
    derives,
    loop_around,
    loop_over_results,
    written_to_be_read,
)
from nsight_prof.parsers.ncu import kernel_code
from nsight_prof.parsers.nsys.rows.python_samples import LIBRARY
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.gpu_times import gpu_count
from nsight_prof.reports.analysis.lines import (
    MOST,
    HostLine,
    KernelLine,
    callers,
    fused_lines,
    goes_on,
    host_lines,
    host_rows,
    item_lines,
    launched_time,
    launching_rows,
    lines_of,
    location,
    native_lines,
    of_samples,
    program_lines,
    waiting_rows,
    with_texts,
)
from nsight_prof.reports.analysis.profiled import EXACT_MORE
from nsight_prof.reports.analysis.stages import program_time
from nsight_prof.reports.findings.gain import of_host, of_wall_time
from nsight_prof.reports.findings.kernels import instructions, memory, occupancy
from nsight_prof.reports.findings.kernels.measure import filled
from nsight_prof.reports.findings.kernels.waits import LATENCY
from nsight_prof.reports.findings.model import OF_VALUES, Finding, concatenated
from nsight_prof.reports.findings.program import copies, fusion, host_work, idle_rules, launch_rules
from nsight_prof.reports.findings.program.backends import telling
from nsight_prof.reports.findings.program.needless import NEEDLESS_WORK
from nsight_prof.reports.findings.program.rule import column
from nsight_prof.reports.findings.values.calls import differentiated
from nsight_prof.reports.page import Evidence, Number, Ref, Text, Value, Verbatim
from nsight_prof.reports.verdicts.instruction_mix import instruction_mix
from nsight_prof.reports.verdicts.operations import calls_at, with_operation

SOLVES = r"\blinalg\.(?:eig|svd|inv|pinv|solve|lstsq|det|slogdet|cholesky|qr|matrix_rank)"
"""Lines that solve: what they launch may go with their waits."""
LAUNCH_CELLS = (*column("kernels", "total_ns"), Ref("launch_lines", "", "samples"))
NAMED, FUSED = 2, 4
"""Lines that a sentence names, and those of a kernel that is fused of them."""
LEAST = 0.1
"""Share of the samples below which a line is not named."""
LEAST_OF_CHAIN = 0.05
"""The same of a chain that enters a function several times: what it does besides takes little."""
IN_SENTENCE = {NEEDLESS_WORK.key, *OF_VALUES}
"""Rules whose lines stand in their sentence."""
MAIN = 0.7
"""Part of the conversions from which on a line of a layer does most of them."""
INSIDE = 0.8
"""Part of the samples within a line that those lines have which are named in its place."""
PYTHON_MODULE = r"/python3[\d.]*/(?!site-packages|dist-packages)(\w+(?:/\w+)*\.py):\d+ \w+$"
"""A function of Python's own library, as the innermost frame of a stack."""
ALLOCATES = r"^(?:cuda(?:Malloc|HostAlloc)|cuMem(?:Host)?Alloc)"
"""Names of CUDA calls that give memory."""
COPYING = r"\.(?:to|cuda|cpu|copy_)\("
"""Calls of PyTorch that copy, in the text of a line."""
OF_LAUNCH = (
    *("small_grid", "few_blocks", "imbalance", "tail", "short_blocks", "narrow_blocks"),
    *("block_limited", "warps_limited"),
)
"""Rules about the blocks, threads and warps that a launch asks for, and what it gives to each: the
line at fault is its line."""
OF_TILES = ("local_spills", "register_limited", "narrow_accesses")
"""The same where the program is one of Triton, whose launch chooses the tiles that registers hold,
and the warps that share them."""
ONE_WARP = "32x1x1"
"""Block whose registers spill since no other warp shares its values."""
AGAIN = 10
"""Times in each step that a line runs from which on it is in a loop within that."""
IDLE_WORK = 0.15
"""Share of the samples from which on a line that launches nothing is named before those that do."""
DOING = {
    idle_rules.SYNC_STALLS.key: ("waiting", "copying"),
    idle_rules.ALLOCATION_STALLS.key: ("allocating",),
    idle_rules.POOL_RELEASE.key: ("waiting",),
    copies.COPIES.key: ("copying",),
    copies.CASTS_AND_COPIES.key: ("copying",),
}
"""Rules whose time is that in certain calls: it is spent there while the GPU works, too."""
WORK = {
    work.rule.key: name for name, work in host_work.OF_WORK.items() if work.rule in host_work.RULES
}
"""Rules whose time is that in which a library does certain work."""


class At(NamedTuple):
    """Which instructions a rule is about: a count of each, a pattern of SASS, and what they are.

    `of_values`: the line at fault is that of the values that they take. `beyond_l1`: what loads
    find in L1 does not count, as all that stores write goes on to L2.
    """

    counted: str
    sass: str
    what: Text
    of_values: bool = False
    beyond_l1: bool = False


NEEDLESS, SECTORS = Text("the needless sectors"), Text("the sectors")
BEYOND_L1 = Text("the sectors that L2 serves")
DOUBLE = r"\bD(?:ADD|MUL|FMA|SETP|MNMX)\b|\bF2F\.F64|\bMUFU\.\w+64H"
BANKS = r"\b(?:LDS|STS|LDSM|STSM|ATOMS)\b"
SPILLS = r"\bSTL\b"
LOADS, ASYNC_COPIES = r"\bLDG?\b", r"\b(?:LDGSTS|UTMA|UBLKCP)"
"""Loads of single threads, and copies into shared memory that some warps may start for all."""
ACCESSES = r"\b(?:LDG?|LDSM?|STG?|STS|ATOM[GS]?|REDG?|SHFL)\b"
EXECUTED = At("instructions", "", Text("its instructions"))
"""What to look at where warps stand for no reason of their own, but at a busy pipe."""
AT = {
    instructions.SLOW_FUNCTIONS.key: EXECUTED,
    instructions.EXACT_MATH.key: At("instructions", "|".join(EXACT_MORE), Text("these operations")),
    instructions.DIVERGENCE.key: At(
        "divergent_branches", "", Text("the branches that part a warp")
    ),
    instructions.DOUBLE_PRECISION.key: At("instructions", DOUBLE, Text("these instructions")),
    instructions.UNFUSED_FMA.key: At("instructions", r"\b[FD]ADD\b", Text("the additions")),
    "block_tree": At("instructions", r"\bBAR\b", Text("the barriers")),
    instructions.EARLY_RETURNS.key: At("instructions", kernel_code.RETURNS, Text("the returns")),
    memory.UNCOALESCED_LOADS.key: At("excessive_sectors", r"\bLDG?\b", NEEDLESS),
    memory.UNCOALESCED_STORES.key: At("excessive_sectors", r"\bSTG?\b", NEEDLESS),
    memory.UNCOALESCED.key: At("excessive_sectors", "", BEYOND_L1, beyond_l1=True),
    memory.SCATTERED.key: At("excessive_sectors", "", BEYOND_L1, beyond_l1=True),
    memory.HOST_MEMORY.key: At("sectors", r"\bLDG?\b", SECTORS),
    memory.NARROW_ACCESSES.key: At("sectors", r"\b(?:LDG?|STG?)\b", SECTORS),
    memory.LOCAL_SPILLS.key: At("instructions", SPILLS, Text("the values in local memory"), True),
    memory.BANK_CONFLICTS.key: At("bank_conflicts", BANKS, Text("the bank conflicts")),
    memory.ATOMICS.key: At("instructions", r"\b(?:RED|ATOM)", Text("the atomics")),
    "stored_each_pass": At("sectors", r"\bSTG\b", SECTORS),
    "device_heap": At("instructions", kernel_code.OUTSIDE, Text("the calls")),
    "indirect_calls": At("instructions", kernel_code.POINTERS, Text("the calls")),
    "table_lookups": At("instructions", kernel_code.BYTES, Text("the look-ups")),
    "several_passes": At("sectors", r"\bLDG", SECTORS),
    "same_loads": At("sectors", r"\bLDG", SECTORS),
    "l1_saturated": At("instructions", ACCESSES, Text("the accesses")),
    "l2_saturated": At("sectors", "", SECTORS),
}
"""Rules about instructions of one kind: the line at fault is theirs, not where warps stand."""
CROWDED = ("math", "not_selected", "dispatch")
"""Reasons of that kind, as the source page of ncu names them."""
IDLE = tuple(
    rule.key
    for rule in (
        idle_rules.HOST_BOUND,
        idle_rules.RESULTS_ON_HOST,
        idle_rules.REMADE_CODE,
        idle_rules.LAUNCH_BOUND,
        idle_rules.IDLE,
    )
)
"""Rules whose time is that in which the GPU has nothing to do."""
CPU_LIBRARIES = host_work.OF_WORK["computing on the host"].rule.key
ROUND_TRIPS = (idle_rules.RESULTS_ON_HOST.key, CPU_LIBRARIES)
"""Rules about results that the host works on."""
SHARED_ATOMICS = r"\bATOMS\b"
SHARED_ATOMIC_ACTION = Text(
    "Add within a warp first (__reduce_add_sync, __match_any_sync), keep several copies of the "
    "counters in shared memory (one for each warp, added up at the end), or count the most "
    "frequent value in a register: atomics on one word run one after another."
)
"""What to do where bank conflicts are those of atomics on shared memory."""
SWITCHES = {
    "dispatch_modes": r"Mode\(|set_default_device\(|torch\.device\(",
    "profiling": r"\bprofile\w*\(|Profile\(|tracemalloc\.start",
}
"""Rules about what is switched on at one line and felt at others: the text of that line."""
SAMPLES = Text("stacks of Python, sampled by nsys")
STALLS = Text("samples of warps by ncu")
COUNTED = Text("counts of instructions by ncu")
RECOMPILE_LOG = Text("messages of torch (TORCH_LOGS=recompiles)")


def located(run: Run, finding: Finding) -> Finding:
    """Return the finding with the lines that it is about, or as it is where none are known."""
    of_kernels = finding.rule == copies.CASTS_AND_COPIES.key and not copies.is_within(run)
    if finding.rule in {*DOING, *WORK, *IDLE} and not of_kernels:
        finding = _in_loop_over_results(run, finding) or _with_host_lines(run, finding)
        is_again = finding.rule == host_work.COMPILATION.key and len(run.recompilations)
        return _with_guards(run, finding) if is_again else finding
    if finding.rule == host_work.INTERPRETER_LOCK.key:
        return _with_thread_lines(run, finding)
    if not (finding.rule and finding.kernel_ids) or finding.rule in IN_SENTENCE:
        return finding
    launched = _with_launch_lines(run, finding)
    if finding.key == "kernel":
        if _is_of_launch(run, finding):
            return _with_kernel_lines(run, _with_idle_warps(run, launched))
        in_kernel = _with_kernel_lines(run, finding)
        if in_kernel is not finding:
            return in_kernel
    return _with_fused_lines(run, finding) if launched is finding else launched


def _is_of_launch(run: Run, finding: Finding) -> bool:
    """Tell whether a finding is about how a kernel is launched, and the line of that is known."""
    if [line.line for line in callers(run, *finding.kernel_ids)][:1] in ([], [None]):
        return False
    if finding.rule == occupancy.SHARED_LIMITED.key:
        rows = run.launches[run.launches["kernel_id"] == finding.kernel_ids[0]]
        return bool(rows["dynamic_shared_bytes"].sum() > rows["static_shared_bytes"].sum())
    if finding.rule in OF_TILES:
        is_it = run.kernels["kernel_id"] == finding.kernel_ids[0]
        one_warp = set(run.kernels.loc[is_it, "block"]) == {ONE_WARP}
        return one_warp or _holds_tiles(run, finding.kernel_ids[0])
    if finding.rule == occupancy.SHORT_BLOCKS.key and _ends_at_once(run, finding.kernel_ids[0]):
        return False
    return finding.rule in OF_LAUNCH or _loading_warps(run, finding) < MOST


def _ends_at_once(run: Run, kernel_id: str) -> bool:
    """Tell whether a kernel of CUDA C++ has whole warps and no loop: fewer blocks alone would leave
    work undone, so that its text is to mend, which gives a thread one element.
    """
    lines = run.source_lines[run.source_lines["kernel_id"] == kernel_id]
    rows = run.source_instructions[run.source_instructions["kernel_id"] == kernel_id]
    times = rows.sort_values("offset")["instructions"].fillna(0)
    blocks = run.kernels.loc[run.kernels["kernel_id"] == kernel_id, "block"].fillna("")
    threads = [math.prod(map(int, block.split("x"))) for block in blocks if block]
    return (
        bool(len(times)) and not lines["file"].fillna("").str.endswith(".py").any()
        and times.max() < kernel_code.IN_LOOP * times.iloc[0]
        and min(threads, default=0) >= WARP
    )  # fmt: skip


def _loading_warps(run: Run, finding: Finding) -> float:
    """Return the part of its warps that load anything, of a kernel whose warps wait for each other
    at barriers: where that is small, blocks are larger than what they work on. 1 of others.
    """
    counted = run.counters[run.counters["kernel_id"] == finding.kernel_ids[0]]
    if finding.rule != LATENCY.key or "barrier" not in set(counted["top_stall"]):
        return 1.0
    rows = run.source_instructions
    rows = rows[rows["kernel_id"] == finding.kernel_ids[0]].sort_values("offset")
    sass, of_all = rows["sass"].fillna(""), rows["instructions"].iloc[:1].max()
    loads = rows.loc[sass.str.contains(LOADS), "instructions"]
    if sass.str.contains(ASYNC_COPIES).any() or loads.empty or not of_all > 0:
        return 1.0
    return number(loads.max()) / number(of_all)


def _with_idle_warps(run: Run, finding: Finding) -> Finding:
    """Return a finding with the warps of a block that only wait for others, where most do."""
    loading = _loading_warps(run, finding)
    if not loading < MOST:
        return finding
    refs = (Ref("source_instructions", finding.kernel_ids[0], "instructions"),)
    verdict = Text(
        "{verdict} Only {part} of its warps load anything: its blocks have more threads than what "
        "they work on has pieces.",
        verdict=finding.verdict,
        part=Number(loading, "fraction", refs).by(Text("warps that load / warps")),
    )
    return replace(finding, verdict=verdict)


def _holds_tiles(run: Run, kernel_id: str) -> bool:
    """Tell whether registers hold tiles of a program of Triton, and not what a function needs."""
    lines = run.source_lines[run.source_lines["kernel_id"] == kernel_id]
    functions = lines["source"].fillna("").str.contains(kernel_code.FUNCTIONS)
    return bool(lines["file"].fillna("").str.endswith(".py").any() and not functions.any())


def _in_program(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows in code of the program where there are any: threads of libraries have none."""
    in_program = rows[~rows["file"].fillna("").str.contains(LIBRARY)]
    return rows if in_program.empty else in_program


def _with_guards(run: Run, finding: Finding) -> Finding:
    """Return a finding about compilation with the lines whose guards failed: these are to mend."""
    rows = records(run.recompilations.head(NAMED))
    places = [Verbatim(location(text(row["file"]), count(row["line"]))) for row in rows]
    guards = [
        Text("{guard} at {place} in {function}", guard=Verbatim(text(row["guard"])), place=at,
             function=Verbatim(text(row["function"])))
        for at, row in zip(places, rows, strict=True)
    ]  # fmt: skip
    verdict = Text(
        "{verdict} torch.compile compiles again since no longer held: {guards}.",
        verdict=finding.verdict,
        guards=guards,
    )
    counts = (
        Evidence(Text("compiled again at {place}", place=at), int(row["compilations"]),
                 source=RECOMPILE_LOG)
        for at, row in zip(places, rows, strict=True)
    )  # fmt: skip
    return replace(finding, verdict=verdict, evidence=(*finding.evidence, *counts))


def _with_thread_lines(run: Run, finding: Finding) -> Finding:
    rows = host_work.busy_threads(run)
    # Lines of instructions that the interpreter adds are not known.
    known = rows[rows["line"].notna()].assign(
        idle_samples=0, activity="program", call="", nvtx_range="", source=""
    )
    lines = host_lines(known)
    hot_lines = _hot(lines)
    if not hot_lines:
        return finding
    places: list[Value] = [_host_place(line) for line in hot_lines]
    verdict = Text("{verdict} It is in {places}.", verdict=finding.verdict, places=places)
    return replace(finding, verdict=verdict, evidence=_evidence(finding, hot_lines, SAMPLES))


def _with_native_lines(run: Run, finding: Finding) -> Finding:
    lines = native_lines(run, DOING.get(finding.rule, ("launching",)))
    hot_lines = _hot_calls(lines)
    if not hot_lines:
        return finding
    verdict = Text(
        "{verdict} Its CUDA calls are made in {places}.",
        verdict=finding.verdict,
        places=[
            Text("{place} ({share} of their time)", share=_alone(line.share),
                 place=Verbatim(line.function) if line.line is None
                 else Text("{place} in {function}", place=Verbatim(line.location),
                           function=Verbatim(line.function)))
            for line in hot_lines
        ],
    )  # fmt: skip
    return replace(finding, verdict=verdict)


def _hot_calls(lines: Sequence[HostLine]) -> list[HostLine]:
    """Return the lines of calls with most time; but first, in the order of the program, those that
    allocate: what is allocated once need not be freed, and each of several is at fault alike.
    """
    allocating = [
        line
        for line in lines
        if re.search(ALLOCATES, line.call) and number(line.share.value) >= LEAST
    ]
    allocating.sort(key=lambda line: (line.file, line.line or 0))
    others = _hot([line for line in lines if line not in allocating])
    return [*allocating, *others][:NAMED]


def _with_host_lines(run: Run, finding: Finding) -> Finding:
    if run.host_lines.empty:
        return _with_native_lines(run, finding)
    rows, counted = _host_samples(run, finding)
    items: Sequence[HostLine] = ()
    idle_work: Sequence[HostLine] = ()
    all_samples = rows[counted].sum()
    if finding.rule in IDLE and finding.choice:
        items = item_lines(run, rows, counted)
        if items:  # all lines that go on with what others began belong to these in proportion
            all_samples = rows.loc[~goes_on(rows), counted].sum()
        idle_work, rows = without_launches(run, rows, counted)
        rows = with_texts(run, stacks.holding_lines(rows, counted, run.timed_lines))
    lines = host_lines(rows, counted)
    inner = inner_loop(run, lines) if finding.choice else []
    ordered = [*inner, *(line for line in lines if line not in inner)]
    hot_lines = _hot(ordered)
    if hot_lines and finding.rule == idle_rules.HOST_BOUND.key:
        hot_lines = _work_first(hot_lines, without_launches(run, rows, counted)[0])
    hot_places = {line.location for line in hot_lines}
    new = [line for line in items[:1] if line.location not in hot_places]
    hot_lines = [*new, *hot_lines][:NAMED]
    if not hot_lines:
        return finding
    if to_mend := {line.location: line for line in (*inner, *items, *idle_work)}.values():
        share = sum(line.samples for line in to_mend) / all_samples
        finding = _of_lines(run, finding, share, of_items=bool(inner or items))
    waits = _waiting(run, finding, hot_lines[0].file)
    head = _over_results(run, lines) if finding.rule == idle_rules.SYNC_STALLS.key else None
    finding = with_operation(finding, [head or hot_lines[0]], waits, of_items=bool(new))
    finding = _of_solver(run, finding, hot_lines[0])
    finding = _switched_on(run, finding)
    values: dict[str, Value] = {
        "verdict": finding.verdict,
        "places": [_host_place(line) for line in hot_lines],
        "calls": concatenated(_called_there(finding, rows, counted, hot_lines)),
    }
    around = _round_trip(run, finding, rows, counted, hot_lines[0])
    around = around or head
    if around is None and not (inner or idle_work or new):
        around = _around(run, finding, rows, counted, hot_lines)
    if around is not None:
        verdict = Text(
            "{verdict} The host is then in {call}, within it in {places}.{calls}",
            call=_host_place(around),
            **values,
        )
        hot_lines = [around, *hot_lines]
    elif idle_work:
        verdict = Text(
            "{verdict} The host is then in {idle}, where it launches nothing.{calls} The others "
            "are in {places}.",
            idle=[_host_place(line) for line in idle_work],
            **{**values, "calls": calls_at(idle_work[0].source)},
        )
        hot_lines = [*idle_work, *hot_lines]
    else:
        verdict = Text("{verdict} The host is then in {places}.{calls}", **values)
    return replace(finding, verdict=verdict, evidence=_evidence(finding, hot_lines, SAMPLES))


def _host_samples(run: Run, finding: Finding) -> tuple[pd.DataFrame, str]:
    """Return the samples of the host that a finding is about, and the column that counts them."""
    doing = DOING.get(finding.rule, ())
    counted = "samples" if doing else "idle_samples"
    rows = host_rows(run, finding.stage, doing, idle=not doing)
    if doing == DOING[copies.COPIES.key]:
        rows = _copying(run, finding, rows)
    is_wait = finding.rule == idle_rules.SYNC_STALLS.key
    is_wait |= finding.rule == idle_rules.LAUNCH_BOUND.key and not finding.choice
    if is_wait:
        waits = (
            host_rows(run, finding.stage, stacks.WAITING[:1]) if len(run.timed_calls) else rows[:0]
        )
        waits = waits if len(waits) else waiting_rows(run, finding.stage)
        rows, counted = (waits, "samples") if len(waits) else (rows, counted)
    if finding.rule in WORK:
        rows = rows[host_work.is_in_work(run, rows, WORK[finding.rule])]
    return _in_program(rows), counted


def _in_loop_over_results(run: Run, finding: Finding) -> Finding | None:
    """Return a finding with the lines of a loop over what is read back once, at its head, where
    most of the idle time is: its launches are to mend, and not that wait. None for all others.
    """
    if finding.rule != idle_rules.LAUNCH_BOUND.key or finding.choice or run.host_lines.empty:
        return None
    found = host_lines(_host_samples(run, finding)[0])
    if not found or not re.search(OVER_RESULTS, found[0].source):
        return None
    head, idle = found[0], _in_program(host_rows(run, finding.stage, idle=True))
    inside = idle[idle["file"].eq(head.file) & idle["function"].eq(head.function)]
    inside = inside[inside["line"].gt(head.line or 0)]
    hot_lines = _hot(host_lines(inside, "idle_samples"))
    if inside["idle_samples"].sum() < MOST * idle["idle_samples"].sum() or not hot_lines:
        return None
    verdict = Text(
        "{verdict} The host is then in {places}, in a loop over what it reads back at {head}."
        "{calls}",
        verdict=finding.verdict,
        places=[_host_place(line) for line in hot_lines],
        head=Verbatim(head.location),
        calls=calls_at(hot_lines[0].source),
    )
    return replace(finding, verdict=verdict, evidence=_evidence(finding, hot_lines, SAMPLES))


def _work_first(lines: Sequence[HostLine], idle_work: Sequence[HostLine]) -> list[HostLine]:
    """Return lines with those that launch nothing before others that are about as hot."""
    hottest = max(number(line.share.value) for line in lines)
    at = {line.location for line in idle_work if number(line.share.value) >= INSIDE * hottest}
    return sorted(lines, key=lambda line: line.location not in at)


def without_launches(
    run: Run, rows: pd.DataFrame, counted: str
) -> tuple[list[HostLine], pd.DataFrame]:
    """Return the lines with many of the samples at which the host never is in a CUDA call, and the
    rows of all others: who launches less is helped less by a graph than by leaving such work out.

    None where nobody knows all lines that launch, which a stack of autograd does not name.
    """
    launching = {*zip(run.launch_lines["file"], run.launch_lines["line"], strict=True)}
    in_calls = run.host_lines[run.host_lines["activity"] != "program"]
    launching |= {*zip(in_calls["file"], in_calls["line"], strict=True)}
    found = [
        line
        for line in host_lines(rows, counted)
        if number(line.share.value) >= IDLE_WORK
        and (line.file, line.line) not in launching
        and not derives(line.source)
    ][:NAMED]
    if run.launch_lines.empty or not found:
        return [], rows
    at_line = [(line.file, line.line) for line in found]
    places = pd.Series([*zip(rows["file"], rows["line"], strict=True)], rows.index)
    return found, rows[~places.isin(at_line)]


def _copying(run: Run, finding: Finding, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that a finding about copies is at: those of calls, else of waits or texts."""
    if rows.empty:  # calls too short for a sample
        rows = host_rows(run, finding.stage)
        rows = rows[rows["source"].fillna("").str.contains(COPYING)]
    if finding.rule == copies.COPIES.key and copies.leaves(run):
        waits = host_rows(run, finding.stage, stacks.WAITING[:1])
        if waits["time_ns"].sum() * LEAST > rows["time_ns"].sum():
            rows = waits  # the copies only begin: the host stands where it needs what they bring
    return rows


def _switched_on(run: Run, finding: Finding) -> Finding:
    """Return a finding about a mode with the line at which the program switches it on."""
    texts = run.timed_lines["source"].fillna("")
    rows = run.timed_lines[texts.str.contains(SWITCHES.get(finding.rule, r"(?!)"))]
    if rows.empty:
        return finding
    longest = records(rows.nlargest(1, "hits"))[0]
    verdict = Text(
        "{verdict} It is switched on at {place}.",
        verdict=finding.verdict,
        place=Verbatim(location(text(longest["file"]), count(longest["line"]))),
    )
    return replace(finding, verdict=verdict)


def inner_loop(run: Run, lines: Sequence[HostLine]) -> list[HostLine]:
    """Return the lines of a loop within the step where they hold about as much together as the
    hottest line: what it launches for each item can be done for all at once; the rest cannot.
    """
    runs = run.timed_lines.groupby(["file", "line"])["hits"].sum()
    hits = {id(line): int(runs.get((line.file, line.line), 0)) for line in lines}
    large = [line for line in lines if number(line.share.value) >= LEAST and hits[id(line)]]
    steps = min((hits[id(line)] for line in large), default=0)
    inner = [line for line in lines if hits[id(line)] >= AGAIN * steps > 0]
    hottest = max((line.samples for line in lines), default=0)
    return inner if sum(line.samples for line in inner) >= INSIDE * hottest else []


def _of_lines(run: Run, finding: Finding, share: float, *, of_items: bool) -> Finding:
    """Return a finding about launches with what the lines save that are to mend, of whose samples
    they have a share. `of_items`: for all items at once kernels that leave SMs empty take no
    longer.
    """
    empty = 1 - run.kernels["kernel_id"].map(filled(run)).astype(float).fillna(1.0)
    side_by_side = (empty * run.kernels["total_ns"].astype(float)).sum() / gpu_count(run)
    unfilled = float(side_by_side) if of_items else 0.0
    wall = program_time(run)[0]
    saved = Number(share * (finding.gain_ns + unfilled), "ns", column("kernels", "total_ns"))
    verdict = Text(
        "{verdict} What is to mend holds {part} of that{beside}: {gain} of the wall time "
        "({saved}).",
        verdict=finding.verdict,
        part=Number(share, "fraction", (Ref("host_lines", "", "idle_samples"),)),
        beside=Text(", and of the time of kernels that leave SMs empty") if unfilled else "",
        gain=saved.share_of(wall),
        saved=saved,
    )
    gains = of_wall_time(saved, wall, Number(finding.gain_ns, "ns"))
    return replace(finding, verdict=verdict, **gains)


def _of_solver(run: Run, finding: Finding, line: HostLine) -> Finding:
    """Return a finding about waits of a solver with what all that it launches saves, too: who
    batches it, or has a factor already, needs neither its checks nor its many small kernels.
    """
    waits = finding.rule in (idle_rules.SYNC_STALLS.key, idle_rules.LAUNCH_BOUND.key)
    launched, idle = launched_time(run), host_rows(run, finding.stage, idle=True)
    is_known = line.line is not None and not launched.empty
    if finding.choice or not (waits and is_known and re.search(SOLVES, line.source)):
        return finding
    idle = stacks.with_callers(idle.reset_index(drop=True))
    launched, idle = (
        rows[rows["file"].eq(line.file) & rows["line"].eq(line.line or 0)]
        for rows in (launched, idle)
    )
    gpu = Number(launched.drop_duplicates("launch")["gpu_ns"].sum(), "ns", LAUNCH_CELLS)
    waiting = of_host(run, idle[~idle.index.duplicated()]["idle_ns"].sum())
    saved, wall = Number(number(gpu.value) + waiting, "ns", LAUNCH_CELLS), program_time(run)[0]
    if not number(saved.value) > finding.gain_ns:
        return finding
    verdict = Text(
        "{verdict} Kernels that are launched there take {gpu}: a way that needs them no more (a "
        "factor that is there already, all matrices in one call) saves at most {gain} of the wall "
        "time ({saved}), with the {waiting} in which the GPU waits for that line.",
        verdict=finding.verdict,
        gpu=gpu,
        gain=saved.share_of(wall),
        saved=saved,
        waiting=Number(waiting, "ns", (Ref("host_lines", "", "idle_ns"),)),
    )
    return replace(finding, verdict=verdict, **of_wall_time(saved, wall))


def _called_there(
    finding: Finding, rows: pd.DataFrame, counted: str, hot_lines: Sequence[HostLine]
) -> Iterator[Text | str]:
    """Say what the hottest line calls, and in which module of Python's own the host is, if in any.

    Such a module launches nothing, so that no larger launch and no graph mends it.
    """
    yield calls_at(hot_lines[0].source)
    module = rows["inner"].fillna("").str.extract(PYTHON_MODULE, expand=False)
    samples = rows[counted].groupby(module).sum().sort_values(ascending=False)
    if finding.rule not in IDLE or samples.empty:
        return
    share = Number(float(samples.iloc[0] / rows[counted].sum()), "fraction")
    if number(share.value) < LEAST or hot_lines[0].inner.endswith(str(samples.index[0])):
        return
    callers_of_module = host_lines(_in_program(rows[module == samples.index[0]]), counted)
    yield Text(
        " {share} of these samples are in Python's {module}, called at {place}: work on the host "
        "that launches nothing.",
        share=Number(share.value, "fraction", (Ref("host_lines", "", counted),)).by(
            Text("samples in it / samples")
        ),
        module=Verbatim(str(samples.index[0])),
        place=Verbatim(callers_of_module[0].location),
    )


def _waiting(run: Run, finding: Finding, file: str) -> list[HostLine]:
    """Return the lines of a file at which the host waits for the results that it works on."""
    rows = host_rows(run, finding.stage, stacks.WAITING)
    return host_lines(rows[rows["file"] == file])


def _around(
    run: Run, finding: Finding, rows: pd.DataFrame, counted: str, hot_lines: Sequence[HostLine]
) -> HostLine | None:
    """Return the line around the hottest ones that says more than they do; None where none does.

    That is who waits for a data loader or asked for checkpoints, who goes over items one after
    another that wait, and, of work that no line has most of, the line of the loop.
    """
    if finding.rule == host_work.DATA_LOADING.key:
        found = host_lines(stacks.asking_lines(rows), counted)
    elif finding.rule == host_work.RECOMPUTATION.key:
        every = host_rows(run, finding.stage)
        found = host_lines(stacks.asking_lines(every[every["work"] == "checkpointing"]))
    elif finding.rule == idle_rules.LAUNCH_BOUND.key and not finding.choice:
        hot_places = {hot.location for hot in hot_lines}
        items = item_lines(run, rows, counted)[:1]
        return next((line for line in items if line.location not in hot_places), None)
    elif number(hot_lines[0].share.value) < MOST and finding.rule not in DOING:
        # Each call that copies, waits or allocates is a line by itself.
        found = host_lines(
            stacks.loop_lines(_in_program(rows), _in_program(host_rows(run, finding.stage))),
            counted,
        )
    else:
        return None
    if not found:
        return None
    line = found[0]
    known = any(line.location == hot.location for hot in hot_lines)
    # Few lines that hold most of what lies within say more than who calls them.
    inside = sum(number(hot.share.value) for hot in hot_lines)
    is_within = finding.rule in IDLE and inside >= INSIDE * number(line.share.value)
    return None if known or is_within or number(line.share.value) < MOST else line


def _round_trip(
    run: Run, finding: Finding, rows: pd.DataFrame, counted: str, hottest: HostLine
) -> HostLine | None:
    """Return the line that fetches results and gives them to the hottest one, if it does both.

    Libraries work on all of them at once, so that the round trip is to mend; what runs again and
    again for each call, as a loop of Python, is at fault itself.
    """
    asked = host_lines(stacks.calling_lines(rows), counted)[:1]
    runs = run.timed_lines.groupby(["file", "line"])["hits"].sum()
    if finding.rule not in ROUND_TRIPS or not asked:
        return None
    of_line, of_caller = (runs.get((line.file, line.line), 0) for line in (hottest, asked[0]))
    is_once = 0 < of_line <= of_caller or finding.rule == CPU_LIBRARIES
    fetched = {
        (at.file, at.line) for at in host_lines(host_rows(run, finding.stage, stacks.WAITING))
    }
    return asked[0] if is_once and (asked[0].file, asked[0].line) in fetched else None


def _over_results(run: Run, lines: Sequence[HostLine]) -> HostLine | None:
    """Return the line of the loop around the hottest one, if what it goes over is read back there:
    each pass waits, too, so that the loop itself is at fault.
    """
    first = lines[0]
    head = loop_over_results(run.timed_lines, first.file, first.function, first.line or 0)
    if head is None:
        return None
    body = [line for line in lines if line.function == first.function]
    inside = sum(line.samples for line in body if (line.line or 0) >= head[0])
    share = of_samples(inside, sum(line.samples for line in lines), first.share.refs)
    return replace(first, line=head[0], share=share, source=head[1])


def _hot(lines: Sequence[HostLine]) -> list[HostLine]:
    """Return the lines with most samples; those of one function that differ by less than samples
    tell apart in the order of the program, where the first begins what the others go on with.

    Lines that derive come last: what they launch, and wait for, is that of the lines before.
    """
    lines = [line for line in lines if number(line.share.value) >= LEAST]
    lines = sorted(lines, key=lambda line: derives(line.source))
    if not lines:
        return []
    function = (lines[0].file, lines[0].function)
    minimum = max(LEAST, lines[0].share.low or 0.0)
    alike = [
        line
        for line in lines
        if number(line.share.value) >= minimum and (line.file, line.function) == function
    ]
    alike.sort(key=lambda line: (derives(line.source), line.line or 0))
    return [*alike, *(line for line in lines if line not in alike)][:NAMED]


def _host_place(line: HostLine) -> Text:
    return Text(
        "{place} in {function} ({share} of them)",
        place=Verbatim(line.location),
        function=Verbatim(line.function),
        share=_alone(line.share),
    )


def _with_launch_lines(run: Run, finding: Finding) -> Finding:
    lines = callers(run, *telling(run, finding))
    hot_lines = _hot(lines)
    rows = run.launch_lines[run.launch_lines["kernel_id"].isin(finding.kernel_ids)]
    rows = rows.assign(idle_samples=0, activity="launching", nvtx_range="")
    if finding.rule == launch_rules.GROWING_STEPS.key:  # the loop is at fault, not what it runs
        hot_lines = _hot(host_lines(stacks.loop_lines(rows, run.launch_lines))) or hot_lines
    if finding.rule == fusion.ELEMENTWISE_CHAIN.key or finding.key == "math_attention":
        # What goes from kernel to kernel is to mend where it begins.
        entered = stacks.entered_again(rows, run.timed_lines)
        minimum = LEAST
        if entered is not rows:
            lines, minimum = host_lines(with_texts(run, entered)), LEAST_OF_CHAIN
        large = [line for line in lines if number(line.share.value) >= minimum]
        large.sort(key=lambda line: (derives(line.source), line.file, line.line or 0))
        hot_lines = _from_writer(run, large)[:NAMED]
    if not hot_lines:
        return finding
    places: list[Value] = [_host_place(line) for line in hot_lines]
    forward = _forward_place(run, finding, hot_lines[0])
    is_converted = finding.rule == copies.CASTS_AND_COPIES.key
    around = _converting_call(run, finding) if is_converted else None
    if finding.rule == launch_rules.ONE_BY_ONE.key:
        around = _head_of_items(run, lines, hot_lines[0])
    if around is not None:
        within = Text("{call}, within it in {places}", call=_host_place(around), places=places)
        places, hot_lines = [within], [around, *hot_lines]
    verdict = Text(
        "{verdict}{forward} The program launches that in {places}.{calls}",
        calls=calls_at(hot_lines[0].source),
        verdict=finding.verdict,
        places=places,
        forward=forward,
    )
    return replace(finding, verdict=verdict, evidence=_evidence(finding, hot_lines, SAMPLES))


def _head_of_items(run: Run, lines: Sequence[HostLine], first: HostLine) -> HostLine | None:
    """Return the head of the loop whose body launches most of what comes one by one, where no line
    of it does: all items at once is a change of the loop.
    """
    body = [x for x in lines if (x.file, x.function) == (first.file, first.function) and x.line]
    large = [x.line or 0 for x in body if number(x.share.value) >= LEAST]
    if number(first.share.value) >= MOST or len(large) < 2:
        return None
    head = loop_around(run.timed_lines, first.file, first.function, large)
    if head is None:
        return None
    inside = sum(x.samples for x in body if (x.line or 0) > head[0])
    share = of_samples(inside, sum(x.samples for x in lines), first.share.refs)
    known = number(share.value) >= MOST
    return (
        replace(first, line=head[0], source=head[1], samples=inside, share=share) if known else None
    )


def _forward_place(run: Run, finding: Finding, line: HostLine) -> Text | str:
    """Name the forward line whose gradient takes most of the time at a line that derives, where
    these kernels do, too, so that they are those of its operator; nothing where nobody knows.
    """
    if line.line is None or not derives(line.source):
        return ""
    at_line = run.launch_lines
    at_line = at_line[at_line["file"].eq(line.file) & at_line["line"].eq(line.line)]
    of_finding = at_line.loc[at_line["kernel_id"].isin(finding.kernel_ids), "samples"].sum()
    if of_finding <= MOST * at_line["samples"].sum():
        return ""
    found = differentiated(run, line.file, line.line)
    if found is None:
        return ""
    at, function = Verbatim(location(found[0], found[2])), Verbatim(found[1])
    return Text(" It is the gradient of {place} in {function}.", place=at, function=function)


def _from_writer(run: Run, lines: Sequence[HostLine]) -> list[HostLine]:
    """Return the lines of a chain from that on which writes what only the chain reads, where the
    text of their function tells it: what lines before write is needed elsewhere, too.
    """
    if not lines:
        return []
    file, function = lines[0].file, lines[0].function
    at = [line.line or 0 for line in lines if (line.file, line.function) == (file, function)]
    writer = written_to_be_read(run.timed_lines, file, function, at)
    return sorted(lines, key=lambda line: line.file == file and (line.line or 0) < writer)


def _converting_call(run: Run, finding: Finding) -> HostLine | None:
    """Return the call round lines of layers that convert what is given to them, where no line does
    most of that: the weights, or the images, of that call are to be of another type or layout.

    Images are given to the outermost call in the loop, weights are those of the innermost one.
    """
    first = records(run.kernels[run.kernels["kernel_id"] == finding.kernel_ids[0]])[0]
    kind = copies.kind_of(first)
    rows = launching_rows(run).assign(idle_samples=0, activity="launching", nvtx_range="")
    rows = rows[rows["kernel_id"].isin(finding.kernel_ids)]
    inner = rows[rows["depth"].eq(0)]
    forward = inner[inner["function"].eq(stacks.FORWARD)]
    hits = run.timed_lines.groupby(["file", "line"])["hits"].sum()
    often = [hits.get(at, 0) >= AGAIN for at in zip(rows["file"], rows["line"], strict=True)]
    around = rows[rows["launch"].isin(forward["launch"]) & pd.Series(often, rows.index, dtype=bool)]
    total = forward["samples"].sum()
    depth = around.groupby(["file", "line"])["depth"].mean().to_dict()
    found = [line for line in host_lines(around) if line.samples >= MAIN * total]
    found.sort(key=lambda line: depth[line.file, line.line])
    if kind.pattern not in (copies.LAYOUTS.pattern, copies.CASTS) or not found:
        return None
    chosen = found[-1 if kind is copies.LAYOUTS else 0]
    share = of_samples(chosen.samples, int(inner["samples"].sum()), chosen.share.refs)
    return replace(chosen, share=share) if depth[found[0].file, found[0].line] else None


def _with_fused_lines(run: Run, finding: Finding) -> Finding:
    lines = fused_lines(run, *finding.kernel_ids)
    if not lines:
        return finding
    verdict = Text(
        "{verdict} torch.compile fused it from {n} line of the program: {places}.",
        "{verdict} torch.compile fused it from {n} lines of the program: {places}.",
        verdict=finding.verdict,
        n=len(lines),
        places=[
            Text("{place} in {function}", place=Verbatim(line.location),
                 function=Verbatim(line.function))
            for line in lines[:FUSED]
        ],
    )  # fmt: skip
    return replace(finding, verdict=verdict)


def _with_kernel_lines(run: Run, finding: Finding) -> Finding:
    at = AT.get(finding.rule, EXECUTED if _is_crowded(run, finding.kernel_ids[0]) else None)
    if at is not None and (found := _with_lines_at(run, finding, at)) is not finding:
        return found
    lines = program_lines(run, finding.kernel_ids[0])
    chosen = [line.location for line in lines if kernel_code.chooses(line.source)]
    if finding.rule == "both_sides" and chosen:
        places = [Verbatim(at) for at in sorted(chosen)[:NAMED]]
        verdict = Text("{verdict} It chooses at {places}.", verdict=finding.verdict, places=places)
        return replace(finding, verdict=verdict)
    hot_lines = [line for line in lines if number(line.share.value) >= LEAST][:NAMED]
    if not hot_lines:
        return finding
    inlined = any(line.inlined for line in hot_lines)
    verdict = Text(
        "{verdict} Its warps stand at {places}{inlined}.{calls}{mix}",
        calls=calls_at(hot_lines[0].source),
        mix=instruction_mix(run, finding.kernel_ids[0], finding.bound),
        verdict=finding.verdict,
        places=[_kernel_place(line) for line in hot_lines],
        inlined=Text(", in functions of CUDA's headers, too, that are inlined there")
        if inlined
        else "",
    )
    return replace(finding, verdict=verdict, evidence=_evidence(finding, hot_lines, STALLS))


def _is_crowded(run: Run, kernel_id: str) -> bool:
    """Tell whether warps mostly stand where others are ahead of them at a busy pipe.

    Those that began last wait most, at their first instruction: what runs is what fills the pipe.
    """
    rows = run.source_instructions
    rows = rows[rows["kernel_id"] == kernel_id]
    crowded = rows["samples"].where(rows["stall"].isin(CROWDED))
    return bool(number(crowded.sum()) >= MOST * number(rows["samples"].sum()) > 0)


def _with_lines_at(run: Run, finding: Finding, at: At) -> Finding:
    """Return a finding with the lines of the instructions that it is about.

    Warps stand where a result is needed, which may be another line than the one that asks for it.
    """
    ways = {"of_values": at.of_values, "beyond_l1": at.beyond_l1}
    lines = lines_of(run, finding.kernel_ids[0], at.counted, at.sass, **ways)
    hot_lines = [line for line in lines if number(line.share.value) >= LEAST][:NAMED]
    if not hot_lines:
        return finding
    places: list[Value] = [
        Text(
            "{place} ({share} of {what})",
            place=Verbatim(line.location),
            share=line.share,
            what=at.what,
        )
        for line in hot_lines
    ]
    is_full = at is EXECUTED or finding.rule.endswith("_saturated")
    verdict = Text(
        "{verdict} That is at {places}.{calls}{mix}",
        verdict=finding.verdict,
        places=places,
        calls=calls_at(hot_lines[0].source) if is_full else "",
        mix=instruction_mix(run, hot_lines[0].kernel_id, finding.bound) if is_full else "",
    )
    if finding.rule == memory.BANK_CONFLICTS.key:
        finding = _of_atomics(run, finding, lines)
    return replace(finding, verdict=verdict, evidence=_evidence(finding, hot_lines, COUNTED))


def _of_atomics(run: Run, finding: Finding, lines: Sequence[KernelLine]) -> Finding:
    """Return a finding about bank conflicts as one about atomics, where most of them are theirs."""
    conflicts = sum(line.samples for line in lines)
    atomics = lines_of(run, finding.kernel_ids[0], "bank_conflicts", SHARED_ATOMICS)
    if sum(line.samples for line in atomics) < MOST * conflicts:
        return finding
    kernels = run.kernels.set_index("kernel_id")["short_name"]
    kernel = Verbatim(str(kernels.get(finding.kernel_ids[0], "")))
    title = Text(
        "{kernel}: its atomic operations wait for each other in shared memory", kernel=kernel
    )
    return replace(finding, title=title, headline=title, action=SHARED_ATOMIC_ACTION)


def _kernel_place(line: KernelLine) -> Text:
    values: dict[str, Value] = {"place": Verbatim(line.location), "share": _alone(line.share)}
    if not line.stall:
        return Text("{place} ({share})", **values)
    return Text("{place} ({share}, most for {stall})", stall=Verbatim(line.stall), **values)


def _alone(share: Number) -> Number:
    """The share without its interval, which stands beside it."""
    return replace(share, low=None, high=None)


def _evidence(
    finding: Finding, lines: Sequence[HostLine | KernelLine], source: Text
) -> tuple[Evidence, ...]:
    shares = (Evidence(Text("at {place}", place=Verbatim(line.location)), line.share, source=source)
              for line in lines)  # fmt: skip
    return (*finding.evidence, *shares)
