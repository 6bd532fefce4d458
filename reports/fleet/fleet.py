"""The spread of a GPU model over boards that ran one benchmark; which board is off, and why.

A case's time on a GPU is held against the median of all GPUs of the model; the median of these over
the cases of a kind (compute, caches, memory, link to the host) is how much slower the GPU is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.parsers.bench.records import MEASURED
from nsight_prof.parsers.cells import Row, grouped, known, number, records, text
from nsight_prof.parsers.errors import ProfError, UsageError
from nsight_prof.parsers.roofs.file import ROOFS_FILE, gpu_facts, read_roofs
from nsight_prof.parsers.run.run import Run

FEWEST = 3
"""GPUs of a model from which on one of them can be called off."""
DIFFERS = 0.02
"""Part by which a GPU must be slower than the median to matter."""
SPREADS = 4.0
"""Standard deviations of the GPUs of its model that it must be slower by, too."""
EXPLAINS = 0.5
"""Part of the slowness that a lower clock must explain to be its cause."""
COMPUTE, CACHES, MEMORY, LINK, ENGINE = "compute", "caches", "memory", "link", "engine"
KINDS = {
    **dict.fromkeys(("tensor", "fp64", "fp32", "fp16"), COMPUTE),
    **dict.fromkeys(("l1", "l2", "shared"), CACHES),
    "dram": MEMORY,
}
LINK_CASES = ("host/h2d/pinned/", "host/d2h/pinned/")
LINK_BYTES = 1 << 20
"""Copies from here on show the link: those of pageable memory and small ones vary by 20 % on one
H200 from process to process, with the host; these by 0.5 %."""
ENGINE_CASES = ("generate", "serve")
"""Operations that are whole requests to an engine, whose time is the host's, too."""
BUSY_PCT = 50.0
"""Samples of NVML whose clock is that of work."""
COLUMNS = (
    "case_id",
    "name",
    "operation",
    "level",
    "bytes",
    "median_s",
    "clock_hz",
    "temperature_c",
    "throttle_reasons",
)


@dataclass(frozen=True)
class Gpu:
    """A GPU and what it did: `cases` has COLUMNS; `run` is the run as the user named it."""

    run: str
    uuid: str
    model: str
    cases: pd.DataFrame


@dataclass(frozen=True)
class Outlier:
    """A GPU that is slower in a kind of cases by `slower` (0.05: 5 %).

    `cause` is clock, heat, power, memory, link, or empty where these do not explain it;
    `clock_lower` is by how much its SM clock was lower than the median, `temperature_c` its highest
    temperature. None is unknown.
    """

    run: str
    uuid: str
    kind: str
    slower: float
    cause: str
    clock_lower: float | None
    temperature_c: float | None


@dataclass(frozen=True)
class Board:
    """A GPU beside the median of its model: `slower` by kind of cases, negative where faster."""

    run: str
    uuid: str
    slower: Mapping[str, float]
    clock_lower: float | None
    temperature_c: float | None


@dataclass(frozen=True)
class Model:
    """The GPUs of one model: `spread` by kind is the slowest less the fastest (0.05: 5 %)."""

    name: str
    gpus: int
    cases: int
    spread: Mapping[str, float]
    outliers: tuple[Outlier, ...]
    boards: tuple[Board, ...]


def gpu_of(run: Run, name: str) -> Gpu:
    """Return the GPU that a run of a benchmark measured, and its cases.

    Raises:
        UsageError: the run has no measured cases, or its GPU is not known.
    """
    bench = run.bench
    measured = bench[bench["status"] == MEASURED]
    if measured.empty:
        raise UsageError(
            f"{name} has no measured cases", "give runs of a benchmark: prof run roofline"
        )
    if measured["clock_hz"].isna().all():
        measured = measured.assign(**_samples(run))
    return Gpu(name, *_identity(run, name), measured[list(COLUMNS)])


def _samples(run: Run) -> dict[str, Any]:
    """Return the clock, the temperature and what held the clock down while the GPU worked."""
    busy = run.telemetry[run.telemetry["gpu_util_pct"] >= BUSY_PCT]
    return {
        "clock_hz": busy["sm_clock_hz"].median(),
        "temperature_c": busy["temperature_c"].max(),
        "throttle_reasons": " ".join(sorted(set(busy["throttle"].dropna()))),
    }


def _identity(run: Run, name: str) -> tuple[str, str]:
    facts = [gpu_facts(gpu) for gpu in _visible(run)]
    if len(facts) != 1:
        # The manifest has all GPUs of the machine, and the roofs the one they were measured on.
        try:
            facts = [dict(read_roofs(run.path / ROOFS_FILE).gpu)]
        except ProfError:
            facts = []
    if not facts or not facts[0].get("uuid"):
        raise UsageError(
            f"which GPU {name} measured is not known",
            "measure each by itself: CUDA_VISIBLE_DEVICES=GPU-… prof run roofline --out DIR "
            "(nvidia-smi -L lists the UUIDs; a number tells which one only with "
            "CUDA_DEVICE_ORDER=PCI_BUS_ID)",
        )
    return str(facts[0]["uuid"]), str(facts[0]["name"])


