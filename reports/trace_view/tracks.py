"""Rows of a run's timeline: stages, steps, streams and idle time of each GPU, threads of the host.

They are read from the tables of the run (launches, kernels, engine_steps) and, for copies, ranges
and CUDA calls, from its trace. All times are ns from the start of the capture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import Row as CellRow
from nsight_prof.parsers.cells import known, number, records, text
from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.nsys.bins import Array, Segments, reduced
from nsight_prof.parsers.nsys.events import Events, HostEvents, read_events
from nsight_prof.parsers.nsys.host_ranges import busiest
from nsight_prof.parsers.nsys.rows.calls import ApiCalls, call_key
from nsight_prof.parsers.nsys.rows.memory_events import GRAPH, MemoryEvents
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.gpu_times import gpu_of, gpu_of_launches, queues
from nsight_prof.reports.export.lanes import disjoint
from nsight_prof.reports.page.figure_models import COPIES, GRAPHS
from nsight_prof.reports.page.values import Text, Word
from nsight_prof.reports.plots.palette import COLOURS, HOST_COPY, SKY, WHOLE_GRAPH, family
from nsight_prof.reports.trace_view.models import (
    CALLS,
    IDLE,
    KERNELS,
    RANGES,
    STAGES,
    STEPS,
    Gaps,
    Item,
    Items,
    Kernels,
    Label,
    Row,
    Work,
)

MOST_LAUNCHES, MOST_OTHERS = 1_000_000, 60_000
"""Segments of all streams together, and of each other row: the page stays below 20 MB."""
MOST_HOST_LAUNCHES = 2_000_000
"""Launches up to which calls and ranges of the host are read, which takes as long as the rest."""
MOST_STREAMS, MOST_LANES = 12, 4
_WAITS = ("ynchronize", "cuMemcpy", "cudaMemcpy")
QUEUED = Text("queued: the host had issued the next work")
LATE = Text("the next call came late")


def read_trace(run: Run) -> tuple[Events | None, Label]:
    """Return copies, calls and ranges of the run's trace; None and why where it has none."""
    path = run.directory.artifact("trace", "trace.sqlite")
    if path is None:
        return None, Text("the run has no trace.sqlite")
    if number(run.kernels["calls"].sum()) > MOST_HOST_LAUNCHES:
        return None, Text("the trace has over {n} launches", n=MOST_HOST_LAUNCHES)
    try:
        return read_events(path, with_ranges=False), ""
    except ProfError as error:
        return None, error.message


def copies_and_graphs(run: Run, events: Events | None) -> dict[int, dict[str, tuple[Array, Array]]]:
    """Return starts and ends of copies with memsets, and of CUDA graphs, of each GPU."""
    if events is None or not len(events.memory.start):
        return {}
    memory, ends = events.memory, events.memory.start + events.memory.duration
    listed = pd.DataFrame(memory.queues, columns=["device", "context", "stream", "pid"])
    is_graph = np.array([what == GRAPH for what, _ in memory.kinds])[memory.kind]
    gpu = gpu_of(run, listed).to_numpy()[memory.queue]
    return {
        int(device): {
            name: (memory.start[mask & (gpu == device)], ends[mask & (gpu == device)])
            for name, mask in ((COPIES, ~is_graph), (GRAPHS, is_graph))
        }
        for device in np.unique(gpu)
    }


def read_work(run: Run, events: Events | None) -> Work | None:
    """Return launches and copies of the run; None where it has no single launches."""
    frame = run.launch_times
    if frame.empty:
        return None
    memory = None if events is None or not len(events.memory.start) else events.memory
    pid, correlation = (_integers(frame[name]) for name in ("pid", "correlation"))
    queue, queues_ = _queues(run)
    coded = [frame[name].cat for name in ("kernel_id", "stage", "nvtx_path")]
    kernel, stage, where = (column.codes.to_numpy(np.int64) for column in coded)
    kernels, stages, paths = ([*map(str, column.categories)] for column in coded)
    start, duration = _integers(frame["start_ns"]), _integers(frame["duration_ns"])
    work = Work(
        start, duration, kernel, stage, where, queue, call_key(pid, correlation),
        queues_, stages, paths, kernels, len(frame),
    )  # fmt: skip
    return work if memory is None else _with_memory(run, work, memory)


def _queues(run: Run) -> tuple[Array, list[tuple[int, int, int, int]]]:
    codes, first = queues(run)
    keys = run.launch_times[["pid", "context", "stream"]].iloc[first].fillna(-1).astype(np.int64)
    keys.insert(0, "gpu", gpu_of_launches(run).iloc[first])
    found = list(keys.itertuples(index=False, name=None))
    listed = sorted(set(found))
    return np.array([listed.index(key) for key in found])[codes], listed


