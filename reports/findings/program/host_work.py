"""Idle time of the GPU while the host is in work of a library that has a remedy of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pandas as pd

from nsight_prof.parsers.cells import number
from nsight_prof.parsers.nsys.rows.python_samples import LIBRARY
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.evidence import threshold
from nsight_prof.reports.analysis.gpu_times import HOST
from nsight_prof.reports.analysis.idle import Stage, idle_stages
from nsight_prof.reports.analysis.lines import host_rows, location
from nsight_prof.reports.analysis.stages import program_time
from nsight_prof.reports.analysis.timeline import idle_at_start, timeline
from nsight_prof.reports.findings.gain import of_host, of_wall_time
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program import idle_rules
from nsight_prof.reports.findings.program.idle_rules import LOADED
from nsight_prof.reports.findings.program.rule import (
    Rule,
    Threshold,
    column,
    measured,
    message,
    of_row,
    rows_of,
    wall_evidence,
)
from nsight_prof.reports.page import Evidence, Number, Text, Verbatim

STACKS = "a trace with samples of Python stacks"
THRESHOLDS = {
    "share": idle_rules.STAGE_SHARE,
    "samples": Threshold(
        10, Text("prof: fewer samples tell a share to no better than a factor of two"), "count"
    ),
    "explained": Threshold(
        0.8, Text("prof: part of the gaps that the host makes above which no other cause is told")
    ),
}
GAIN = (
    "the samples in it x the time between two samples, at most the idle time: a loop in which the "
    "GPU waits for the host gets shorter by all that the host does less."
)
COMPILATION = Rule(
    key="compilation",
    question="Does the GPU wait while code is compiled?",
    requires=STACKS,
    thresholds={
        **THRESHOLDS,
        "once": Threshold(
            0.5, Text("prof: part of it in the longest gap above which it comes only once")
        ),
    },
    gain=f"{GAIN} None where code is compiled only once.",
    action=Text(
        "Compile once, before the loop: mark sizes that change as dynamic "
        "(torch._dynamo.mark_dynamic, torch.compile with dynamic=True, no tl.constexpr for them in "
        "Triton), or round them up to a few. TORCH_LOGS=recompiles says what changed."
    ),
    advice=Text("compile once for all sizes, before the loop"),
    disproof=Text("The second time the same steps run, with the same sizes, nothing is compiled."),
)
TUNING = Rule(
    key="kernel_tuning",
    question="Does the loop wait while kernels are tuned?",
    requires=STACKS,
    thresholds=THRESHOLDS,
    gain="the samples in it x the time between two samples, at most the wall time: the GPU works "
    "for it, too, on trials whose results nobody reads. None where it comes once.",
    action=Text(
        "Tune once, before the loop: sizes that change are no key of triton.autotune (or rounded "
        "up to a few), its results are kept (cache_results=True), and a fixed configuration does "
        "where few matter. Each new key compiles every configuration and times it."
    ),
    advice=Text("choose the variant of a kernel once, not again for each new size"),
    disproof=Text("The second time the same steps run, with the same sizes, nothing is tuned."),
)
OPTIMIZER_LOOP = Rule(
    key="optimizer_loop",
    question="Does the optimizer update its tensors one by one?",
    requires=STACKS,
    thresholds=THRESHOLDS,
    gain=GAIN,
    action=Text(
        "Let the optimizer update all tensors in a few kernels: fused=True, or foreach=True, when "
        "it is made, and few groups of parameters: each group is updated by calls of its own, so "
        "that what has the same rate and decay belongs in one."
    ),
    advice=Text("let the optimizer update all parameters at once (fused=True)"),
    disproof=Text("With fused=True the steps take as long."),
)
DATA_LOADING = replace(
    OPTIMIZER_LOOP,
    key="data_loading",
    question="Does the GPU wait for the data loader?",
    action=Text(
        "Load ahead in other processes (DataLoader with num_workers, prefetch_factor and "
        "pin_memory=True), with more of them where there are some already; decode and augment on "
        "the GPU, or store the data as the model needs it."
    ),
    advice=Text("let more processes of the CPU load the data ahead"),
    disproof=Text("With one batch that is used again and again the steps take as long."),
)
CONVOLUTION_SEARCH = Rule(
    key="convolution_search",
    question="Does the GPU wait while cuDNN tries the algorithms of a convolution?",
    requires=STACKS,
    thresholds={
        **THRESHOLDS,
        "timed": Threshold(
            20,
            Text("prof: waits for an event from which on algorithms are timed, not a step"),
            "count",
        ),
    },
    gain=GAIN,
    action=Text(
        "Turn the search off (torch.backends.cudnn.benchmark = False) where sizes change, or use "
        "few sizes (pad images, group them by size): each new size is searched again, which pays "
        "only where it comes often. Warm up before the part that is measured."
    ),
    advice=Text("do not search for the fastest algorithm again for each new size of image"),
    disproof=Text("With torch.backends.cudnn.benchmark = False the steps take as long."),
)


RECOMPUTATION = replace(
    OPTIMIZER_LOOP,
    key="recomputation",
    question="Does the GPU wait while forward passes are computed again?",
    action=Text(
        "Checkpoint fewer layers (torch.utils.checkpoint computes the forward pass again in the "
        "backward pass, to save memory): none where memory allows it, or only layers whose "
        "activations are large and cheap to compute."
    ),
    advice=Text("keep more results of the forward pass, so that they are not computed twice"),
    disproof=Text("Without checkpointing the steps take as long, or memory does not suffice."),
)


INTERPRETER_LOCK = Rule(
    key="interpreter_lock",
    question="Does another thread of Python hold the interpreter's lock?",
    requires=STACKS,
    thresholds={
        "present": Threshold(
            0.5, Text("prof: samples of the other thread for each of a thread that calls CUDA")
        ),
        "one_line": Threshold(
            0.9, Text("prof: part of its samples on one line above which a thread waits there")
        ),
    },
    gain="as of `host_bound`, which it explains.",
    action=Text(
        "Let the other thread wait instead of asking again and again (a blocking get(), an event, "
        "time.sleep), or move its work to another process (multiprocessing): only one thread of "
        "Python runs at a time (the interpreter's lock, GIL), and the one that launches gets its "
        "turn late."
    ),
    advice=Text("let other threads of the program wait, or work in a process of their own"),
    disproof=Text("Without the other thread the steps take as long."),
)


class HostWork(NamedTuple):
    """A rule about a work of table `host_lines`, and the words of a finding.

    `title` takes `part` and `where`, `problem` takes `lost`, `wall` and `where`. `counted`: the
    column of samples and of time, those without GPU work unless the GPU works for it, too.
    """

    rule: Rule
    title: Callable[..., Text]
    problem: Callable[..., Text]
    counted: tuple[str, str] = ("idle_samples", "idle_ns")

    @property
    def waits(self) -> bool:
        """Whether only time in which the GPU waits for it counts."""
        return self.counted[1] == "idle_ns"


NOTING_STACKS = "noting stacks"
CAPTURING = "capturing graphs"
OF_WORK = {
    **{
        name: HostWork(
            of_row(Rule, row["rule"], requires=STACKS, thresholds=THRESHOLDS, gain=GAIN),
            partial(Text, "The GPU waits while {what}, for {part} of the time {where}", what=what),
            partial(Text, "The GPU is idle for {lost} of {wall} {where} while {what}.", what=what),
        )
        for name, row in rows_of("nsight_prof.reports.findings.program", "host_work.yaml").items()
        for what in [message(row["what"])]
    },
    "tuning": HostWork(
        TUNING,
        partial(Text, "Kernels are tuned for {part} of the time {where}"),
        partial(
            Text,
            "For {lost} of {wall} {where} the host tunes kernels: it compiles their configurations "
            "and runs each again and again to time it (autotuning).",
        ),
        ("samples", "time_ns"),
    ),
    "compiling": HostWork(
        COMPILATION,
        partial(Text, "The GPU waits while code is compiled for {part} of the time {where}"),
        partial(Text, "The GPU is idle for {lost} of {wall} {where} while the host compiles code."),
    ),
    "loading data": HostWork(
        DATA_LOADING,
        partial(Text, "The GPU waits for the data loader for {part} of the time {where}"),
        partial(
            Text,
            "The GPU is idle for {lost} of {wall} {where} while the host is in the data loader.",
        ),
    ),
    "convolving": HostWork(
        CONVOLUTION_SEARCH,
        partial(Text, "The GPU waits while cuDNN tries algorithms for {part} of the time {where}"),
        partial(
            Text,
            "The GPU is idle for {lost} of {wall} {where} while the host is in convolutions and "
            "waits for events: cuDNN tries and times its algorithms (cudnn.benchmark), as it does "
            "at the first use of a size.",
        ),
    ),
    "updating one by one": HostWork(
        OPTIMIZER_LOOP,
        partial(
            Text,
            "The GPU waits for an optimizer that updates tensor by tensor for {part} of the time "
            "{where}",
        ),
        partial(
            Text,
            "The GPU is idle for {lost} of {wall} {where} while the optimizer updates its tensors "
            "one by one, with some small kernels for each.",
        ),
    ),
    "computing again": HostWork(
        RECOMPUTATION,
        partial(Text, "Forward passes are computed again for {part} of the time {where}"),
        partial(
            Text,
            "For {lost} of {wall} {where} the host runs the forward pass of checkpointed layers a "
            "second time.",
        ),
        ("samples", "time_ns"),
    ),
    "emptying the cache": HostWork(
        idle_rules.ALLOCATION_STALLS,
        partial(Text, "The GPU waits for allocations for {part} of the time {where}"),
        partial(
            Text,
            "The GPU is idle for {lost} of {wall} {where} while the host allocates its memory and "
            "gives it back (empty_cache).",
        ),
    ),
}
"""What to say of each work in table `host_lines`."""
RULES = (
    *(work.rule for work in OF_WORK.values() if work.rule is not idle_rules.ALLOCATION_STALLS),
    INTERPRETER_LOCK,
)
FEWEST_LOADED, HOST_LOADS = 4, 0.1
"""Modules, and part of the time that the host spends at lines that load them, worth a finding."""
MOST_AT_ONE = 0.5
"""Part of the idle samples of a thread in libraries that tells that it is held up: at least so much
there, and less at each of its places."""
ALL_AT_ONCE = r"/torch/optim/\w+\.py:\d+ _(?:fused|multi_tensor)_"
"""Functions of optimizers that update all tensors of a group at once."""
MULTI_TENSOR = r"multi_tensor_apply_kernel"
OFTEN = 0.1
"""Part of all launches above which such kernels, each for up to some hundreds of tensors, have few
of them: groups of parameters with one tensor each."""
GROUPS = 10
"""Launches of each such kernel in a row of them from which on they are of groups: large tensors of
one group take a few."""
OF_STACKS = Text("stacks of Python, sampled by nsys")
OF_COPIES = Text("time of copies to the host x the part of their samples in the same functions")


def with_host_work(run: Run, waits: list[Finding]) -> list[Finding]:
    """Return findings about idle time with those about the work that the host is in meanwhile.

    What the host does otherwise is left out where this work is nearly all that it does.
    """
    found = list(waits)
    for stage in idle_stages(run) if not run.host_lines.empty else ():
        here = {f.rule for f in found if f.stage == stage.name}
        lines = host_rows(run, stage.name)
        for name, work in OF_WORK.items():
            rows = _rows(run, lines, name)
            if rows.empty:  # as of nearly all works
                continue
            bound = stage.idle if work.waits else stage.wall
            time = rows[work.counted[1]].sum() * _unsampled(lines, work.counted[1], bound)
            lost = Number(
                min(time, number(bound.value)), "ns", column("host_lines", work.counted[1])
            )
            timed = CONVOLUTION_SEARCH.limit("timed")  # cuDNN's search waits for its events
            if work.rule is CONVOLUTION_SEARCH and not _often(run, "cudaEventSynchronize", timed):
                continue
            if work.rule.key in here or not _matters(run, stage, rows[work.counted[0]], lost):
                continue
            found = [f for f in found if not _explains(f, stage, lost)]
            found.append(_finding(run, stage, work, rows, lost))
    return [_with_threads(run, finding) for finding in found]


def loads_behind_queue(run: Run) -> list[Finding]:
    """Return a finding where lines load code that the GPU need not wait for, thanks to its queue.

    Code that is compiled as the program runs (NVRTC) is loaded right after that, at the same line.
    """
    calls = run.api_calls[run.api_calls["name"].fillna("").str.fullmatch(LOADED)]
    often = Number(calls["calls"].sum(), "count", column("api_calls", "calls"))
    rows, wall = run.host_lines, program_time(run)[0]
    loading = rows.loc[rows["call"].fillna("").str.fullmatch(LOADED), ["file", "line"]]
    rows = rows.merge(loading.drop_duplicates(), on=["file", "line"])
    rows = rows[rows["activity"].ne("launching")]
    time = Number(rows["time_ns"].sum(), "ns", column("host_lines", "time_ns"))
    if number(often.value) < FEWEST_LOADED or rows["samples"].sum() < THRESHOLDS["samples"].value:
        return []
    if not number(time.share_of(wall).value) >= HOST_LOADS:
        return []
    of_line = rows.groupby(["file", "line"])["time_ns"].sum().sort_values(ascending=False)
    places = [Verbatim(location(str(file), int(line))) for file, line in of_line.index[:2]]
    return [
        COMPILATION.finding(
            key="idle",
            title=Text(
                "Code is compiled or loaded {n} times, for {part} of the time of the host",
                n=round(number(often.value)),
                part=time.share_of(wall),
            ),
            verdict=Text(
                "The host compiles code for the GPU or loads it {n} times (modules, as of NVRTC "
                "and of new sizes or constants) at {places}, which takes {time} of {wall}. Here "
                "the GPU had enough work in its queue meanwhile: it waits for that in longer "
                "compilations, or where the queue is short.",
                n=round(number(often.value)),
                places=places,
                time=time,
                wall=wall,
            ),
            evidence=(
                Evidence(
                    Text("loaded modules"),
                    often,
                    Text("{limit} or more", limit=Number(FEWEST_LOADED, "count")),
                    Text("prof"),
                ),
                measured(Text("time of the host at these lines"), time, OF_STACKS),
                wall_evidence(wall),
            ),
            action=Text(
                "Compile once, before the loop: give numbers that change to the kernel as "
                "arguments instead of writing them into its source (constants, constexpr), round "
                "sizes up to a few, and keep compiled code in a cache on disk."
            ),
            confidence="low",
            gain_of="wall time",
        )
    ]


def busy_threads(run: Run) -> pd.DataFrame:
    """Return rows of table `thread_lines` of threads that run: not those that wait at one line.

    A loop gives the lock back at its last line, where all its samples are: such a thread runs where
    the one that calls CUDA stands in functions of libraries that do hardly anything but launch.
    """
    frame, limits = run.thread_lines, INTERPRETER_LOCK
    often = frame.groupby("thread")["samples"].sum()
    on_one_line = frame.groupby("thread")["samples"].max() / often
    minimum = limits.limit("present") * run.host_lines["samples"].sum()
    running = often[often >= max(minimum, 1)]
    if not _idles_in_libraries(run):
        running = running[on_one_line[running.index] <= limits.limit("one_line")]
    waits = frame["inner"].fillna("") != ""  # in a lock, a queue or a socket
    in_library = frame["file"].fillna("").str.contains(LIBRARY)  # a thread of a library alone
    waits |= in_library & frame["thread"].map(on_one_line).gt(limits.limit("one_line"))
    waiting = frame["samples"].where(waits, 0).groupby(frame["thread"]).sum()
    running = running[waiting[running.index] <= limits.limit("one_line") * running]
    return frame[frame["thread"].isin(running.index)]


def _idles_in_libraries(run: Run) -> bool:
    """Tell whether most of the idle time is spent at many places in libraries, none of them most.

    Work of the program's own is at one place; a thread that waits for its turn is anywhere.
    """
    rows = run.host_lines[run.host_lines["activity"] == "program"]
    inner = rows["inner"].fillna("")
    samples = rows["idle_samples"].groupby(inner).sum()
    in_libraries = samples[samples.index != ""]
    half = MOST_AT_ONE * samples.sum()
    return bool(len(in_libraries)) and half <= in_libraries.sum() and in_libraries.max() < half


def _with_threads(run: Run, finding: Finding) -> Finding:
    """Return a finding about a host that does something else, as one about the threads that run."""
    rows = busy_threads(run) if finding.rule == idle_rules.HOST_BOUND.key else pd.DataFrame()
    if rows.empty:
        return finding
    rule = INTERPRETER_LOCK
    samples = Number(rows["samples"].sum(), "count", column("thread_lines", "samples"))
    title = Text(
        "The GPU waits while another Python thread holds the interpreter's lock ({finding})",
        finding=finding.title,
    )
    return replace(
        finding,
        rule=rule.key,
        title=title,
        headline=title,
        verdict=Text(
            "{verdict} Meanwhile another thread of Python runs, which makes no CUDA call: only one "
            "of them has the interpreter's lock (GIL) at a time.",
            verdict=finding.verdict,
        ),
        action=rule.action,
        advice=rule.advice,
        disproof=rule.disproof,
        confidence="medium",
        evidence=(
            *finding.evidence,
            measured(Text("samples of Python threads that make no CUDA call"), samples, OF_STACKS),
        ),
    )


def _often(run: Run, call: str, limit: float) -> bool:
    """Tell whether the program makes a call of CUDA so often."""
    calls = run.api_calls[run.api_calls["name"].fillna("").str.startswith(call)]
    return bool(calls["calls"].sum() >= limit)


def is_in_work(run: Run, rows: pd.DataFrame, name: str) -> pd.Series[bool]:
    """Tell which rows of table `host_lines` are in a work, by its key in OF_WORK."""
    chosen = rows["work"] == name
    if OF_WORK[name].rule is OPTIMIZER_LOOP and _few_at_once(run):
        chosen |= rows["inner"].fillna("").str.contains(ALL_AT_ONCE)
    if name == NOTING_STACKS and rows.loc[chosen, "samples"].sum() >= THRESHOLDS["samples"].value:
        chosen |= rows["inner"].fillna("").str.endswith(" _engine_run_backward")  # checks wait
    return chosen


def _rows(run: Run, rows: pd.DataFrame, name: str) -> pd.DataFrame:
    chosen = is_in_work(run, rows, name)
    graphs = idle_rules.LAUNCH_BOUND.limit("waits") / 2
    if name == CAPTURING and _often(run, "cudaGraphInstantiate", graphs):  # a capture runs nothing
        chosen |= (rows["work"] == "") & (rows["activity"] != "waiting")
    if OF_WORK[name].rule is idle_rules.ALLOCATION_STALLS:  # what was given back is allocated again
        chosen |= rows["activity"] == "allocating"
    return rows[chosen] if chosen.any() else rows[:0]


def _unsampled(lines: pd.DataFrame, counted: str, time: Number) -> float:
    """Return how many times as long all samples of a stage stand for as the time between two: a
    library that keeps the interpreter's lock lets nobody take any. 1 where most of it has none.
    """
    times = number(time.value) / max(1.0, lines[counted].sum())
    return float(times) if 1 < times <= 1 / MOST_AT_ONE else 1.0


def _few_at_once(run: Run) -> bool:
    """Tell whether an optimizer launches kernels for many tensors so often that each has few.

    Of one group each kernel comes once or twice in a row of them, of many groups for each of these.
    """
    kernels, frame = run.kernels, timeline(run)
    of_many = kernels[kernels["name"].fillna("").str.contains(MULTI_TENSOR)]
    if frame is None or not of_many["calls"].sum() >= OFTEN * kernels["calls"].sum():
        return False
    is_many = frame.sort_values("start_ns")["kernel_id"].isin(of_many["kernel_id"])
    rows = (is_many & ~is_many.shift(fill_value=False)).sum()
    return bool(is_many.sum() >= GROUPS * rows * of_many["name"].nunique())


def _matters(run: Run, stage: Stage, samples: pd.Series[int], lost: Number) -> bool:
    limits = THRESHOLDS
    return bool(
        samples.sum() >= limits["samples"].value
        and number(lost.share_of(stage.wall).value) >= _share_limit(stage).value
        and number(lost.share_of(program_time(run)[0]).value) >= threshold("small_gain")
    )


def _share_limit(stage: Stage) -> Threshold:
    # A program that starts up once may idle long: a whole capture is held to the higher share.
    return (idle_rules.IDLE.thresholds if stage.is_capture else THRESHOLDS)["share"]


def _explains(finding: Finding, stage: Stage, lost: Number) -> bool:
    """Tell whether a finding about what else the host does is about this time alone."""
    gaps = number(stage.of_cause(HOST).idle.value)
    enough = number(lost.value) >= THRESHOLDS["explained"].value * gaps
    return finding.rule == idle_rules.HOST_BOUND.key and finding.stage == stage.name and enough


def _finding(run: Run, stage: Stage, work: HostWork, rows: pd.DataFrame, lost: Number) -> Finding:
    rule, where, samples = work.rule, stage.where, work.counted[0]
    wall = program_time(run)[0]
    times = _unsampled(host_rows(run, stage.name), "time_ns", stage.wall)
    time = Number(times * rows["time_ns"].sum(), "ns", column("host_lines", "time_ns"))
    longest = stage.of_cause(HOST).longest.value or 0.0
    # What is compiled again is no matter of the start, wherever it comes.
    is_again = rule is COMPILATION and len(run.recompilations) > 0
    lasting = number(stage.idle.value) - (0.0 if is_again else _at_start(run, stage))
    saved_ns = min(number(time.value), number(wall.value))
    if work.waits:
        # Workers of a loader start, and load their first batches, where the loop begins.
        again = number(lost.value) - _at_start(run, stage) if rule is DATA_LOADING else lasting
        saved_ns = of_host(run, min(saved_ns, number(stage.idle.value), lasting, again))
    copied = _copied(run, stage, rows) if rule.key == "cpu_libraries" else Number(0.0, "ns")
    saved = Number(min(saved_ns + number(copied.value), number(wall.value)), "ns", time.refs)
    gain = of_wall_time(saved, wall)
    comes_once = longest >= COMPILATION.limit("once") * number(lost.value)
    if comes_once and rule in (COMPILATION, idle_rules.ALLOCATION_STALLS):
        saves, gain = ONCE, {"gain_of": "wall time"}
    elif lasting < AT_START * rows["idle_ns"].sum():
        saves, gain = START_UP, {"gain_of": "wall time"}
    else:
        saves = _gain(saved, wall, copied)
    limit = THRESHOLDS["samples"]
    return rule.finding(
        key="idle",
        stage=stage.name,
        title=work.title(part=lost.share_of(stage.wall), where=where),
        verdict=Text(
            "{problem} {gain}",
            problem=work.problem(lost=lost, wall=stage.wall, where=where),
            gain=saves,
        ),
        evidence=(
            _share_limit(stage).met(
                Text("idle share") if work.waits else Text("share of the time"),
                lost.share_of(stage.wall),
            ),
            measured(Text("idle time"), lost, OF_STACKS) if work.waits else None,
            measured(Text("time of the host in it"), time, OF_STACKS),
            measured(Text("copies of what it works on"), copied, OF_COPIES)
            if copied.value
            else None,
            limit.met(
                Text("samples of stacks in it without GPU work")
                if work.waits
                else Text("samples of stacks in it"),
                Number(rows[samples].sum(), "count", column("host_lines", samples)),
            ),
            wall_evidence(wall),
            measured(Text("idle time of all causes"), stage.idle),
        ),
        confidence="medium",
        **gain,
    )


def _copied(run: Run, stage: Stage, rows: pd.DataFrame) -> Number:
    """Return the time of copies to the host by the functions that do this work: it is on results,
    and on the GPU it needs none of these, which are no idle time.
    """
    operations = run.memory_operations
    copying = host_rows(run, stage.name, ("copying",))
    at = set(zip(rows["file"], rows["function"], strict=True))
    there = [lines in at for lines in zip(copying["file"], copying["function"], strict=True)]
    share = copying.loc[there, "samples"].sum() / max(1, copying["samples"].sum())
    to_host = operations.loc[operations["kind"].eq("device to host"), "total_ns"].sum() / stage.gpus
    return Number(share * to_host, "ns", column("memory_operations", "total_ns"))


def _at_start(run: Run, stage: Stage) -> float:
    """Return the idle time in ns of a whole capture that comes once, at its start."""
    return idle_at_start(run) if stage.is_capture else 0.0


AT_START = 0.5
"""Part of a work that must be after the start of a capture, else it is one of the start."""
ONCE = Text("Most of it is one gap: it comes once, and costs a long run nothing.")
START_UP = Text(
    "Most of it comes before all kernels that repeat have run: once, which costs a long run "
    "nothing."
)


def _gain(saved: Number, wall: Number, copied: Number) -> Text:
    return Text(
        "Without it at most {gain} of the wall time under nsys is saved ({saved}{copied}); it is "
        "part of what other findings about idle time tell.",
        gain=saved.share_of(wall),
        saved=saved,
        copied=Text(", {copied} of it copies of what it works on", copied=copied)
        if copied.value
        else "",
    )