def _visible(run: Run) -> list[Row]:
    """Return the GPUs of the manifest that the benchmark saw; all where that is not recorded."""
    gpus = [dict(gpu) for gpu in run.manifest.gpus]
    command = run.directory.artifact("bench", "command.json")
    if command is None:
        return gpus
    environment = json.loads(command.read_text(encoding="utf-8")).get("environment", {})
    visible = str(environment.get("CUDA_VISIBLE_DEVICES", ""))
    by_uuid = [gpu for gpu in gpus if visible and str(gpu["uuid"]).startswith(visible)]
    # CUDA's own order, "fastest first", need not be that of the manifest, which is NVML's.
    if visible.isdecimal() and environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return [gpu for gpu in gpus if gpu["device"] == int(visible)]
    return by_uuid or gpus


def fleet(gpus: Sequence[Gpu]) -> list[Model]:
    """Return each model of the GPUs, with its spread and outliers.

    Raises:
        UsageError: the GPUs of a model ran different benchmarks, or one that says nothing of them.
    """
    models = grouped(gpus, lambda gpu: gpu.model)
    return [_model(name, of_model) for name, of_model in sorted(models.items())]


def _model(name: str, gpus: Sequence[Gpu]) -> Model:
    seconds = pd.concat([_by_case(gpu, "median_s") for gpu in gpus], axis=1, join="inner")
    if seconds.empty:
        raise UsageError(
            f"{', '.join(gpu.run for gpu in gpus)} have no case in common",
            "give runs of one benchmark, a run for each GPU",
        )
    logs = np.log(seconds.to_numpy(float))
    off = logs - np.median(logs, axis=1, keepdims=True)
    facts = gpus[0].cases.drop_duplicates("case_id").set_index("case_id").loc[seconds.index]
    kinds = np.array([_kind(row) for row in records(facts)])
    slower = {
        kind: np.expm1(np.median(off[kinds == kind], axis=0))
        for kind in (COMPUTE, CACHES, MEMORY, LINK, ENGINE)
        if (kinds == kind).any()
    }
    clocks = pd.concat([_by_case(gpu, "clock_hz") for gpu in gpus], axis=1).loc[seconds.index]
    by_clock = kinds == COMPUTE if COMPUTE in slower else kinds == ENGINE
    lower = _clock_lower(clocks.to_numpy(float)[by_clock])
    if not slower:
        raise UsageError(
            f"{gpus[0].run} has no cases of arithmetic, caches, DRAM, copies or an engine",
            "prof run roofline measures all of them",
        )
    boards = tuple(
        Board(
            gpu.run,
            gpu.uuid,
            {kind: float(values[at]) for kind, values in slower.items()},
            known(lower[at]),
            _highest(gpu.cases["temperature_c"]),
        )
        for at, gpu in enumerate(gpus)
    )
    outliers = _outliers(gpus, boards, slower) if len(gpus) >= FEWEST else ()
    spread = {kind: float(np.ptp(values)) for kind, values in slower.items()}
    return Model(name, len(gpus), len(seconds), spread, tuple(outliers), boards)


def _by_case(gpu: Gpu, column: str) -> pd.Series:
    return gpu.cases.drop_duplicates("case_id").set_index("case_id")[column].astype(float)


def _kind(row: Row) -> str:
    if text(row["name"]).startswith(LINK_CASES):
        return LINK if number(row["bytes"]) >= LINK_BYTES else ""
    if text(row["operation"]) in ENGINE_CASES:
        return ENGINE
    return KINDS.get(text(row["level"]), "")


def _clock_lower(clocks: np.ndarray) -> np.ndarray:
    """Return by how much the clock of each GPU is lower than the median; NaN where unknown."""
    known = clocks[np.isfinite(clocks).all(axis=1)]
    if not len(known):
        return np.full(clocks.shape[1], np.nan)
    ratio = known / np.median(known, axis=1, keepdims=True)
    lower: np.ndarray = 1 - np.median(ratio, axis=0)
    return lower


def _outliers(
    gpus: Sequence[Gpu], boards: Sequence[Board], slower: Mapping[str, np.ndarray]
) -> Iterator[Outlier]:
    for at, (gpu, board) in enumerate(zip(gpus, boards, strict=True)):
        beyond = [kind for kind in slower if _is_off(slower[kind], at)]
        for kind in beyond:
            if kind == CACHES and COMPUTE in beyond:
                continue  # one slow clock is one finding
            value, clock = board.slower[kind], board.clock_lower
            cause = _cause(gpu, kind, value, clock)
            yield Outlier(gpu.run, gpu.uuid, kind, value, cause, clock, board.temperature_c)


def _is_off(values: np.ndarray, at: int) -> bool:
    others = np.delete(values, at)
    deviation = 1.4826 * float(np.median(np.abs(others - np.median(others))))
    return bool(values[at] > max(DIFFERS, SPREADS * deviation))


def _cause(gpu: Gpu, kind: str, slower: float, clock_lower: float | None) -> str:
    if kind in (MEMORY, LINK):
        return kind
    if clock_lower is None or clock_lower < EXPLAINS * slower:
        return ""
    reasons = " ".join(map(str, gpu.cases["throttle_reasons"].dropna()))
    return "heat" if "thermal" in reasons else "power" if "power" in reasons else "clock"


def _highest(values: pd.Series) -> float | None:
    known = values.dropna().astype(float)
    return float(known.max()) if len(known) else None