def _with_memory(run: Run, work: Work, memory: MemoryEvents) -> Work:
    """Return the work with the copies and memsets of the trace after the launches."""
    listed = pd.DataFrame(memory.queues, columns=["device", "context", "stream", "pid"])
    listed["gpu"] = gpu_of(run, listed)
    keys = [
        (int(gpu), pid, context, stream)
        for gpu, (_, context, stream, pid) in zip(listed["gpu"], memory.queues, strict=True)
    ]
    queues = dict.fromkeys([*work.queues, *keys])
    codes = {key: code for code, key in enumerate(queues)}
    queue_of_each = np.array([codes[key] for key in keys], np.int64)[memory.queue]
    nothing = np.full(len(queue_of_each), -1)

    def both(old: Array, new: Array) -> Array:
        return np.concatenate([old, new]).astype(np.int64)

    return replace(
        work,
        start=both(work.start, memory.start),
        duration=both(work.duration, memory.duration),
        kernel=both(work.kernel, len(work.kernels) + memory.kind),
        stage=both(work.stage, nothing),
        path=both(work.path, nothing),
        queue=both(work.queue, queue_of_each),
        key=both(work.key, memory.call),
        queues=list(queues),
        memory=[name for _, name in memory.kinds],
    )


def _integers(column: pd.Series) -> Array:
    found: Array = column.fillna(0).to_numpy(np.int64)
    return found


def gaps_of(work: Work) -> Gaps:
    """Return when each GPU had nothing to do between its first and its last operation."""
    gaps = []
    gpus = work.gpu
    for gpu in np.unique(gpus).tolist():
        indices = np.flatnonzero(gpus == gpu)
        order = indices[np.argsort(work.start[indices], kind="stable")]
        start = work.start[order]
        reached = np.maximum.accumulate(start + work.duration[order])
        at = np.flatnonzero(start[1:] > reached[:-1])
        begin = reached[at]
        gaps.append((np.full(len(at), gpu), begin, start[at + 1] - begin, order[at + 1]))
    return Gaps(*(np.concatenate(columns) for columns in zip(*gaps, strict=True)))


def kernel_items(run: Run, numbers: Mapping[str, int], work: Work) -> Kernels:
    """Return name, colour, number and facts of each code of `work.kernel`: kernels, then copies.

    `numbers` are those of the kernels on the page by kernel_id.
    """
    rows_ = {text(row["kernel_id"]): row for row in records(run.kernels)}
    found: Kernels = []
    for kernel_id in work.kernels:
        row = rows_.get(kernel_id)
        if row is None:
            found.append((kernel_id, "grey", 0, ()))
            continue
        colour = COLOURS[family(text(row["category"]))[0]]
        name = text(row["short_name"]) or text(row["name"])
        fact = Text("grid {grid}, block {block}", grid=text(row["grid"]), block=text(row["block"]))
        found.append((name, colour, numbers.get(kernel_id, 0), (fact,)))
    return [*found, *((Word(name), _memory_colour(name), 0, ()) for name in work.memory)]


def _memory_colour(name: str) -> str:
    inside = name == "copy device to device"
    return COLOURS[SKY if inside else WHOLE_GRAPH if name == GRAPH else HOST_COPY]


def rows_of(
    run: Run, kernels: Kernels, items: Items, work: Work, gaps: Gaps, events: Events | None
) -> tuple[Row, ...]:
    """Return the rows of the run's timeline, the GPUs' first.

    `kernels` and `gaps` are those of the work; `items` gets the items. Without `events` there are
    the rows of launches alone.
    """
    names = {
        int(number(row["gpu"])): text(row["name"])
        for row in records(run.devices.dropna(subset="gpu"))
    }
    coded = _coded(kernels, work, items)
    calls = events.host.calls if events is not None else None
    found: list[Row] = []
    gpus = work.gpu
    for gpu in np.unique(gpus).tolist():
        name = f"GPU {gpu}: {names[gpu]}" if names.get(gpu) else f"GPU {gpu}"
        found += _stage_rows(run, work, gpus == gpu, gpu, name, items)
        found += _stream_rows(work, coded, gpu, name)
        found += _idle_row(work, gaps, gpu, name, calls, items)
    return (*found, *(() if events is None else _host_rows(run.host_ranges, events.host, items)))


