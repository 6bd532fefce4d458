"""Table `engine_gaps`: for each engine step, what the GPU waited for while it was idle.

Each gap ends with an operation. Where the host had issued that operation before the gap began, the
host is not the cause: the gap is the GPU's own between two queued operations. Otherwise the host
is, until its call returns; what the host did until then splits the time: a CUDA call that blocks,
else the innermost NVTX range of the worker's thread, else that of another thread of the engine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.names.ranges import ENGINE_STEP
from nsight_prof.parsers.nsys.engine.ranges import HostRange, Segments, innermost
from nsight_prof.parsers.nsys.engine.work import Calls, RankWork, find_windows
from nsight_prof.parsers.nsys.rows.calls import ABI_VERSION
from nsight_prof.parsers.nsys.sqlite.database import Array
from nsight_prof.parsers.run.sentences import stored

QUEUED = "between queued operations"
LATENCY = "launch latency"
NO_RANGE = stored("outside of all ranges")
LONG_CALL_NS = 100_000
"""From here on a CUDA call is named as a cause of its own: launches take under 20 us."""

OF_GPU = ("gaps between queued operations", "launch latency")
"""Activities that are none of the host: it had issued what the GPU began next."""
LAUNCHES = "launches of the forward pass"
_ACTIVITIES = (
    (QUEUED, OF_GPU[0]),
    (LATENCY, OF_GPU[1]),
    ("schedule:", "scheduling"),
    ("gpu_model_runner: preprocess", "input preparation"),
    ("gpu_model_runner: forward", LAUNCHES),
    ("gpu_model_runner: postprocess", "sampling"),
    ("gpu_model_runner:", "sampling"),
    ("llm_engine step: process_outputs", "detokenizing and outputs"),
    ("llm_engine step: get_output", "engine loop outside of named ranges"),
    ("llm_engine step:", "detokenizing and outputs"),
    ("execute_context", "worker outside of named ranges"),
    ("cudaGraphLaunch", LAUNCHES),
    ("cudaLaunch", LAUNCHES),
    ("cuLaunch", LAUNCHES),
    ("cuda", "blocking CUDA call"),
)


def activity(cause: str) -> str:
    """What a reader calls the cause: scheduling, sampling, …; the cause itself where not vLLM's."""
    return next((words for start, words in _ACTIVITIES if cause.startswith(start)), cause)


def find_gaps(
    works: list[RankWork], calls: Calls, ranges: Sequence[HostRange]
) -> tuple[pd.DataFrame, list[dict[int, str]]]:
    """Table `engine_gaps`, and for each rank the main cause of the idle time after each step."""
    frames, main = [], []
    for work in works:
        frame = _of_rank(work, _layers(work, calls, ranges))
        frames.append(frame)
        after = frame[frame["place"] == "after"].sort_values("idle_ns", ascending=False)
        longest = after.drop_duplicates("step")
        main.append(dict(zip(longest["step"].tolist(), longest["cause"].tolist(), strict=True)))
    if not frames:
        return tables.empty("engine_gaps"), []
    frame = pd.concat(frames, ignore_index=True)
    order = ["step", "pid", "device", "place", "idle_ns"]
    frame = frame.sort_values(order, ascending=[True, True, True, False, False])
    return tables.check(frame, "engine_gaps"), main


