"""The launch window against a search of all windows, and at its edges."""

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsight_prof.orchestrator.plan.representative import MAX_COUNT, TOLERANCE, WORTH, choose_window

Configs = list[list[list[int]]]  # kernel -> process or shared memory size -> durations


def launches_of(kernels: Configs) -> pd.DataFrame:
    rows = []
    for number, configs in enumerate(kernels):
        index = 0
        for config, durations in enumerate(configs):
            for duration in durations:
                rows.append((f"k{number}", index, duration, config % 2, config // 2))
                index += 1
    frame = pd.DataFrame(rows, columns=["kernel_id", "index", "duration_ns", "pid", "shared"])
    frame = frame.rename(columns={"shared": "dynamic_shared_bytes"})
    return frame.assign(static_shared_bytes=0).astype({"kernel_id": "category"})


def search_all_windows(kernels: Configs, weights: list[float]) -> tuple[int, int]:
    """Try every window that has a launch of every kernel; return skip and count of the best."""
    reach = min(max(len(durations) for durations in configs) for configs in kernels)
    best = []
    for count in range(1, MAX_COUNT + 1):
        scores = [score(kernels, weights, skip, count) for skip in range(reach)]
        best.append((*min(scores), count))
    whole = [(skip, count) for outside, _, skip, count in best if outside == 0]
    if whole:
        return whole[0]
    least = min(outside for outside, _, _, _ in best)
    return next((skip, count) for outside, _, skip, count in best if outside < least + WORTH)


def score(
    kernels: Configs, weights: list[float], skip: int, count: int
) -> tuple[float, float, int]:
    distances = []
    for configs in kernels:
        median = pd.Series([d for durations in configs for d in durations], dtype=float).median()
        inside = [d for durations in configs for d in durations[skip : skip + count]]
        distances.append(min(abs(d / median - 1) for d in inside))
    outside = [w for w, d in zip(weights, distances, strict=True) if d > TOLERANCE]
    share = max(round(sum(outside) / sum(weights), 3), 0.001) if outside else 0.0
    deviation = sum(w * d for w, d in zip(weights, distances, strict=True)) / sum(weights)
    return share, round(deviation, 3), skip


durations = st.lists(st.integers(90, 115), min_size=1, max_size=7)
kernels = st.lists(st.lists(durations, min_size=1, max_size=3), min_size=1, max_size=4)


@given(kernels, st.lists(st.integers(1, 100), min_size=4, max_size=4))
@settings(max_examples=settings().max_examples // 3)
def test_the_window_is_the_best_of_all_windows(kernels: Configs, weights: list[int]) -> None:
    parts = [float(weight) for weight in weights[: len(kernels)]]
    window = choose_window(
        launches_of(kernels), {f"k{number}": weight for number, weight in enumerate(parts)}
    )
    assert (window.skip, window.count) == search_all_windows(kernels, parts)


@given(kernels)
@settings(max_examples=settings().max_examples // 3)
def test_every_kernel_has_its_launch_inside_the_window(kernels: Configs) -> None:
    window = choose_window(launches_of(kernels), {f"k{n}": 1.0 for n in range(len(kernels))})
    assert 1 <= window.count <= MAX_COUNT
    for number, configs in enumerate(kernels):
        positions = [position for config in configs for position in range(len(config))]
        position = positions[window.launches[f"k{number}"]]
        assert window.skip <= position < window.skip + window.count


def test_a_warm_up_launch_is_skipped() -> None:
    window = choose_window(launches_of([[[500, 100, 101, 100]]]), {"k0": 1.0})
    assert (window.skip, window.count, window.launches) == (1, 1, {"k0": 1})


def test_a_kernel_launched_once_keeps_the_window_at_the_start() -> None:
    window = choose_window(launches_of([[[500, 100, 100, 100]], [[50]]]), {"k0": 10.0, "k1": 1.0})
    assert (window.skip, window.count) == (0, 2)
    assert window.launches == {"k0": 1, "k1": 0}


def test_a_kernel_far_from_its_median_everywhere_in_reach_is_told() -> None:
    window = choose_window(launches_of([[[300, 300, 300] + [100] * 9], [[50]]]), {"k0": 1, "k1": 1})
    assert window.deviations["k0"] == pytest.approx(2.0)
    assert (window.skip, window.count) == (0, 1)


def test_a_further_launch_is_not_paid_for_a_kernel_that_hardly_counts() -> None:
    tiny, large = [[50, 400, 100, 100, 100]], [[100, 100]]
    never = [[100, 200]]  # its median lies between its launches
    launches = launches_of([tiny, large, never])
    window = choose_window(launches, {"k0": 1.0, "k1": 90.0, "k2": 9.0})
    assert (window.skip, window.count) == (0, 1)
    window = choose_window(launches, {"k0": 20.0, "k1": 71.0, "k2": 9.0})
    assert (window.skip, window.count) == (1, 2)


def test_launches_of_different_work_are_served_where_most_of_the_time_goes() -> None:
    # Two layers of three products in one persistent kernel: the median lies at the shortest or
    # between two of them, most of the time is in the longest.
    layers = [515, 337, 1179, 516, 338, 1179]
    window = choose_window(launches_of([[layers], [[50] * 6]]), {"k0": 4060.0, "k1": 300.0})
    assert (window.skip, window.count, window.launches["k0"]) == (2, 1, 2)
    assert window.mixed == {"k0"}
    assert abs(window.deviations["k0"]) <= TOLERANCE


def test_processes_and_shared_memory_sizes_count_apart() -> None:
    window = choose_window(launches_of([[[100, 100], [300], [100]]]), {"k0": 1.0})
    assert (window.skip, window.launches["k0"]) == (0, 0)


def test_launches_of_other_kernels_do_not_matter() -> None:
    window = choose_window(launches_of([[[100, 100]], [[1]]]), {"k0": 1.0})
    assert set(window.launches) == {"k0"}


def test_no_launch_at_all_gives_the_first_launch() -> None:
    window = choose_window(launches_of([[[100]]]), {"other": 1.0})
    assert (window.skip, window.count, window.launches) == (0, 1, {})