def _coded(kernels: Kernels, work: Work, items: Items) -> Array:
    """Return the item of each operation: its kernel in its stage."""
    width = len(work.stages) + 1
    codes, pairs = pd.factorize(work.kernel * width + work.stage + 1, sort=True)
    stages = ["", *work.stages]
    columns = []
    for pair in pairs.tolist():
        name, colour, kernel, facts = kernels[pair // width]
        columns.append(Item(name, colour, kernel, stages[pair % width], facts))
    return items.codes(columns)[codes]


def _stage_rows(
    run: Run, work: Work, on_gpu: Array, gpu: int, group: str, items: Items
) -> Iterator[Row]:
    """Steps of an engine where it has some; else launches in a row of one stage."""
    steps = run.engine_steps
    if not steps.empty:
        steps = steps.assign(gpu=gpu_of(run, steps))
        steps = steps[(steps["gpu"] == gpu) & steps["gpu_start_ns"].notna()]
        if not steps.empty:
            start, end = (_integers(steps[name]) for name in ("gpu_start_ns", "gpu_end_ns"))
            codes = items.codes(_step(row) for row in records(steps))
            yield Row(
                group, STEPS, Text("engine steps"), reduced(start, end - start, codes, MOST_OTHERS)
            )
            return
    at = np.flatnonzero(on_gpu[: work.launches] & (work.stage[: work.launches] >= 0))
    if not len(at):
        return
    at = at[np.argsort(work.start[at], kind="stable")]
    stage, start = work.stage[at], work.start[at]
    end = np.maximum.accumulate(start + work.duration[at])
    first = np.flatnonzero(np.diff(stage, prepend=-1) != 0)
    last = np.append(first[1:], len(at)) - 1
    codes = items.codes(Item(name) for name in work.stages)[stage[first]]
    until = np.minimum(end[last], np.append(start[first[1:]], end[-1]))
    yield Row(
        group, STAGES, Text("stages"),
        reduced(start[first], until - start[first], codes, MOST_OTHERS),
    )  # fmt: skip


def _step(row: CellRow) -> Item:
    facts = []
    for kind in ("prefill", "decode"):
        tokens, requests = (known(row[f"{kind}_{what}"]) for what in ("tokens", "requests"))
        if tokens and requests is not None:
            facts.append(
                Text(
                    "{kind}: {tokens} of {requests}",
                    kind=kind,
                    tokens=Text("{n} token", "{n} tokens", n=int(tokens)),
                    requests=Text("{n} request", "{n} requests", n=int(requests)),
                )
            )
    return Item(text(row["kind"]) or Text("step without requests"), facts=tuple(facts))


def _stream_rows(work: Work, item: Array, gpu: int, group: str) -> Iterator[Row]:
    """Busiest streams of a GPU, each with lanes where its work overlaps; the others as one row."""
    queues = [code for code, queue in enumerate(work.queues) if queue[0] == gpu]
    time = np.bincount(work.queue, weights=work.duration, minlength=len(work.queues))
    busiest = sorted(sorted(queues, key=lambda code: -time[code])[:MOST_STREAMS])
    for code in busiest:
        at = np.flatnonzero(work.queue == code)
        budget = max(MOST_LAUNCHES * len(at) // len(work.queue), 1000)
        yield from _lanes(work, item, at, group, _stream_name(work.queues, queues, code), budget)
    rest = [code for code in queues if code not in busiest]
    if rest:
        at = np.flatnonzero(np.isin(work.queue, rest))
        segments = reduced(work.start[at], work.duration[at], item[at], MOST_OTHERS)
        yield Row(group, KERNELS, Text("{n} more streams", n=len(rest)), segments)


def _lanes(
    work: Work, item: Array, at: Array, group: str, name: Label, budget: int
) -> Iterator[Row]:
    start, duration, item = work.start[at], work.duration[at], item[at]
    if len(at) > budget:
        yield Row(group, KERNELS, name, reduced(start, duration, item, budget))
        return
    lane = np.minimum(disjoint(start, start + duration, np.zeros(len(at), int)), MOST_LANES - 1)
    for number_ in range(int(lane.max(initial=0)) + 1):
        in_lane = lane == number_
        label = name if not number_ else Text("{stream}, overlapping", stream=name)
        yield Row(
            group, KERNELS, label, reduced(start[in_lane], duration[in_lane], item[in_lane], budget)
        )


def _stream_name(
    queues: Sequence[tuple[int, int, int, int]], here: Sequence[int], code: int
) -> Label:
    """Name a stream, with process and context where the GPU has several of them."""
    _, pid, context, stream = queues[code]
    name = Text("stream {n}", n=str(stream)) if stream >= 0 else Text("stream")
    if len({queues[queue][1] for queue in here}) > 1:
        name = Text("{stream}, process {pid}", stream=name, pid=str(pid))
    if len({queues[queue][2] for queue in here if queues[queue][1] == pid}) > 1:
        name = Text("{stream}, context {context}", stream=name, context=str(context))
    return name


def _idle_row(
    work: Work, gaps: Gaps, gpu: int, group: str, calls: ApiCalls | None, items: Items
) -> Iterator[Row]:
    """Gaps of a GPU by whose they are: of the call that ended one, whether it came in time."""
    on_gpu = gaps.gpu == gpu
    start, duration, op = gaps.start[on_gpu], gaps.duration[on_gpu], gaps.op[on_gpu]
    if not len(start):
        return
    cause, name = _causes(work.key[op], start, calls)
    names = [""] if calls is None else [*calls.names, ""]
    codes, pairs = pd.factorize(cause * (len(names) + 1) + name, sort=True)
    items_of_pairs = []
    for pair in pairs.tolist():
        known_cause = (None, QUEUED, LATE)[pair // (len(names) + 1)]
        called = names[pair % (len(names) + 1)]
        ended = Text("ended by {call}", call=called) if called else None
        facts = tuple(fact for fact in (known_cause, ended) if fact is not None)
        items_of_pairs.append(
            Item(Text("GPU idle"), "rest" if known_cause == QUEUED else "quiet", facts=facts)
        )
    segments = reduced(start, duration, items.codes(items_of_pairs)[codes], MOST_OTHERS)
    yield Row(group, IDLE, Text("idle"), segments)


def _causes(key: Array, start: Array, calls: ApiCalls | None) -> tuple[Array, Array]:
    """Return whether the call that ended each gap is unknown (0), was done (1) or late (2).

    The second array is the code of its name, one past the last for none.
    """
    if calls is None or not len(calls.start):
        return np.zeros(len(key), np.int64), np.zeros(len(key), np.int64)
    order = np.argsort(calls.call, kind="stable")
    at = np.searchsorted(calls.call[order], key)
    at = order[np.minimum(at, len(order) - 1)]
    known = calls.call[at] == key
    late = calls.start[at] + calls.duration[at].astype(np.int64) > start
    cause = np.where(known, np.where(late, 2, 1), 0)
    return cause, np.where(known, calls.name[at], len(calls.names))


def _host_rows(ranges: pd.DataFrame, host: HostEvents, items: Items) -> Iterator[Row]:
    """Ranges by depth and CUDA calls of the threads that have most of them."""
    threads = [(thread.pid, thread.tid, thread.name) for thread in host.threads]
    of_thread = {
        (int(number(pid)), int(number(tid)), text(name)): rows
        for (pid, tid, name), rows in ranges.groupby(["pid", "tid", "thread"], sort=False)
    }
    threads = list(dict.fromkeys([*threads, *of_thread]))
    numbers = [of_thread[t]["ranges"].sum() if t in of_thread else 0 for t in threads]
    for code in busiest(host.calls, np.array(numbers, np.int64)):
        pid, tid, given = thread = threads[code]
        unnamed = Text("main thread") if pid == tid else Text("thread {tid}", tid=str(tid))
        group = Text("Process {pid}, {thread}", pid=str(pid), thread=given or unnamed)
        if thread in of_thread:
            yield from _range_rows(of_thread[thread], group, items)
        yield from _call_row(host.calls, code, group, items)


def _range_rows(ranges: pd.DataFrame, group: Label, items: Items) -> Iterator[Row]:
    """Yield the ranges of a thread by depth."""
    names = ranges["nvtx_range"].cat
    codes, used = pd.factorize(names.codes.to_numpy(), sort=True)
    item = items.codes(Item(name) for name in names.categories[used].astype(str))[codes]
    columns = ("start_ns", "duration_ns", "busy_ns", "ranges", "depth")
    start, duration, busy, count, depth = (_integers(ranges[name]) for name in columns)
    for level in np.unique(depth).tolist():
        at = np.flatnonzero(depth == level)
        label = Text("NVTX, depth {n}", n=level + 1) if level else Text("NVTX ranges")
        width = int(ranges["bin_ns"].iloc[at[0]])
        segments = Segments(start[at], duration[at], item[at], busy[at], count[at], width)
        yield Row(group, RANGES, label, segments)


def _call_row(calls: ApiCalls, thread: int, group: Label, items: Items) -> Iterator[Row]:
    at = np.flatnonzero(calls.thread == thread)
    if not len(at):
        return
    codes = items.codes(
        Item(name, "yellow" if any(word in name for word in _WAITS) else "grey")
        for name in calls.names
    )
    segments = reduced(calls.start[at], calls.duration[at], codes[calls.name[at]], MOST_OTHERS)
    yield Row(group, CALLS, Text("CUDA calls"), segments)
