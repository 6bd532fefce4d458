"""Turns a capture into roofs: what each memory level and each pipe can do, with its source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.parsers.metrics.catalogue import Catalogue, Roof, catalogue
from nsight_prof.parsers.ncu.capture import DURATION
from nsight_prof.parsers.roofs.confirm import verdict_name
from nsight_prof.parsers.run.sentences import joined, stored
from nsight_prof.parsers.tables import check, tables

SM_CLOCK = "sm__cycles_elapsed.avg.per_second"
L2_CLOCK = "lts__cycles_elapsed.avg.per_second"
TENSOR_ACTIVE = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
LEVELS = ("dram", "l2", "l1", "shared")
PIPES = ("tensor", "fp64", "fp32", "fp16")
SOURCES = ("measured", "counters", "datasheet")


@dataclass(frozen=True)
class Measured:
    """Measured roofs for a run: table `measured_roofs`, when and by which run they were measured.

    `measured_here`: the run measured them itself. `as_measured`: they stand at the clocks they were
    measured at, as those of the run itself do, and not at the run's. `caveat` is a clause for roofs
    of another GPU of the same kind.
    """

    roofs: pd.DataFrame
    when: str = ""
    run_id: str = ""
    measured_here: bool = True
    caveat: str = ""
    as_measured: bool = False


def build_roofs(
    gpus: pd.DataFrame,
    metrics: pd.DataFrame,
    measured: Measured | None = None,
    traced: bool = False,
) -> pd.DataFrame:
    """Compute the `roofs` table from the tables `gpus` and `metrics`, and from measured roofs.

    Rows of source ``measured`` are the ceilings among `measured`. In another run than the one that
    measured them they are scaled down, never up, by the ratio of the two runs' clocks where both
    are known: pipes, L1 and shared memory by the SM's clock, L2 by its own, DRAM not at all. Rows
    of source ``counters`` are `peak_sustained x cycles per second`, as in the roofline sections of
    Nsight Compute, at the median clock of the profiled kernels weighted by their time; for the
    Tensor Cores, by the time in which they were active, since a power limit holds the clock down
    just then. Rows of source ``datasheet`` are the DRAM bandwidth that the driver reports, and FLOP
    per clock and SM of the vendor's documents at the GPU's maximum clock, or at that of the rates
    which the vendor publishes. What is unknown has no row. A GPU is the first of `gpus`; roofs are
    of one GPU. `traced`: what is known of it is from a trace of nsys.
    """
    gpu = gpus.iloc[0] if len(gpus) else None
    known = catalogue()
    family = "" if gpu is None or pd.isna(gpu["chip"]) else known.family(str(gpu["chip"]))
    rows = [] if measured is None else list(_from_measured(measured, metrics))
    rows += _from_counters(metrics, known, family)
    if gpu is not None:
        rows += _from_driver(gpu, traced)
        rows += _from_datasheet(gpu, known, family)
    return check(pd.DataFrame(rows, columns=[c.name for c in tables()["roofs"]]), "roofs")


def ridge_points(roofs: pd.DataFrame) -> pd.DataFrame:
    """Return table `ridge_points`: where each pipe's roof meets each level's, source by source.

    The intensity is peak over bandwidth (Williams, Waterman, Patterson 2009).
    """
    rows = []
    for source in SOURCES:
        of_source = roofs[roofs["source"].eq(source) & (roofs["value"] > 0)].to_dict("records")
        memory = [row for row in of_source if row["level_or_pipe"] in LEVELS]
        for pipe in (row for row in of_source if row["level_or_pipe"] in PIPES):
            for level in memory:
                rows.append(
                    {
                        "pipe": pipe["level_or_pipe"],
                        "dtype": pipe["dtype"],
                        "level": level["level_or_pipe"],
                        "source": source,
                        "intensity": pipe["value"] / level["value"],
                        "peak": pipe["value"],
                        "bandwidth": level["value"],
                    }
                )
    columns = [c.name for c in tables()["ridge_points"]]
    return check(pd.DataFrame(rows, columns=columns), "ridge_points")


def _from_measured(measured: Measured, metrics: pd.DataFrame) -> Iterator[dict[str, Any]]:
    by_profile = metrics.pivot_table(index="profile", columns="metric", values="value")
    ceilings = measured.roofs[measured.roofs["is_ceiling"].fillna(False)]
    for row in ceilings.to_dict("records"):
        level, dtype = str(row["level_or_pipe"]), str(row["dtype"] or "")
        value, scaled = float(row["value"]), ""
        clock_of, clock = _clock_of(row)
        if clock_of and not (measured.measured_here or measured.as_measured):
            here, _ = _clock(by_profile, Roof(level, "", 1.0, clock_of, dtype))
            if 0 < here < clock:
                scaled = stored(
                    "{value:.4g} {unit} at {clock:.3f} GHz, scaled to {here:.3f} GHz, the "
                    "median clock of the profiled kernels",
                    value=value,
                    unit=row["unit"],
                    clock=clock / 1e9,
                    here=here / 1e9,
                )
                value, clock = value * here / clock, here
        yield _row(
            level, dtype, value, "measured", clock, joined("; ", [_how(row, measured), scaled])
        )


def _clock_of(row: dict[Any, Any]) -> tuple[str, float]:
    """Return the counter of the clock that a measured roof goes by, and that clock in Hz."""
    level = str(row["level_or_pipe"])
    if level == "dram":
        return "", np.nan
    if level == "l2":
        return L2_CLOCK, float(row["l2_clock_hz"])
    return SM_CLOCK, float(row["clock_hz"])


def _how(row: dict[Any, Any], measured: Measured) -> str:
    """Say how a measured roof came about."""
    when = stored("measured {when}", when=measured.when)
    if measured.run_id and not measured.measured_here:
        when = stored("measured {when} by run {run_id}", when=measured.when, run_id=measured.run_id)
    candidates, processes, samples = (row[name] for name in ("candidates", "processes", "samples"))
    counts = []
    if pd.notna(candidates) and candidates != 1:
        counts.append(stored("best of {candidates:.0f} tried", candidates=candidates))
    if pd.notna(samples) and processes == 1:
        counts.append(stored("{samples:.0f} samples in 1 process", samples=samples))
    elif pd.notna(samples):
        counts.append(
            stored(
                "{samples:.0f} samples in {processes:.0f} processes",
                samples=samples,
                processes=processes,
            )
        )
    counts += [when] if measured.when else []
    notes = [
        joined(", ", [f"{row['kind']}: {row['case_id']}", *counts]),
        stored("{verdict}: {reason}", verdict=verdict_name(row["accepted"]), reason=row["reason"]),
        measured.caveat,
    ]
    return joined("; ", notes)


def _from_counters(
    metrics: pd.DataFrame, known: Catalogue, family: str
) -> Iterator[dict[str, Any]]:
    medians = metrics.groupby("metric")["value"].median()
    by_profile = metrics.pivot_table(index="profile", columns="metric", values="value")
    families = [family] if family else list(known.tensor)
    tensor = {
        Roof("tensor", counter.peak, 1.0, SM_CLOCK, dtype)
        for chip in families
        for dtype, counter in known.tensor[chip].items()
    }
    done = set()
    for roof in [*known.roofs, *sorted(tensor, key=lambda r: r.dtype)]:
        peak = medians.get(roof.peak, np.nan)
        if (roof.level, roof.dtype) in done or not peak > 0:
            continue
        clock, weighting = _clock(by_profile, roof)
        if not clock > 0:
            continue
        done.add((roof.level, roof.dtype))
        factor = f" x {roof.factor:g}" if roof.factor != 1 else ""
        detail = stored(
            "{peak} ({cycle:g} a cycle){factor} x {clock} ({ghz:.3f} GHz, median of the "
            "profiled kernels{weighting})",
            peak=roof.peak,
            cycle=peak,
            factor=factor,
            clock=roof.clock,
            ghz=clock / 1e9,
            weighting=weighting,
        )
        yield _row(roof.level, roof.dtype, peak * roof.factor * clock, "counters", clock, detail)


def _clock(by_profile: pd.DataFrame, roof: Roof) -> tuple[float, str]:
    """Return the clock in Hz that stands for the capture, and how the kernels were weighted."""
    columns = by_profile.reindex(columns=[roof.clock, DURATION, TENSOR_ACTIVE])
    clocks, durations, tensor_active = (columns[name] for name in columns)
    if roof.level == "tensor" and (tensor_time := durations * tensor_active).sum() > 0:
        weights, words = tensor_time, stored(", weighted by the time of active Tensor Cores")
    elif durations.sum() > 0:
        weights, words = durations, stored(", weighted by their time")
    else:
        return float(clocks.median()), ""
    known = pd.DataFrame({"clock": clocks, "weight": weights}).dropna().sort_values("clock")
    if known.empty:
        return float("nan"), ""
    middle = int(known["weight"].cumsum().searchsorted(known["weight"].sum() / 2))
    return float(known["clock"].iloc[middle]), words


def _from_driver(gpu: pd.Series, traced: bool) -> list[dict[str, Any]]:
    bandwidth = gpu["memory_bandwidth"]
    if pd.isna(bandwidth) or bandwidth <= 0:
        return []
    detail = stored("theoretical bandwidth as the driver reports it")
    if traced:
        detail = stored(
            "theoretical bandwidth as the driver reports it (TARGET_INFO_GPU of the trace)"
        )
    return [_row("dram", "", float(bandwidth), "datasheet", np.nan, detail)]


def _from_datasheet(gpu: pd.Series, known: Catalogue, family: str) -> Iterator[dict[str, Any]]:
    sheet = known.datasheets.get(family)
    facts = gpu[["sm_count", "clock_hz"]]
    if sheet is None or facts.isna().any():
        return
    pipes = [(pipe, pipe, rate) for pipe, rate in sheet.pipes.items()]
    tensor = [("tensor", dtype, rate) for dtype, rate in sheet.tensor.items()]
    for level, dtype, rate in pipes + tensor:
        clock, name = float(gpu["clock_hz"]), stored("maximum clock")
        if level == "tensor" and dtype != "fp64" and sheet.tensor_clock_hz < clock:
            clock, name = (
                sheet.tensor_clock_hz,
                stored(
                    "{tensor_clock_hz:g} GHz as published",
                    tensor_clock_hz=sheet.tensor_clock_hz / 1e9,
                ),
            )
        value = rate * float(gpu["sm_count"]) * clock
        detail = stored(
            "{rate:g} FLOP per clock and SM x {sm_count:.0f} SMs x {name}; {source}",
            rate=rate,
            sm_count=gpu["sm_count"],
            name=name,
            source=sheet.source,
        )
        yield _row(level, dtype, value, "datasheet", clock, detail)


def _row(
    level: str, dtype: str, value: float, source: str, clock_hz: float, detail: str
) -> dict[str, Any]:
    unit = "B/s" if level in ("dram", "l2", "l1", "shared") else "FLOP/s"
    return {
        "level_or_pipe": level,
        "dtype": dtype,
        "value": value,
        "unit": unit,
        "source": source,
        "clock_hz": clock_hz,
        "detail": detail,
    }
