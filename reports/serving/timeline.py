"""Figures over time: NVML's samples beside a step, or beside an engine, its gauges and phases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from nsight_prof.parsers.cells import Row, known, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.serving.engine import held_by
from nsight_prof.reports.page import Number, Text, Verbatim
from nsight_prof.reports.page.charts import Panel, Series, Span, TimelineFigure
from nsight_prof.reports.page.values import Words

BINS = 400
"""Points of a line: more samples are averaged, with their extremes as a band."""
PHASES = {
    "start engine": "engine starts or ends",
    "end engine": "engine starts or ends",
    "start server": "server starts or ends",
    "end server": "server starts or ends",
}
EXPERIMENTS = {
    "latency": "single request",
    "batch": "batch size",
    "lengths": "prompt and output length",
    "graphs": "other mode of the engine",
    "closed": "closed loop, clients",
    "open": "open loop, requests/s",
}
MEASURED = "measure"
LEAST_SAMPLES = 10
"""Samples beside a step that are worth a picture."""


def timeline(run: Run) -> Iterator[TimelineFigure]:
    """Yield the figure of the first process that was sampled; nothing without telemetry."""
    samples = run.telemetry[run.telemetry["source"] == "bench"]
    if samples.empty:
        return
    process = int(samples["process"].min())
    samples = samples[samples["process"] == process]
    gauges = run.engine_stats
    gauges = gauges[gauges["source"].eq("bench") & gauges["process"].eq(process)]
    spans = _spans(run, process)
    width = float(samples["t_s"].max() - samples["t_s"].min()) / BINS
    several = run.telemetry["process"].nunique() > 1
    binned = Text(" A point is the mean of {time}, a band its extremes.", time=Number(width, "s"))
    subtitle = Text(
        "Shaded: what ran; the strip names batches, lengths or loads.{binned}{process}",
        binned=binned if width > 1 else "",
        process=Text(" The first process of several.") if several else "",
    )
    yield TimelineFigure(
        name="serving-timeline",
        title="The GPU and the engine over the run",
        alt="GPU utilization, power, clock, memory, temperature, KV cache and requests over time, "
        "with the phases of the run shaded",
        x_label="seconds since the start of the target",
        panels=_drawn(_gpu_panels(run, samples), _engine_panels(gauges)),
        spans=spans,
        subtitle=subtitle,
    )


def step_timeline(run: Run, step: str) -> TimelineFigure | None:
    """Return the figure of the samples beside a step of a profile; None without two of them."""
    samples = run.telemetry[run.telemetry["source"] == step]
    working = run.launch_times["device"].unique()
    if len(working):
        samples = samples[samples["device"].isin(working)]
    if samples["t_s"].nunique() < LEAST_SAMPLES:
        return None
    return TimelineFigure(
        name="telemetry",
        title=Text("The GPU beside the step {step}", step=Verbatim(step)),
        alt="Power, clock, memory, temperature, traffic and busy units of the GPU over time",
        x_label="seconds since the start of the program",
        panels=_drawn(_gpu_panels(run, samples), _unit_panels(samples)),
        spans=(*_profiled(run, samples), *_throttled(samples)),
        subtitle="Shaded: what was profiled, and what held the clocks down.",
    )


def _drawn(*groups: Iterable[Panel]) -> tuple[Panel, ...]:
    """Return the panels that have something to show."""
    return tuple(panel for group in groups for panel in group if panel.series)


def _gpu_panels(run: Run, samples: pd.DataFrame) -> Iterable[Panel]:
    limit, top = limits_of(run)
    yield Panel("GPU utilization, %", _devices(samples, "gpu_util_pct"))
    yield Panel("Power, W", _devices(samples, "power_w"), levels=limit)
    yield Panel("SM clock, GHz", _devices(samples, "sm_clock_hz", 1e9), y_zero=False, levels=top)
    yield Panel("Memory in use, GB", _devices(samples, "memory_used_bytes", 1e9))
    yield Panel("Temperature, °C", _devices(samples, "temperature_c"), y_zero=False)


def _unit_panels(samples: pd.DataFrame) -> Iterable[Panel]:
    yield Panel("SMs active, %", _devices(samples, "sm_active_pct"))
    yield Panel("DRAM active, %", _devices(samples, "dram_active_pct"))
    yield Panel("PCIe received, GB/s", _devices(samples, "pcie_rx_bytes_per_s", 1e9))


def _profiled(run: Run, samples: pd.DataFrame) -> Iterator[Span]:
    """Give the time of the capture; the trace's clock is known of some samples."""
    known_times = samples.dropna(subset=["trace_ns"])
    if known_times.empty or run.launch_times.empty:
        return
    first = known_times.iloc[0]
    zero = float(first["t_s"]) - float(first["trace_ns"]) * 1e-9
    begin, launches = run.launch_times["start_ns"].min(), run.launch_times
    end = (launches["start_ns"] + launches["duration_ns"]).max()
    yield Span(zero + begin * 1e-9, zero + end * 1e-9, "profiled")


