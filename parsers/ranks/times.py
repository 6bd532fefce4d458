"""Where the time of each GPU of a job goes, and what its collectives tell: table `rank_times`.

The launches of one rank are read at a time; of each only its collectives are kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.cells import Row, count, records, text
from nsight_prof.parsers.nsys.stages.nccl import OPERATIONS, POINT_TO_POINT, WHOLE, bus_factor
from nsight_prof.parsers.nsys.stages.work import ALL
from nsight_prof.parsers.ranks.clocks import Array, Clock
from nsight_prof.parsers.ranks.waits import Calls, Kind, RankGpu, Waits, compare
from nsight_prof.parsers.roofs.comm import roof_at
from nsight_prof.parsers.run.directory import RankRecord

ROWS = 1 << 18
COLLECTIVE = "collective"
ROOTED = ("NCCL broadcast", "NCCL reduce", "NCCL scatter", "NCCL gather")
"""Collectives that do not end together: the root of a broadcast of 128 B was done 0.1 ms before
another rank began it (two H100, torch 2.11)."""
MATRIX = "gemm"
COLLECTIVES, EPOCH, NONE = "collectives", "epoch", "none"
MOST_BINS, MOST_OF_ALL, FEWEST_BINS = 2_000, 40_000, 100
"""Bins of a rank, and of all ranks together; the latter also of the waits of single calls."""
LATE = 0.02
"""Part of the wall time from which on the lateness of a GPU matters: of four balanced jobs on two
H100, three differed by 0.2 to 0.3 %, and by 1.4 % over 16 steps."""
FEWEST_STEPS, MOST_STEPS = 3, 20_000
"""Instances of a stage that may be the steps of a program."""
FREE_CALL_NS = 10_000.0
"""What a call of CUDA that waits for nothing takes at most: 6 to 9 us in traces of H200 hosts."""
COLUMNS = ["kernel_id", "start_ns", "duration_ns", "device"]


@dataclass(frozen=True)
class _Message:
    """What NCCL's payload says of a call: bytes that a rank passes, ranks (0: not known)."""

    operation: str
    bytes: int
    communicator: str
    ranks: int


@dataclass(frozen=True)
class _Steps:
    """The instances of a stage on one GPU: from `bounds[n]` to `bounds[n + 1]` (ns, own clock).

    `compute`, `kernels` and `collective` are the times in kernels other than collectives, in any
    kernel, and in collectives.
    """

    bounds: Array
    compute: Array
    kernels: Array
    collective: Array
    kernel_ns: int = 0
    host_ns: float = 0.0
    """Host time from the start of an instance to that of the next, the mean."""

    @property
    def overlapped(self) -> Array:
        """Time in collectives beside other kernels."""
        time: Array = self.collective + self.compute - self.kernels
        return time


