"""Predicts whole networks from measured operations, or holds predictions against measured ones."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from nsight_prof.orchestrator.predict.run_folder import opened, write_tables
from nsight_prof.orchestrator.predict.sources import Source
from nsight_prof.orchestrator.report.reporting import make_report
from nsight_prof.parsers import tables
from nsight_prof.parsers.cells import Row, known, records
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.operations.models import (
    FUSED,
    TARGET,
    Key,
    NetworkKernels,
    network_kernels,
)
from nsight_prof.parsers.operations.networks import (
    COMPILED,
    EAGER,
    GRAPH,
    Network,
    NetworkTime,
    bundled_networks,
    host_factors,
    network_time,
    read_network,
)
from nsight_prof.parsers.predict.costs import Gpu, datasheet, note
from nsight_prof.parsers.predict.validation import HELD_OUT, NETWORK, errors_frame
from nsight_prof.parsers.run.directory import RunDir

if TYPE_CHECKING:
    from nsight_prof.reports.render.drawing import Draw

BATCHES = (1, 8, 32)


@dataclass(frozen=True)
class Measured:
    """Recorded runs of the target network_kernels, all of one kind of GPU."""

    sources: tuple[Source, ...]

    @cached_property
    def gpu(self) -> Gpu:
        """The GPU that they were measured on.

        Raises:
            UsageError: there is no run, or they are of several GPUs.
        """
        names = sorted({source.gpu_name for source in self.sources})
        if len(names) != 1:
            raise UsageError(
                f"the runs are of several GPUs: {', '.join(names)}"
                if names
                else "a network is predicted from measured operations, and no run was given",
                "name runs of one GPU: prof run network-kernels, then --on RUN",
            )
        return datasheet(names[0])

    @cached_property
    def l2_bytes(self) -> float:
        """Size of its L2 cache."""
        sizes = [
            known(size) for source in self.sources for size in source.table("gpus")["l2_bytes"]
        ]
        return max((size for size in sizes if size is not None), default=0.0)

    @cached_property
    def kernels(self) -> NetworkKernels:
        """The models of the operations that they measured.

        Raises:
            UsageError: they measured none.
        """
        gpu = self.gpu
        bench = pd.concat([source.table("bench") for source in self.sources])
        found = network_kernels(bench, gpu, self.l2_bytes)
        if not found.models:
            raise UsageError(
                "the runs hold no measured operations of networks",
                "measure them on this GPU: prof run network-kernels",
            )
        return found

    def times(self, network: Network) -> Iterator[NetworkTime]:
        """Give the times of a network at its batch: by the host, in a graph, and compiled."""
        for launch in (EAGER, GRAPH, COMPILED):
            if launch != COMPILED or self._compiles(network):
                yield self.time(network, launch)

    def time(self, network: Network, launch: str, unseen: str = "") -> NetworkTime:
        """Return the time of a network at its batch; `unseen`: it tells nothing of its own host."""
        host = host_factors(unseen)
        return network_time(self.kernels, network, launch, self.l2_bytes, host)

    def _compiles(self, network: Network) -> bool:
        """Tell whether merged operations of its type were measured, and it has any."""
        merged = [operation for operation in network.compiled().operations if operation.op == FUSED]
        return bool(merged) and all(map(self.kernels.knows, merged))


def predict_network(
    name: str, runs: Sequence[Path], batches: Sequence[int] | None, out: Path | None, draw: Draw
) -> tuple[RunDir, tuple[str, ...]]:
    """Predict a network at some batches, or at BATCHES; return the new run and its findings.

    `draw`: what draws the pictures (`reporting.drawing`).

    Raises:
        UsageError: the runs do not allow it, or `out` is not empty.
    """
    network, measured = read_network(name), Measured(tuple(map(opened, runs)))
    points: list[Row] = []
    operations: list[Row] = []
    for batch in batches or BATCHES:
        for time in measured.times(network.at(batch)):
            case = _case(network.name, batch, time.launch)
            points.append(_point(case, batch, time, measured.gpu))
            operations += [{"case": case, **row} for row in _operations(time, measured.gpu)]
    found = {
        "predicted_networks": _frame("predicted_networks", points),
        "predicted_operators": _frame("predicted_operators", operations),
    }
    run = write_tables(network.name, out, found, "predict", _recipe(network, measured), NOTES)
    headline, _ = make_report(run, draw=draw)
    return run, headline


NOTES = (note("one-by-one"),)


def _recipe(network: Network, measured: Measured) -> dict[str, Any]:
    return {
        "name": f"{network.name} on {measured.gpu.name}",
        "question": "How long does a pass of this network take on this GPU?",
        "predict": {
            "model": network.name,
            "gpu": measured.gpu.name,
            "datasheet": measured.gpu.source,
            "on": [source.name for source in measured.sources],
            "weight_bytes": network.weight_bytes,
        },
    }


def _case(name: str, batch: int, launch: str) -> str:
    return f"{name}/b{batch}/{launch}"


def _frame(table: str, rows: Sequence[Row]) -> pd.DataFrame:
    names = [column.name for column in tables.tables()[table]]
    return tables.check(pd.DataFrame(rows, columns=names), table)


def _point(case: str, batch: int, time: NetworkTime, gpu: Gpu) -> Row:
    seconds, low, high, tier = time.seconds
    return {
        "case": case,
        "network": time.network.name,
        "gpu": gpu.name,
        "batch": batch,
        "launch": time.launch,
        "seconds": seconds,
        "seconds_low": low,
        "seconds_high": _finite(high),
        "per_second": batch / seconds,
        "gpu_s": time.gpu.seconds,
        "host_s": time.host_s,
        "bound_by": time.bound,
        "operations": sum(timed.operation.calls for timed in time.operations),
        "flops": time.network.flops,
        "weight_bytes": time.network.weight_bytes,
        "tier": tier,
    }


def _operations(time: NetworkTime, gpu: Gpu) -> Iterator[Row]:
    """Yield the operations of a network, those of one kind and size together."""
    together: dict[tuple[Key, Any, int], list[Any]] = {}
    for timed in time.operations:
        together.setdefault(
            (timed.operation.key, timed.operation.sizes, timed.operation.rows), []
        ).append(timed)
    for same in together.values():
        operation = same[0].operation
        calls = sum(timed.operation.calls for timed in same)
        computing = calls * operation.flops / gpu.flop_per_s
        moved = calls * (operation.activation_bytes + operation.weight_bytes)
        moving = moved / gpu.bytes_per_s
        seconds = sum(timed.gpu.seconds for timed in same)
        sizes = (("rows", operation.rows), *operation.sizes)
        words = " ".join(f"{name} {value}" for name, value in sizes)
        yield {
            "kind": time.launch,
            "operator": f"{operation.key} {words}",
            "group": operation.op,
            "calls": calls,
            "m": operation.rows,
            "flops": calls * operation.flops,
            "bytes": moved,
            "seconds": seconds,
            "seconds_low": sum(timed.gpu.low for timed in same),
            "seconds_high": _finite(sum(timed.gpu.high for timed in same)),
            "share": seconds / time.gpu.seconds,
            "roofline_s": max(computing, moving),
            "bound_by": "tensor" if computing > moving else "dram",
            "tier": min(timed.gpu.tier for timed in same),
        }


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.nan


def measured_networks(source: Source) -> list[tuple[str, int, str, float]]:
    """Return the networks that a run measured whole: name, batch, launch, seconds."""
    bench = source.table("bench")
    rows = bench[bench["target"].eq(TARGET) & bench["status"].eq("ok")]
    params = [(json.loads(row["params"]), row) for row in records(rows[["params", "median_s"]])]
    return [
        (str(of["op"]), int(of["rows"]), str(of["variant"]), float(row["median_s"]))
        for of, row in params
        if of["family"] == "network"
    ]


def validate_networks(
    truth: Path, runs: Sequence[Path], out: Path | None
) -> tuple[RunDir, tuple[str, ...], pd.DataFrame]:
    """Hold predictions against networks that `truth` measured whole.

    All are held out: no time of a whole network is in any model but that of the host, which has
    those of others.

    Raises:
        UsageError: `truth` has no such network that is bundled, or none can be predicted.
    """
    source, measured = opened(truth), Measured(tuple(map(opened, runs)))
    rows, notes = [], list(NOTES)
    for name, batch, launch, seconds in measured_networks(source):
        if name not in bundled_networks():
            continue
        network = read_network(name).at(batch)
        try:
            time = measured.time(network, launch, unseen=name)
        except UsageError as error:
            words = {"network": name, "launch": launch, "reason": error.message}
            notes.append(note("network-unknown", **words))
            continue
        predicted, low, high, tier = time.seconds
        rows.append(
            {
                "sample": HELD_OUT, "source": source.name, "scope": NETWORK, "name": launch,
                "group": name, "kind": "", "case": _case(name, batch, launch),
                "measured": seconds, "predicted": predicted, "low": low, "high": _finite(high),
                "error": predicted / seconds - 1, "covered": bool(low <= seconds <= high),
                "tier": tier,
            }
        )  # fmt: skip
    if not rows:
        raise UsageError(
            f"{truth} has no whole network that can be predicted",
            "prof run network-kernels --set 'target.args.families=[network]' measures some",
        )
    found = errors_frame(rows)
    recipe = _recipe(Network(source.name, ()), measured)
    run = write_tables(source.name, out, {"prediction_errors": found}, "validate", recipe, notes)
    headline, _ = make_report(run)
    return run, headline, found


def has_networks(path: Path) -> bool:
    """Tell whether a recorded run measured networks whole."""
    return bool(measured_networks(opened(path)))
