"""Looks at single launches in their order: chains of kernels, short kernels, overlap.

All functions take the frame of `timeline`: one row per launch, by stream and start, with the names
and the category of its kernel. Times are in ns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nsight_prof.parsers.run.run import Run, once
from nsight_prof.reports.analysis.gpu_times import ALL, gpu_of_launches, queues

MOST_LAUNCHES = 5_000_000
"""Launches up to which single ones are looked at: a table of them takes about a gigabyte."""
REPEATED, MOST_TIME, ONE_ROUND = 5, 0.95, 0.25
"""Launches from which on a kernel repeats; part of the time of those that do whose kernels make up
a round; part of all launches that a first round takes at most."""
SINGLE_STEPS = ("elementwise", "copy", "fill", "reduction", "random")
"""Categories of kernels that a loop over items launches; products make up steps of a model."""
ALL_BUT_EMPTY = 0.1
"""Part of the SMs that a launch has blocks for, below which the GPU is all but empty beside it."""
OF_KERNEL = ["short_name", "name", "library", "category"]
Mask = NDArray[np.bool_]


@once
def timeline(run: Run) -> pd.DataFrame | None:
    """Return the launches by stream and start; None where they are not known, or too many.

    Columns: kernel_id, start_ns, end_ns, duration_ns, gpu, queue (one number per stream), stage,
    nvtx_path, memory_before, and short_name, name, library, category of the kernel; texts are
    categories, so that a million of them are compared and grouped as numbers.
    """
    if not 0 < run.kernels["calls"].sum() <= MOST_LAUNCHES:
        return None
    launches = run.launch_times
    if launches.empty:
        return None
    queue, _ = queues(run)
    start, duration = (launches[name].to_numpy(np.int64) for name in ("start_ns", "duration_ns"))
    order = np.lexsort((start, queue))
    texts = {
        name: (column.cat.categories.to_numpy(object), column.cat.codes.to_numpy()[order])
        for name in ("kernel_id", "stage", "nvtx_path")
        for column in [launches[name]]
    }
    ids, kernel = texts["kernel_id"]
    kernels = run.kernels.set_index("kernel_id")[OF_KERNEL].reindex(ids).astype(object).fillna("")
    texts |= {name: (kernels[name].to_numpy(object), kernel) for name in OF_KERNEL}
    columns = {
        "start_ns": start[order],
        "duration_ns": duration[order],
        "end_ns": (start + duration)[order],
        "gpu": gpu_of_launches(run).to_numpy()[order],
        "queue": queue[order],
        "memory_before": launches["memory_before"].array[order],
        **{name: _categories(*text) for name, text in texts.items()},
    }
    return pd.DataFrame(columns, copy=False)


def _categories(words: NDArray[np.object_], codes: NDArray[np.integer]) -> pd.Categorical:
    """Return words by their codes, "" for none (-1), as categories in the order of the alphabet."""
    names, code = np.unique(np.append(words, ""), return_inverse=True)
    return pd.Categorical.from_codes(code[codes], pd.Index(names, dtype=object))


def range_times(run: Run, names: Sequence[str]) -> pd.DataFrame:
    """Return the GPU's time in NVTX ranges that lie inside of stages; empty without launches.

    A launch belongs to the innermost of `names` that was open on its thread. Columns: stage, name,
    wall_ns (rows of its launches, each from the first one's start to the last one's end), busy_ns.
    """
    frame = timeline(run)
    if frame is None:
        return pd.DataFrame(columns=["stage", "name", "wall_ns", "busy_ns"])
    paths, found = frame["nvtx_path"], []
    for name in names:
        inside = {
            path
            for path in paths.unique()
            if next((n for n in reversed(path.split("/")) if n in names), "") == name
        }
        rows = _runs(paths.isin(inside).to_numpy(dtype=np.bool_), _breaks(frame))
        found += [
            (
                str(frame["stage"].iloc[first]),
                name,
                int(frame["end_ns"].iloc[last - 1] - frame["start_ns"].iloc[first]),
                int(frame["duration_ns"].iloc[first:last].sum()),
            )
            for first, last in zip(rows["first"], rows["last"], strict=True)
        ]
    times = pd.DataFrame(found, columns=["stage", "name", "wall_ns", "busy_ns"])
    return times.groupby(["stage", "name"], as_index=False).sum()


def startup_ns(frame: pd.DataFrame) -> float:
    """Return the time without kernels that comes once: of the first round of the kernels that
    repeat what is beyond the gaps of as many launches afterwards. 0 where no gap of the round is
    longer than all afterwards, or no round is told: it takes more than a part of the launches
    (ONE_ROUND), or several GPUs work.
    """
    if frame.empty or frame["gpu"].nunique() > 1:
        return 0.0
    ordered = frame[["kernel_id", "start_ns", "end_ns", "duration_ns"]]
    ordered = ordered.sort_values("start_ns", kind="stable")
    sums = ordered.groupby("kernel_id", observed=True)["duration_ns"].agg(["sum", "size"])
    repeated = sums[sums["size"] >= REPEATED].sort_values("sum", ascending=False)
    if repeated.empty:
        return 0.0
    before = repeated["sum"].cumsum() - repeated["sum"]
    of_round = repeated.index[before < MOST_TIME * repeated["sum"].sum()]
    at = ordered["kernel_id"].isin(of_round)
    ends = int(np.flatnonzero(~ordered["kernel_id"].where(at).duplicated() & at)[-1])
    start, end = ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy()
    gaps = np.maximum(start[1:] - np.maximum.accumulate(end)[:-1], 0)
    first, rest = gaps[:ends], gaps[ends:]
    if ends > ONE_ROUND * len(ordered) or not len(rest):
        return 0.0
    longest = float(first[first > rest.max()].sum())
    return max(longest, float(first.sum() - rest.mean() * len(first))) if longest else 0.0


@once
def idle_at_start(run: Run) -> float:
    """Return `startup_ns` of the launches of a run, 0 where they are not known. Where it is any, so
    are the pauses between copies before the first kernel, unless a copy follows the last one.
    """
    frame = timeline(run)
    once = 0.0 if frame is None else startup_ns(frame)
    operations, capture = run.memory_operations, run.stages[run.stages["stage"] == ALL]
    if frame is None or not once or capture.empty:
        return once
    if frame["memory_before"].max() != operations["calls"].sum():
        return once
    before = capture["wall_ns"].iloc[0] - (frame["end_ns"].max() - frame["start_ns"].min())
    return once + max(0.0, float(before - operations["startup_ns"].fillna(0).sum()))


def longest_kernels(launches: pd.DataFrame, count: int) -> tuple[str, ...]:
    """Return the ids of the kernels whose launches take most time, at most so many."""
    times = launches.groupby("kernel_id", observed=True)["duration_ns"].sum()
    return tuple(map(str, times.nlargest(count).index))


def runs(frame: pd.DataFrame, mask: Mask, *, through_copies: bool = False) -> pd.DataFrame:
    """Return runs of launches of one stream and stage in which `mask` holds throughout.

    A copy or memset between two launches ends a run unless it goes through them. Columns first and
    last (exclusive) are positions in `frame`, launches is how many there are.
    """
    moved = frame["memory_before"].diff().fillna(0).to_numpy() > 0
    return _runs(mask, _breaks(frame) | (moved & (not through_copies)))


def _breaks(frame: pd.DataFrame) -> Mask:
    """Return where another stream or stage begins."""
    stage = pd.factorize(frame["stage"])[0]
    queue = frame["queue"].to_numpy()
    changed = (np.diff(queue, prepend=-1) != 0) | (np.diff(stage, prepend=-2) != 0)
    return np.asarray(changed, dtype=np.bool_)


def _runs(mask: Mask, new: Mask) -> pd.DataFrame:
    before = np.concatenate([[False], mask[:-1]])
    after = np.concatenate([mask[1:], [False]])
    begins_next = np.concatenate([new[1:], [True]])
    first = np.flatnonzero(mask & (~before | new))
    last = np.flatnonzero(mask & (~after | begins_next)) + 1
    return pd.DataFrame({"first": first, "last": last, "launches": last - first})


def chains(
    frame: pd.DataFrame, fusible: Mask, flows: Callable[[str, str], bool], repeats: int
) -> pd.DataFrame:
    """Return chains of two and more fusible kernels of which each may read what the last wrote.

    `flows(a, b)` tells whether kernel `b` reads all that kernel `a` writes; more than `repeats`
    launches of one kernel in a row work on items of a loop. Columns: kernels (tuple of kernel ids),
    stage, times (how often the chain comes), total_ns, saved_ns (all but the longest kernel of
    each).
    """
    ids = frame["kernel_id"].to_numpy(object)
    known: dict[tuple[str, str], bool] = {}

    def follows(at: int) -> bool:
        pair = str(ids[at - 1]), str(ids[at])
        if pair not in known:
            known[pair] = flows(*pair)
        return known[pair]

    new = _breaks(frame)
    for at in np.flatnonzero(fusible[1:] & fusible[:-1]) + 1:
        new[at] = new[at] or not follows(int(at))
    found = _runs(fusible, new)
    found = found[found["launches"] > 1]
    duration = frame["duration_ns"].to_numpy()
    stage = frame["stage"].to_numpy(object)
    pieces = [
        (at + first, at + last)
        for a, b in zip(found["first"].tolist(), found["last"].tolist(), strict=True)
        for step in [_period(ids[a:b])]
        for at in range(a, b, step)
        for first, last in _without_loops(ids[at : at + step], repeats)
    ]
    rows = [
        (tuple(ids[a:b]), stage[a], int(duration[a:b].sum()), int(duration[a:b].max()))
        for a, b in pieces
    ]
    chain = pd.DataFrame(rows, columns=["kernels", "stage", "total_ns", "longest_ns"])
    chain["times"] = 1
    chain["saved_ns"] = chain["total_ns"] - chain["longest_ns"]
    sums = chain.groupby("kernels", sort=False, as_index=False).agg(
        {"stage": "first", "times": "sum", "total_ns": "sum", "saved_ns": "sum"}
    )
    return pd.DataFrame(sums).sort_values("saved_ns", ascending=False).reset_index(drop=True)


def _period(ids: NDArray[np.object_]) -> int:
    """Return how many kernels repeat to make up `ids`; all where they repeat nothing."""
    size = len(ids)
    for step in range(1, size // 2 + 1):
        if size % step == 0 and (ids[step:] == ids[:-step]).all():
            return step
    return size


def _without_loops(ids: NDArray[np.object_], repeats: int) -> list[tuple[int, int]]:
    """Return first and last (exclusive) positions of chains of two and more kernels in `ids`.

    A kernel that follows itself may be a step of a chain (x * x * x). It goes over the items of a
    loop where it does so for more than `repeats` launches, or where every kernel comes as often in
    a row as the others do, as in one step after another over a list of tensors: there `ids` is cut.
    """
    new = np.concatenate([[True], ids[1:] != ids[:-1]])
    often = np.diff(np.append(np.flatnonzero(new), len(ids)))
    loop = often > repeats if len(set(often.tolist())) > 1 else often > 1
    cut = np.repeat(loop, often) & ~new
    cut[0] = True
    edges = [*np.flatnonzero(cut).tolist(), len(ids)]
    return [(a, b) for a, b in zip(edges, edges[1:], strict=False) if b - a > 1]


@dataclass(frozen=True)
class Short:
    """Short kernels in rows of one stage: `runs` rows of `launches` kernels; times in ns.

    They ran on `gpus` GPUs, which work at the same time, and all numbers are of all of them.
    `queued_ns` is the time between kernels of a row, each gap no longer than a queued one is.
    `batched` launches repeat the kernel before them, which leaves SMs empty: side by side with it,
    they would save `batched_ns`.
    """

    stage: str
    launches: int
    runs: int
    total_ns: float
    queued_ns: float
    batched: int
    batched_ns: float
    gpus: int
    kernel_ids: tuple[str, ...]


@dataclass(frozen=True)
class Tiny:
    """What short kernels in a row are: under `short` ns, `fewest` of them, gaps up to `gap` ns.

    No launch is shorter than `floor` ns. `fill` is the part of the SMs (0 to 1) that a launch of a
    kernel has blocks for, as far as it is known.
    """

    short: float
    fewest: int
    gap: float
    floor: float
    fill: Mapping[str, float]


def short_kernels(frame: pd.DataFrame, tiny: Tiny) -> list[Short]:
    """Return the rows of short kernels of each stage.

    A kernel that is short on average is so where single launches take up to twice as long. One step
    on a few blocks that comes again counts however long it takes: others could run beside it.
    """
    length = frame["duration_ns"]
    usual = length.groupby(frame["kernel_id"], observed=True).transform("mean")
    short = (length < tiny.short) | ((usual < tiny.short) & (length < 2 * tiny.short))
    fill = frame["kernel_id"].astype(object).map(tiny.fill).astype(float)
    ids = frame["kernel_id"].cat.codes
    again = ids.eq(ids.shift()) | ids.eq(ids.shift(-1))
    short |= again & (fill < ALL_BUT_EMPTY) & frame["category"].isin(SINGLE_STEPS)
    found = runs(frame, short.to_numpy(dtype=np.bool_))
    found = found[found["launches"] >= tiny.fewest]
    if found.empty:
        return []
    run_of = np.repeat(np.arange(len(found)), found["launches"])
    index = np.arange(len(run_of)) + (found["last"] - found["launches"].cumsum()).to_numpy()[run_of]
    looked_at = ["kernel_id", "stage", "gpu", "start_ns", "end_ns", "duration_ns"]
    launches = frame[looked_at].iloc[index].assign(run=run_of)
    gap = launches["start_ns"] - launches["end_ns"].shift()
    follows = launches["run"] == launches["run"].shift()
    launches["gap"] = gap.where(follows, 0).clip(0, tiny.gap)
    kernel = pd.factorize(launches["kernel_id"])[0]
    launches["batch"] = (~follows | (np.diff(kernel, prepend=-1) != 0)).cumsum()
    return [
        Short(
            str(stage),
            len(rows),
            int(rows["run"].nunique()),
            float(rows["duration_ns"].sum()),
            float(rows["gap"].sum()),
            *_batched(rows, tiny),
            int(rows["gpu"].nunique()),
            longest_kernels(rows, 5),
        )
        for stage, rows in launches.groupby("stage", sort=False, observed=True)
    ]


def _batched(rows: pd.DataFrame, tiny: Tiny) -> tuple[int, float]:
    """Return launches that repeat the one before, and the ns that they would save beside it.

    `rows` are launches with their `batch`, a number of each row of one kernel. Side by side, they
    take as long as the longest of them, or as SMs that are full of their blocks do; those that this
    saves no more than their starts are left out.
    """
    first = np.flatnonzero(rows["batch"].diff() != 0)
    duration = rows["duration_ns"].to_numpy()
    total, longest = (of.reduceat(duration, first) for of in (np.add, np.maximum))
    fill = rows["kernel_id"].iloc[first].map(tiny.fill).astype(float).fillna(1.0).to_numpy()
    saved = total - np.maximum(total * fill, longest)
    repeats = np.diff(first, append=len(rows)) - 1
    saving = (saved > tiny.floor * repeats) & (repeats >= tiny.fewest - 1)
    return int(repeats[saving].sum()), float(saved[saving].sum())


@dataclass(frozen=True)
class Exposed:
    """Collectives of one GPU: their time, and how much of it no other kernel ran; ns."""

    gpu: int
    launches: int
    total_ns: float
    exposed_ns: float


def exposed(frame: pd.DataFrame, collective: Mask) -> list[Exposed]:
    """Return for each GPU how long collectives ran alone."""
    found = []
    for gpu, rows in frame[["gpu", "start_ns", "end_ns"]].groupby("gpu"):
        selected = collective[rows.index.to_numpy()]
        if selected.any():
            start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
            both, others = union(start, end), union(start[~selected], end[~selected])
            total = float((end - start)[selected].sum())
            found.append(Exposed(int(str(gpu)), int(selected.sum()), total, both - others))
    return found


def union(start: NDArray[np.int64], end: NDArray[np.int64]) -> float:
    """Return the length of the union of intervals."""
    if not len(start):
        return 0.0
    order = np.argsort(start, kind="stable")
    begin, until = start[order], end[order]
    reached = np.concatenate([begin[:1], np.maximum.accumulate(until)[:-1]])
    return float(np.maximum(until - np.maximum(begin, reached), 0).sum())