@dataclass
class RankTimes:
    """Collects what the ranks' tables hold, one rank after the other."""

    calls: dict[RankGpu, dict[str, Calls]] = field(default_factory=dict)
    rows: dict[RankGpu, dict[str, Any]] = field(default_factory=dict)
    steps: dict[RankGpu, dict[str, _Steps]] = field(default_factory=dict)
    messages: dict[str, _Message] = field(default_factory=dict)
    """By kind of collective: its kernel's id and, where the payload says more, that."""
    names: dict[str, str] = field(default_factory=dict)
    kernels: dict[RankGpu, dict[str, tuple[int, int]]] = field(default_factory=dict)
    """GPU time (ns) and launches by kernel and grid, without collectives."""
    matrix: set[str] = field(default_factory=set)
    """Kernels that are matrix products."""
    bins: int = MOST_BINS
    """How many parts of equal length the time of a GPU has in `rank_bins`."""
    busy: dict[RankGpu, Array] = field(default_factory=dict)
    """Own time, and time until then in kernels other than collectives and in any: 3 rows."""
    align: str = COLLECTIVES
    """By what clocks are aligned: COLLECTIVES, EPOCH or NONE."""
    zero_ns: dict[RankGpu, int | None] = field(default_factory=dict)
    """When the clock of a trace was 0, by the clock of its host (UTC); None where not known."""

    def add(self, record: RankRecord, folder: Path, read: Mapping[str, list[Row]]) -> None:
        """Read the tables of a rank in `folder` but those `read`; raises as `tables.read`.

        These are kernels, gpu_stages and devices.
        """
        rank = record.rank
        devices = {count(row["gpu"]): row for row in read["devices"]}
        gaps = tables.read(folder, "gpu_idle_gaps")
        instances = tables.read(folder, "stage_instances")
        by_id = {row["kernel_id"]: row for row in read["kernels"]}
        category = np.array([text(row["category"]) for row in by_id.values()])
        launches, waited_ns = _launches(folder, list(by_id)), _waited_ns(folder)
        self.names |= {str(key): text(row["short_name"]) for key, row in by_id.items()}
        messages = _messages(folder)
        zero = None
        if record.started_ns is not None and len(launches[1]):
            zero = record.started_ns - int(launches[1].min())
        for stage in read["gpu_stages"]:
            if stage["stage"] != ALL:
                continue
            device = count((devices.get(count(stage["gpu"])) or {}).get("device"))
            if device is None:
                continue
            kernel, start, duration = (column[launches[3] == device] for column in launches[:3])
            is_collective = (category == COLLECTIVE)[kernel]
            is_matrix = (category == MATRIX)[kernel]
            end, gpu = start + duration, (rank, device)
            self.zero_ns[gpu] = zero
            last = np.array([end.max()]) if len(end) else np.zeros(1, np.int64)
            # In kernels other than collectives, and in any.
            covered = (Covered(start[~is_collective], end[~is_collective]), Covered(start, end))
            compute, kernels_ns = (int(time.before(last)[0]) for time in covered)
            if len(end):
                times = np.linspace(start.min(), end.max(), self.bins + 1).astype(np.int64)
                self.busy[gpu] = np.stack([times, *(time.before(times) for time in covered)])
            begun, done = start[is_collective], end[is_collective]
            of_gpu = instances[instances["gpu"] == stage["gpu"]]
            self.steps[gpu] = _steps(of_gpu, (*covered, Covered(begun, done)))
            alone = done - begun - (covered[0].before(done) - covered[0].before(begun))
            columns = (kernel[is_collective], begun, done - begun, alone)
            found = zip(*(column.tolist() for column in columns), strict=True)
            ids = list(map(str, by_id))
            self.calls[gpu] = self._calls([(ids[k], *times) for k, *times in found], messages)
            others = ~is_matrix & ~is_collective
            self.matrix |= {ids[k] for k in np.unique(kernel[is_matrix])}
            computing = kernel[~is_collective]
            sums = np.bincount(computing, duration[~is_collective], len(ids))
            calls = np.bincount(computing, minlength=len(ids))
            self.kernels[gpu] = {
                ids[k]: (int(sums[k]), int(calls[k])) for k in np.flatnonzero(sums)
            }
            idle = gaps[(gaps["gpu"] == stage["gpu"])].groupby("cause")["idle_ns"].sum()
            self.rows[gpu] = {
                "wall_ns": int(stage["wall_ns"]),
                "compute_ns": compute,
                "exposed": kernels_ns - compute,
                "copies_ns": int(stage["gpu_busy_ns"]) - kernels_ns,
                "idle_ns": int(stage["idle_ns"]),
                "launches": int((~is_collective).sum()),
                "matrix_ns": int(duration[is_matrix].sum()),
                "other_ns": int(duration[others].sum()),
                "idle_causes": {str(cause): int(ns) for cause, ns in idle.items()},
                "waited_ns": waited_ns,
            }

    def _calls(
        self, launches: list[tuple[str, int, int, int]], messages: dict[int, _Message]
    ) -> dict[str, Calls]:
        """Sort the collectives of a GPU (kernel, start, duration, exposed) by kind."""
        found: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for kernel, start, duration, exposed in sorted(launches, key=lambda launch: launch[1]):
            key, message = kernel, messages.get(start)
            if message is not None:
                key = f"{kernel} {message.operation} {message.bytes}"
                # A send is one transfer with its receive, not with the sends of other ranks.
                if message.operation not in POINT_TO_POINT:
                    key += f" {message.communicator}"
                self.messages.setdefault(key, message)
            found[key].append((start, duration, exposed))
        return {key: Calls(*np.array(calls, np.int64).T) for key, calls in found.items()}

    def frames(self, roofs: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """Return the tables of times of a job by their names; `roofs` is `comm_roofs`."""
        waits, kinds = self._compared()
        gpus = sorted(self.rows)
        launched = Counter(key for kernels in self.kernels.values() for key in kernels)
        rows = [self._row(gpu, gpus[0], waits[gpu], launched) for gpu in gpus]
        self._add_slowed(rows)
        times = pd.DataFrame(rows, columns=[c.name for c in tables.tables()["rank_times"]])
        collectives = pd.DataFrame(
            [self._kind_row(kind, roofs) for kind in kinds],
            columns=[c.name for c in tables.tables()["rank_collectives"]],
        )
        order = collectives.sort_values(["wait_ns", "kernel_id"], ascending=[False, True])
        return {
            "rank_times": tables.check(times, "rank_times"),
            "rank_collectives": tables.check(order, "rank_collectives"),
            "rank_steps": self.step_frame(waits),
            "rank_bins": self._bin_frame(waits),
            **self._call_frames(kinds, roofs),
        }

    def _compared(self) -> tuple[dict[RankGpu, Waits], list[Kind]]:
        """Compare the collectives that end together on all that have them."""
        return compare(
            {
                gpu: {key: calls for key, calls in of_gpu.items() if not self._is_rooted(key)}
                for gpu, of_gpu in self.calls.items()
            },
            self._given_clocks(),
        )

    def _bin_frame(self, waits: Mapping[RankGpu, Waits]) -> pd.DataFrame:
        """Return table `rank_bins`: the same times of all GPUs, by the first one's clock.

        GPUs whose clocks are not aligned each have the bins of their own time.
        """
        clocks = {gpu: waits[gpu].clock for gpu in self.busy}
        aligned = ((gpu, clock) for gpu, clock in clocks.items() if clock is not None)
        ends = np.array([clock.on_reference(self.busy[gpu][0, [0, -1]]) for gpu, clock in aligned])
        common = (ends.min(initial=np.inf), ends.max(initial=-np.inf))
        frames = []
        for gpu, clock in clocks.items():
            busy = self.busy[gpu]
            first, last = busy[0, [0, -1]] if clock is None else common
            times = np.linspace(first, last, self.bins + 1)
            here = times if clock is None else clock.from_reference(times)
            compute, kernels = (np.diff(np.interp(here, busy[0], row)) for row in busy[1:])
            intervals = _Steps(here, compute, kernels, kernels - compute)
            waited = self._waited_in_bins(gpu, _rounded(here), waits[gpu])
            frames.append(
                self._parts_of(gpu, intervals, waits[gpu], waited).assign(
                    start_ns=_rounded(times[:-1]), bin=np.arange(self.bins)
                )
            )
        if not frames:
            return tables.empty("rank_bins")
        columns = [column.name for column in tables.tables()["rank_bins"]]
        return tables.check(pd.concat(frames, ignore_index=True)[columns], "rank_bins")

    def _given_clocks(self) -> dict[RankGpu, Clock | None] | None:
        """Return the clocks that no collectives align; None where they do."""
        if self.align == COLLECTIVES:
            return None
        found: dict[RankGpu, Clock | None] = dict.fromkeys(self.calls)
        known = {gpu: zero for gpu, zero in self.zero_ns.items() if zero is not None}
        if self.align == EPOCH and known:
            first = known[min(known)]
            found |= {gpu: Clock(offset_ns=first - zero) for gpu, zero in known.items()}
        return found

    def _is_rooted(self, key: str) -> bool:
        """Tell whether one rank sends to all, or all to one: such a collective ends at any time."""
        return self.names.get(key.partition(" ")[0], "").partition(",")[0] in ROOTED

    def step_frame(self, waits: Mapping[RankGpu, Waits] | None = None) -> pd.DataFrame:
        """Return table `rank_steps`; empty where no stage is alike on all GPUs."""
        gpus, chosen = sorted(self.steps), self._common_stage()
        if chosen is None:
            return tables.empty("rank_steps")
        waits = self._compared()[0] if waits is None else waits
        frames = [
            self._parts_of(gpu, steps, waits[gpu], self._waited_in_steps(gpu, steps, waits[gpu]))
            .assign(
                stage=chosen,
                step=np.arange(len(steps.compute)),
                overlapped_ns=steps.overlapped,
            )
            for gpu in gpus
            for steps in (self.steps[gpu][chosen],)
        ]  # fmt: skip
        columns = [column.name for column in tables.tables()["rank_steps"]]
        return tables.check(pd.concat(frames, ignore_index=True)[columns], "rank_steps")

    def _common_stage(self) -> str | None:
        """Return the stage that all GPUs have equally often, of several that with most time."""
        gpus = sorted(self.steps)
        common = [
            stage
            for stage, steps in (self.steps[gpus[0]].items() if gpus else ())
            if all(
                stage in self.steps[gpu] and len(self.steps[gpu][stage].bounds) == len(steps.bounds)
                for gpu in gpus
            )
        ]
        return max(
            common, key=lambda s: sum(self.steps[gpu][s].kernel_ns for gpu in gpus), default=None
        )

    def _call_frames(self, kinds: Sequence[Kind], roofs: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """Return tables `collective_calls`, and `collective_waits` of those with most waiting."""
        if not kinds:
            return {name: tables.empty(name) for name in ("collective_calls", "collective_waits")}
        stage = self._common_stage()
        rows = pd.concat(
            [self._calls_of(kind, roofs, stage).assign(kind=n) for n, kind in enumerate(kinds)],
            ignore_index=True,
        )
        rows = rows.sort_values("start_ns", kind="stable", ignore_index=True)
        longest = rows.sort_values("wait_ns", ascending=False, kind="stable")
        longest = longest[longest["gpus"].cumsum() <= MOST_OF_ALL].sort_index()
        waits = [
            pd.DataFrame(
                {
                    "call": calls.index,
                    "rank": gpu[0],
                    "device": gpu[1],
                    "wait_ns": (self.calls[gpu][kind.key].duration - kind.transfer_ns)[
                        calls["instance"].to_numpy()
                    ],
                }
            )
            for n, kind in enumerate(kinds)
            for calls in (longest[longest["kind"] == n],)
            for gpu in kind.gpus
        ]
        numbered = rows.drop(columns="kind").assign(call=rows.index)
        order = pd.concat(waits, ignore_index=True).sort_values(["call", "rank", "device"])
        return {
            "collective_calls": tables.check(numbered, "collective_calls"),
            "collective_waits": tables.check(order, "collective_waits"),
        }

    def _waited_in_steps(self, gpu: RankGpu, steps: _Steps, waits: Waits) -> Array:
        """Return the part of the collectives that begin in each step that is waiting."""
        calls, count = list(self.calls[gpu].values()), len(steps.bounds) - 1

        def by_step(starts: Sequence[Array], values: Sequence[Array]) -> Array:
            at = np.searchsorted(steps.bounds, np.concatenate(starts), "right") - 1
            inside = (at >= 0) & (at < count)
            weights = np.concatenate(values)[inside]
            found: Array = np.bincount(at[inside], weights, count)
            return found

        if not calls:
            return np.zeros(count)
        total = by_step([c.start for c in calls], [c.duration for c in calls])
        return by_step([waits.starts], [waits.waited]) / np.maximum(total, 1)

    def _waited_in_bins(self, gpu: RankGpu, bounds: Array, waits: Waits) -> Array:
        """Return the part of the collectives that run in each bin that is waiting, their head."""
        calls = list(self.calls[gpu].values())
        if not calls:
            return np.zeros(len(bounds) - 1)
        starts = np.concatenate([c.start for c in calls])
        ends = starts + np.concatenate([c.duration for c in calls])
        total = np.diff(Covered(starts, ends).before(bounds))
        waiting = Covered(waits.starts, waits.starts + waits.waited)
        waited = np.diff(waiting.before(bounds))
        share: Array = waited / np.maximum(total, 1)
        return share

    def _parts_of(self, gpu: RankGpu, steps: _Steps, waits: Waits, waited: Array) -> pd.DataFrame:
        """Return what a GPU does in each of the parts of time that `steps` bounds.

        `waited` is the part of its collectives there that is waiting.
        """
        wall, exposed = np.diff(steps.bounds), steps.kernels - steps.compute
        waiting = exposed * waited
        known = waits.matched > 0 or not exposed.any()
        return pd.DataFrame(
            {
                "rank": gpu[0],
                "device": gpu[1],
                "wall_ns": _rounded(wall),
                "own_ns": _rounded(wall - exposed) if known else None,
                "compute_ns": _rounded(steps.compute),
                "wait_ns": _rounded(waiting) if known else None,
                "transfer_ns": _rounded(exposed - waiting.round()) if known else None,
                "other_ns": _rounded(wall - steps.kernels),
            }
        )

    def _add_slowed(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add to the latest GPU's lateness what the others' kernels are slower while they wait.

        A collective that waits holds SMs: in four jobs of DDP on two H100, kernels beside it took
        0.3 to 13 ms longer in all, beside 68 to 299 ms of lateness. It is what others' kernels
        take longer per launch than those of the late GPU, at most as long as their hidden
        collectives.
        """
        known = [row for row in rows if row["late_ns"] is not None]
        latest = max(known, key=lambda row: row["late_ns"], default=None)
        if latest is None or len(known) < 2 or latest["late_ns"] < LATE * latest["wall_ns"]:
            return
        of_latest = self.kernels[latest["rank"], latest["device"]]
        slowed = 0.0
        for row in known:
            if row is latest:
                continue
            longer = sum(
                max(0.0, ns - calls * of_latest[key][0] / of_latest[key][1])
                for key, (ns, calls) in self.kernels[row["rank"], row["device"]].items()
                if key in of_latest
            )
            slowed += min(longer, float(row["overlapped_ns"]))
        latest["late_ns"] += slowed / (len(known) - 1)

    def _row(
        self, gpu: RankGpu, reference: RankGpu, waits: Waits, launched: Counter[str]
    ) -> dict[str, Any]:
        facts = self.rows[gpu]
        exposed, known = facts["exposed"], waits.matched > 0
        total = sum(int(calls.duration.sum()) for calls in self.calls[gpu].values())

        def exposed_of(time_ns: int) -> int | None:
            """Return what of a time of collectives no other kernel hides, in proportion."""
            return round(exposed * time_ns / total) if known and total else None

        waited_ns = exposed_of(waits.wait_ns)
        causes = facts["idle_causes"]
        longest = max(causes, key=lambda cause: (causes[cause], cause), default="")
        clock = waits.clock if gpu != reference else None
        stage = self._common_stage()
        steps = None if stage is None else self.steps[gpu][stage]
        return {
            **{k: facts[k] for k in ("wall_ns", "compute_ns", "copies_ns", "idle_ns", "launches")},
            "matrix_ns": facts["matrix_ns"],
            "other_ns": facts["other_ns"],
            "unlike_ns": sum(
                ns
                for key, (ns, _) in self.kernels[gpu].items()
                if launched[key] == 1 and key not in self.matrix
            ),
            "rank": gpu[0],
            "device": gpu[1],
            "collective_ns": exposed,
            "overlapped_ns": max(0, total - exposed),
            "wait_ns": waited_ns,
            "first_wait_ns": exposed_of(waits.first_ns),
            "transfer_ns": None if waited_ns is None else exposed - waited_ns,
            "collectives": waits.matched,
            "late_ns": waits.late_ns if known else None,
            "late_low_ns": waits.low_ns if np.isfinite(waits.low_ns) and known else None,
            "late_high_ns": waits.high_ns if np.isfinite(waits.high_ns) and known else None,
            "last": waits.last if known else None,
            "host_step_ns": None
            if steps is None or facts["waited_ns"] is None
            else max(0.0, steps.host_ns - facts["waited_ns"] / len(steps.compute)),
            "idle_cause": longest,
            "idle_cause_ns": causes.get(longest),
            "clock": _clock_word(waits.clock, clock, self.align),
            "clock_offset_ns": None if clock is None else clock.offset_ns,
            "clock_drift_ppm": None if clock is None else clock.drift_ppm,
            "clock_at_ns": None if clock is None else clock.at_ns,
            "clock_residual_ns": clock.residual_p95_ns
            if clock is not None and clock.pairs
            else None,
        }

    def _kind_row(self, kind: Kind, roofs: pd.DataFrame) -> dict[str, Any]:
        facts, bus_bytes = self._kind_facts(kind, roofs)
        transfer = float(np.median(kind.transfer_ns))
        return {
            **facts,
            "instances": len(kind.transfer_ns),
            "transfer_ns": transfer,
            "wait_ns": kind.wait_ns.sum(),
            "bus_bandwidth": bus_bytes / transfer * 1e9 if bus_bytes else None,
        }

    def _kind_facts(self, kind: Kind, roofs: pd.DataFrame) -> tuple[dict[str, Any], float]:
        """Return what is true of each call of a kind, and its bytes as bus bandwidth counts them.

        These are 0 where no payload tells them.
        """
        message, kernel, bus_bytes = self.messages.get(kind.key), kind.key.partition(" ")[0], 0.0
        facts = {
            "kernel_id": kernel,
            "short_name": self.names.get(kernel, ""),
            "gpus": len(kind.gpus),
            "bytes": None,
            "operation": "",
            "communicator": "",
            "roof": None,
        }
        if message is not None:
            # A trace of one rank knows of no other; all GPUs that have the call make it together.
            ranks = message.ranks if message.ranks > 1 else len(kind.gpus)
            size = message.bytes * (ranks if message.operation in WHOLE else 1)
            bus_bytes = size * bus_factor(message.operation, ranks)
            facts |= {
                "bytes": size,
                "operation": message.operation,
                "communicator": message.communicator,
                "roof": roof_at(roofs, message.operation, ranks, size),
            }
        return facts, bus_bytes

    def _calls_of(self, kind: Kind, roofs: pd.DataFrame, stage: str | None) -> pd.DataFrame:
        """Return the rows of `collective_calls` of a kind, without their number in the job."""
        facts, bus_bytes = self._kind_facts(kind, roofs)
        first, instance = kind.gpus[0], np.arange(len(kind.transfer_ns))
        step: Array = np.full(len(instance), np.nan)
        if stage is not None:
            bounds = self.steps[first][stage].bounds
            at = np.searchsorted(bounds, self.calls[first][kind.key].start, "right") - 1
            step = np.where((at >= 0) & (at < len(bounds) - 1), at, np.nan)
        ranks, devices = np.array(kind.gpus).T
        return pd.DataFrame(
            {
                **facts,
                "instance": instance,
                "begins": kind.begins & (instance == 0),
                "step": step,
                "start_ns": _rounded(kind.first_ns),
                "spread_ns": _rounded(kind.spread_ns),
                "last_rank": ranks[kind.last],
                "last_device": devices[kind.last],
                "wait_ns": kind.wait_ns,
                "longest_wait_ns": kind.longest_ns,
                "longest_wait_rank": ranks[kind.longest],
                "longest_wait_device": devices[kind.longest],
                "transfer_ns": kind.transfer_ns,
                "bus_bandwidth": bus_bytes / kind.transfer_ns * 1e9 if bus_bytes else None,
            }
        )


def _rounded(times: Array) -> Array:
    rounded: Array = np.rint(times).astype(np.int64)
    return rounded


def _clock_word(clock: Clock | None, shifted: Clock | None, align: str) -> str:
    """Return by what a clock is aligned; `shifted` is None of the reference, too."""
    if clock is None:
        return EPOCH
    return align if shifted is not None else "reference"


def _steps(instances: pd.DataFrame, covered: Sequence[Covered]) -> dict[str, _Steps]:
    """Return the stages of one GPU that may be the steps of its program.

    A step also has the stages that come once with each: forward, backward and optimizer are one.
    `covered` is the time in kernels other than collectives, in any, and in collectives.
    """
    found: dict[str, _Steps] = {}
    # Most programs have many ranges that ran once: a group of rows is made of the others alone.
    often = instances["stage"].value_counts().between(FEWEST_STEPS, MOST_STEPS)
    chosen = instances[instances["stage"].isin(often.index[often])]
    by_stage = {
        str(stage): (rows["gpu_start_ns"].to_numpy(np.int64), rows["gpu_end_ns"].max(), rows)
        for stage, rows in chosen.groupby("stage", observed=True)
    }
    for stage, (starts, _, rows) in by_stage.items():
        once = [o for name, o in by_stage.items() if name == stage or _alternate(starts, o[0])]
        begins = np.min([begin for begin, _, _ in once], axis=0)
        bounds = np.maximum.accumulate(np.append(begins, max(end for _, end, _ in once)))
        compute, kernels, collective = (np.diff(time.before(bounds)) for time in covered)
        kernel_ns = int(rows["kernel_ns"].sum())
        host_ns = float(np.diff(rows["host_start_ns"].to_numpy(np.int64)).mean())
        found[stage] = _Steps(bounds, compute, kernels, collective, kernel_ns, host_ns)
    return found


def _alternate(first: Array, second: Array) -> bool:
    """Tell whether of two series of times each has one between any two of the other."""
    if len(first) != len(second):
        return False
    before, after = ((a <= b).all() and (a[1:] > b[:-1]).all() for a, b in
                     ((first, second), (second, first)))  # fmt: skip
    return bool(before or after)


def _launches(folder: Path, kernels: list[Any]) -> list[Array]:
    """Return the columns of table `launches`, kernels as their place in `kernels`."""
    number_of = {kernel: number for number, kernel in enumerate(kernels)}
    found: list[list[Array]] = [[np.zeros(0, np.int64)] for _ in COLUMNS]
    for batch in tables.batches(folder / "launches.parquet", ROWS, COLUMNS):
        ids = batch["kernel_id"].astype("category").cat
        numbers = np.array([*(number_of.get(kernel, -1) for kernel in ids.categories), -1])
        kernel = numbers[ids.codes.to_numpy()]
        known = slice(None) if kernel.min(initial=0) >= 0 else np.flatnonzero(kernel >= 0)
        columns = (kernel, *(batch[name].to_numpy() for name in COLUMNS[1:]))
        for column, values in zip(found, columns, strict=True):
            column.append(values[known].astype(np.int64))
    return [np.concatenate(column) for column in found]


def _waited_ns(folder: Path) -> float | None:
    """Return how long calls of CUDA waited on the host; None where the trace has none."""
    calls = tables.read(folder, "api_calls")
    free = (calls["calls"] * calls["median_ns"].clip(upper=FREE_CALL_NS)).astype(float)
    free[calls["name"].str.contains("Synchronize", na=False)] = 0.0
    return float((calls["total_ns"] - free).clip(lower=0.0).sum()) if len(calls) else None


def _messages(folder: Path) -> dict[int, _Message]:
    """Return what NCCL said of calls, by the start of their kernel.

    Calls of a group are one where they are of one operation and communicator, as the all-gathers of
    vLLM's data parallel engines.
    """
    together = set(OPERATIONS.values()) - POINT_TO_POINT
    return {
        int(row["start_ns"]): _Message(
            text(row["operation"]), size, text(row["communicator"]), count(row["ranks"]) or 0
        )
        for row in records(tables.read(folder, "collectives"))
        if (row["calls"] == 1 or row["operation"] in together)
        and row["communicator"]
        and (size := count(row["message_bytes"]))
    }


class Covered:
    """Time that at least one of some intervals covers (ns)."""

    def __init__(self, start: Array, end: Array) -> None:
        if (start[1:] < start[:-1]).any():  # launches are in their order already
            order = np.argsort(start, kind="stable")
            start, end = start[order], end[order]
        self._end = np.maximum.accumulate(end)
        self._begin = np.maximum(start, np.concatenate([start[:1], self._end[:-1]]))
        lengths = np.maximum(0, self._end - self._begin)
        self._total = np.concatenate([[0], np.cumsum(lengths)])

    def before(self, at: Array) -> Array:
        """Return the covered time before each of `at`."""
        if not len(self._end):
            return np.zeros(len(at), np.int64)
        done = np.searchsorted(self._begin, at, "right")
        ends = self._end[np.maximum(done - 1, 0)]
        covered: Array = self._total[done] - np.maximum(0, ends - at)
        covered[done == 0] = 0
        return covered