def _of_rank(work: RankWork, layers: Sequence[Segments]) -> pd.DataFrame:
    windows = find_windows(work)
    start, end, call_end = _idle(work)
    at = np.searchsorted(windows.begin, start, "right") - 1
    # Of no windows, every gap is before the first.
    inside = (at >= 0) & (start < np.append(windows.until, 0)[at])
    start, end, call_end, at = start[inside], end[inside], call_end[inside], at[inside]
    side = np.where(np.append(windows.end, 0)[at] <= start, "after", "inside")
    ready = np.clip(call_end, start, end)
    names: dict[str, int] = {QUEUED: 0, LATENCY: 1}
    device_cause = np.where(call_end <= start, 0, 1)
    pieces = [
        pd.DataFrame({"gap": np.arange(len(start)), "cause": device_cause, "idle_ns": end - ready})
    ]
    pieces.append(_host_pieces(start, ready, layers, names))
    frame = pd.concat(pieces, ignore_index=True)
    frame = frame[frame["idle_ns"] > 0]
    gap = frame["gap"].to_numpy(np.int64)
    frame = frame.assign(step=windows.index[at[gap]], place=side[gap])
    frame = frame.groupby(["step", "place", "cause"], as_index=False)[["idle_ns"]].sum()
    texts = list(names)
    frame["cause"] = [texts[code] for code in frame["cause"]]
    frame["activity"] = [activity(cause) for cause in frame["cause"]]
    return frame.assign(pid=work.pid, device=work.device)


def _idle(work: RankWork) -> tuple[Array, Array, Array]:
    """Start and end of each time in which nothing ran, and the end of the call that ended it."""
    reached = np.maximum.accumulate(work.end)
    gap = np.flatnonzero(work.start[1:] > reached[:-1])
    return reached[gap], work.start[gap + 1], work.call_end[gap + 1]


def _host_pieces(
    start: Array, end: Array, layers: Sequence[Segments], names: dict[str, int]
) -> pd.DataFrame:
    """Split each [start, end) by what the host did: gap, cause and length of each piece."""
    cuts = [start, end, *(c for s in layers for c in (s.start, s.end))]
    points = np.sort(pd.unique(np.concatenate(cuts)))  # np.unique: see stages/idle_gaps.py
    low, high = points[:-1], points[1:]
    gap = np.searchsorted(start, low, "right") - 1
    inside = (gap >= 0) & (low < np.append(end, 0)[gap])
    low, high, gap = low[inside], high[inside], gap[inside]
    cause = np.full(len(low), -1)
    for layer in layers:
        codes = np.array([names.setdefault(n, len(names)) for n in layer.names], np.int64)
        at = np.searchsorted(layer.start, low, "right") - 1
        hit = (cause < 0) & (at >= 0)
        hit[hit] = low[hit] < layer.end[at[hit]]
        cause[hit] = codes[layer.name[at[hit]]]
    cause[cause < 0] = names.setdefault(NO_RANGE, len(names))
    return pd.DataFrame({"gap": gap, "cause": cause, "idle_ns": high - low})


def _layers(work: RankWork, calls: Calls, ranges: Sequence[HostRange]) -> list[Segments]:
    """What the host did, the most telling first."""
    thread = work.steps[0].thread
    ranges_by_name = [HostRange(r.thread, r.start, r.end, _without_numbers(r.text)) for r in ranges]
    on_thread = [r for r in ranges_by_name if r.thread == thread]
    # The thread that schedules tells more than one that waits for outputs.
    scheduling = [
        r for r in ranges_by_name if r.thread != thread and r.text.startswith("schedule:")
    ]
    front = [r for r in ranges_by_name if r.thread != thread and "process_outputs" in r.text]
    return [_blocking(calls, thread), innermost(on_thread), innermost(scheduling), innermost(front)]


def _blocking(calls: Calls, thread: int) -> Segments:
    """CUDA calls of the thread that wait for the GPU or take long."""
    waits = [n for n, name in calls.names.items() if "Synchronize" in name]
    mask = (calls.thread == thread) & (
        np.isin(calls.name, waits) | (calls.end - calls.start >= LONG_CALL_NS)
    )
    found = [
        HostRange(thread, start, end, ABI_VERSION.sub("", calls.names.get(name, "CUDA call")))
        for start, end, name in zip(
            calls.start[mask].tolist(),
            calls.end[mask].tolist(),
            calls.name[mask].tolist(),
            strict=True,
        )
    ]
    return innermost(found)


def _without_numbers(text: str) -> str:
    """Name of a range without what differs from step to step."""
    return "execute_context" if ENGINE_STEP.fullmatch(text) else text
