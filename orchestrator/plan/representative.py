"""Chooses one window of launches for all selected kernels, so that one ncu run profiles them all.

ncu's `--filter-mode per-launch-config --launch-skip S --launch-count C` has one skip and one count,
and counts the launches of each mangled name x grid x block x shared memory apart, in each process
(seen with ncu 2025.3.1). A launch is profiled where S <= its position in that count < S + C.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nsight_prof.parsers.run.selection import TYPICAL_WITHIN

TOLERANCE = TYPICAL_WITHIN  # a launch this near to the typical duration stands for its kernel
SPREAD = 1.5  # ninth over first decile of the durations: the launches do not all do the same work
MAX_COUNT = 3  # each further launch costs all replay passes of all kernels once more
WORTH = 0.05  # share of time that a further launch must bring near its typical duration
MAX_SKIP = 10_000  # ncu has to run the program as far as the window

_CONFIG = ["kernel_id", "pid", "static_shared_bytes", "dynamic_shared_bytes"]


@dataclass(frozen=True)
class Window:
    """Skip and count for ncu, and per kernel the launch in the window nearest its typical one.

    `launches` are values of launches.index; `deviations` are duration over typical minus 1. Kernels
    of `mixed` have launches that do different work.
    """

    skip: int
    count: int
    launches: dict[str, int]
    deviations: dict[str, float]
    mixed: frozenset[str] = frozenset()


def choose_window(launches: pd.DataFrame, weights: Mapping[str, float]) -> Window:
    """Return the smallest window in which every kernel has a launch near its typical duration.

    That is the median; where the launches do different work (a persistent GEMM kernel serves many
    shapes with one grid), the length at which half of the kernel's GPU time is reached.

    `weights` names the kernels and says what each counts, its GPU time. Of the windows with the
    fewest launches, the one with the smallest weighted deviation wins, to 0.1 %, then the earliest.
    Where no window of up to MAX_COUNT launches is near enough for all kernels, every kernel still
    has a launch in it, and as little weight as possible is too far from it, without paying a
    further launch for less than WORTH of the weight.
    """
    frame = _positions(launches, weights)
    if frame.empty:
        return Window(0, 1, {}, {})
    matrix, weight = _deviation_matrix(frame, weights)
    skip, count = _best_window(matrix, weight)
    inside = frame[(frame["position"] >= skip) & (frame["position"] < skip + count)]
    nearest = inside.loc[inside.groupby("kernel_id", sort=False)["distance"].idxmin()]
    ids = nearest["kernel_id"].tolist()
    return Window(
        skip,
        count,
        dict(zip(ids, nearest["index"].astype(int).tolist(), strict=True)),
        dict(zip(ids, nearest["deviation"].astype(float).tolist(), strict=True)),
        frozenset(frame.loc[frame["mixed"], "kernel_id"]),
    )


def _positions(launches: pd.DataFrame, kernels: Mapping[str, float]) -> pd.DataFrame:
    """Return the launches of `kernels`, ncu's count of them and how far each is from typical."""
    columns = [*_CONFIG, "index", "duration_ns"]
    frame = launches.loc[launches["kernel_id"].isin(list(kernels)), columns].copy()
    frame["kernel_id"] = frame["kernel_id"].astype(str)
    frame = frame.sort_values("index", kind="stable", ignore_index=True)
    frame["position"] = frame.groupby(_CONFIG, dropna=False, sort=False).cumcount()
    duration = frame["duration_ns"].astype(float)
    groups = duration.groupby(frame["kernel_id"], sort=False)
    typical = groups.transform(_typical)
    frame["deviation"] = (duration / typical.where(typical > 0) - 1).fillna(0.0)
    frame["mixed"] = groups.transform("quantile", 0.9) > SPREAD * groups.transform("quantile", 0.1)
    frame["distance"] = frame["deviation"].abs()
    return frame


def _typical(durations: pd.Series[float]) -> float:
    """Return the duration that stands for a kernel: see choose_window.

    A single long launch, a warm-up for one, is no work of its own: it takes two of about a length.
    """
    low, median, high = durations.quantile([0.1, 0.5, 0.9])
    if high <= SPREAD * low:
        return float(median)
    ordered = durations.sort_values()
    half = int((ordered.cumsum() >= ordered.sum() / 2).to_numpy().argmax())
    most_time = float(ordered.iloc[half])
    alike = (durations / most_time - 1).abs() <= TOLERANCE
    return most_time if alike.sum() > 1 else float(median)


def _deviation_matrix(
    frame: pd.DataFrame, weights: Mapping[str, float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return distance by kernel and position, and the kernels' weights.

    The last MAX_COUNT - 1 positions are there to fill windows; none starts there, since a kernel
    with fewer launches would be missed.
    """
    codes, ids = pd.factorize(frame["kernel_id"])
    fewest_launches = int(frame["position"].groupby(codes).max().min()) + 1
    width = min(fewest_launches, MAX_SKIP + 1) + MAX_COUNT - 1
    matrix = np.full((len(ids), width), np.inf)
    position = frame["position"].to_numpy()
    near = position < width
    np.minimum.at(matrix, (codes[near], position[near]), frame["distance"].to_numpy()[near])
    weight = np.nan_to_num(np.array([float(weights[key]) for key in ids]))
    return matrix, weight / weight.sum() if weight.sum() > 0 else np.full(len(ids), 1 / len(ids))


def _best_window(matrix: NDArray[np.float64], weight: NDArray[np.float64]) -> tuple[int, int]:
    starts = matrix.shape[1] - MAX_COUNT + 1
    found: list[tuple[float, int, int]] = []  # weight too far from typical, start, count
    for count in range(1, MAX_COUNT + 1):
        distance = np.min([matrix[:, shift : shift + starts] for shift in range(count)], axis=0)
        far = distance > TOLERANCE
        outside = np.round(weight @ far, 3)
        outside[far.any(axis=0) & (outside == 0)] = 0.001
        start = int(np.lexsort((np.round(weight @ distance, 3), outside))[0])
        if outside[start] == 0:
            return start, count
        found.append((float(outside[start]), start, count))
    lowest = min(found)[0]
    return next((start, count) for deviation, start, count in found if deviation < lowest + WORTH)