def _throttled(samples: pd.DataFrame) -> Iterator[Span]:
    """Give when and what held the clocks of the first GPU down, from one sample to the next."""
    of_gpu = samples[samples["device"] == samples["device"].min()].sort_values("t_s")
    times = of_gpu["t_s"].tolist()
    for begin, end, throttle in zip(times, times[1:], of_gpu["throttle"], strict=False):
        reasons = held_by(text(throttle))
        if reasons:
            yield Span(begin, end, ", ".join(reason.replace("_", " ") for reason in reasons))


def limits_of(run: Run) -> tuple[tuple[tuple[float, Words], ...], ...]:
    """Return the power limit and the highest SM clock of the GPU, as levels of a panel."""
    facts = dict(run.manifest.gpus[0]) if run.manifest.gpus else {}
    limit, top = known(facts.get("power_limit_w")), known(facts.get("sm_clock_max_hz"))
    power, clock = (Number(value, unit).at_digits(3) for value, unit in ((limit, "W"), (top, "Hz")))
    limits = ((limit, Text("power limit {power}", power=power)),) if limit else ()
    tops = ((top / 1e9, Text("maximum {clock}", clock=clock)),) if top else ()
    return limits, tops


def _engine_panels(gauges: pd.DataFrame) -> Iterable[Panel]:
    yield Panel("KV cache in use, %", _points(gauges, {"kv_usage": "KV cache"}, 0.01))
    yield Panel("Requests", _points(gauges, {"running": "running", "waiting": "waiting"}))


def _devices(samples: pd.DataFrame, column: str, unit: float = 1.0) -> tuple[Series, ...]:
    found = []
    for device, of_device in samples.groupby("device", sort=True):
        rows = of_device.dropna(subset=[column])
        if len(rows):
            at = rows["t_s"].to_numpy(float)
            found.append(_binned(f"GPU {device}", at, rows[column].to_numpy(float) / unit))
    return tuple(found)


Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]


def _binned(label: str, at: Numbers, values: Numbers) -> Series:
    """Return a line of at most BINS points; several samples of one become mean and extremes."""
    order = np.argsort(at)
    at, values = at[order], values[order]
    if len(at) <= BINS:
        return Series(label, tuple(at.tolist()), tuple(values.tolist()))
    bin_of = np.minimum(((at - at[0]) / (at[-1] - at[0]) * BINS).astype(int), BINS - 1)
    starts = np.flatnonzero(np.diff(bin_of, prepend=-1))
    counts = np.diff(np.append(starts, len(at)))
    return Series(
        label,
        tuple((np.add.reduceat(at, starts) / counts).tolist()),
        tuple((np.add.reduceat(values, starts) / counts).tolist()),
        tuple(np.minimum.reduceat(values, starts).tolist()),
        tuple(np.maximum.reduceat(values, starts).tolist()),
    )


def _points(gauges: pd.DataFrame, columns: dict[str, str], unit: float = 1.0) -> tuple[Series, ...]:
    found = []
    for column, label in columns.items():
        rows = gauges.dropna(subset=[column, "t_s"]).sort_values("t_s")
        if len(rows):
            at = rows["t_s"].to_numpy(float)
            values = rows[column].to_numpy(float) / unit
            found.append(Series(label, tuple(at.tolist()), tuple(values.tolist()), style="points"))
    return tuple(found)


def _spans(run: Run, process: int) -> tuple[Span, ...]:
    """Return the phases of a process; that of a point has the name of its experiment."""
    points = {text(row["case"]): row for row in records(run.serving_points)}
    spans = []
    for row in records(run.phases):
        begin, end = known(row["begin_s"]), known(row["end_s"])
        if text(row["source"]) != "bench" or row["process"] != process:
            continue
        if begin is None or end is None:
            continue
        point = points.get(text(row["case"]))
        if text(row["name"]) != MEASURED or point is None:
            name = text(row["name"])
            spans.append(Span(begin, end, PHASES.get(name, name)))
            continue
        experiment = text(point["experiment"])
        spans.append(Span(begin, end, EXPERIMENTS.get(experiment, experiment), _label(point)))
    return tuple(spans)


def _label(point: Row) -> str:
    """Return what a point varies, short enough for a strip: batch, rate, concurrency or prompt."""
    for column in ("request_rate", "concurrency"):
        if known(point[column]) is not None:
            return f"{point[column]:g}"
    size = point["prompt_tokens" if text(point["experiment"]) == "lengths" else "batch"]
    return f"{number(size):,.0f}" if known(size) is not None else ""
