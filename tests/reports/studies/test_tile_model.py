import numpy as np
import pytest

from nsight_prof.reports.studies.gemm_staircase.tile_model import (
    MODELS,
    Data,
    Tiling,
    best_slots,
    fit,
    quality,
)

T0, WAVE, BANDWIDTH = 3e-6, 26e-6, 4.4e12
SMS = 132
TILING = Tiling(n=8192, tile_m=128, tile_n=128)
ROWS = [*range(16, 1089, 16), 257, 513, 769, 1025, 1281, 1537, 2048, 2049]


def made(noise: float, seed: int = 1, *, slots: int = SMS, continuous: bool = False) -> Data:
    """Times of a GPU that follows the model, with relative noise."""
    moved = [2.0 * (m * 4096 + 8192 * 4096 + m * 8192) for m in ROWS]
    if continuous:
        units = [m * 8192 / (128 * 128 * slots) for m in ROWS]
    else:
        units = [float(-(-(-(-m // 128) * 64) // slots)) for m in ROWS]
    exact = [max(T0 + WAVE * u, b / BANDWIDTH) for u, b in zip(units, moved, strict=True)]
    factors = 1 + np.random.default_rng(seed).normal(0, noise, len(ROWS))
    return Data(ROWS, [t * f for t, f in zip(exact, factors, strict=True)], moved)


def test_counts_tiles_and_waves_as_worked_by_hand() -> None:
    # 8192 columns are 64 tiles: 256 rows are 2 x 64 = 128 of 132 slots; one row more 3 x 64 = 192.
    assert TILING.tiles(1) == 64
    assert TILING.tiles(256) == 128
    assert TILING.tiles(257) == 192
    assert [TILING.waves(m, SMS) for m in (1, 128, 129, 256, 257, 512, 513)] == [
        1,
        1,
        1,
        1,
        2,
        2,
        3,
    ]
    assert TILING.tail_efficiency(256, SMS) == pytest.approx(128 / 132)
    assert TILING.tail_efficiency(257, SMS) == pytest.approx(192 / 264)
    assert TILING.tile_efficiency(256) == 1
    assert TILING.tile_efficiency(257) == pytest.approx(257 / 384)
    assert TILING.edges(1, 1100, SMS) == [256, 512, 768, 1024]
    # Two CTAs on an SM: 264 slots, so that four rows of tiles (256 tiles) are one wave.
    assert TILING.edges(1, 1100, 2 * SMS) == [512, 1024]
    odd = Tiling(n=100, tile_m=64, tile_n=64)
    assert odd.tiles(65) == 4
    assert odd.tile_efficiency(65) == pytest.approx(65 * 100 / (4 * 64 * 64))


def test_clusters_make_the_grid_larger_than_the_product() -> None:
    # A cuBLAS kernel of an H200 for 513 x 8192: 43 columns of tiles become 44 in pairs, 3 rows of
    # them 132; ncu counted 1.0614 times 2MNK.
    paired = Tiling(n=8192, tile_m=176, tile_n=192, cluster_m=1, cluster_n=2)
    assert paired.tiles(513) == 3 * 44
    assert paired.waves(513, SMS) == 1
    assert 1 / paired.tile_efficiency(513) == pytest.approx(1.0614, abs=5e-5)
    assert Tiling(n=8192, tile_m=176, tile_n=192).tiles(513) == 3 * 43


def test_finds_exact_parameters_in_exact_data() -> None:
    found = fit(made(0), TILING, SMS, BANDWIDTH)
    assert found is not None
    assert found.t0_s == pytest.approx(T0)
    assert found.t_unit_s == pytest.approx(WAVE)
    assert found.quality.worst_error < 1e-9
    assert found.quality.r_squared == pytest.approx(1)


def test_intervals_hold_the_parameters_as_often_as_they_say() -> None:
    held = np.zeros(2)
    rounds = 60
    for seed in range(rounds):
        found = fit(made(0.01, seed), TILING, SMS, BANDWIDTH, seed=seed)
        assert found is not None
        for place, (interval, true) in enumerate(
            ((found.t0_interval_s, T0), (found.t_unit_interval_s, WAVE))
        ):
            held[place] += interval[0] <= true <= interval[1]
    # 95 % intervals; bootstraps of a dozen groups are a little short.
    assert (held / rounds > 0.83).all()


def test_tells_how_many_ctas_share_an_sm() -> None:
    for ctas in (1, 2, 3):
        chosen = best_slots(made(0.01, slots=ctas * SMS), TILING, SMS, BANDWIDTH)
        assert chosen is not None
        best, errors = chosen
        assert best.slots == ctas * SMS
        assert min(errors, key=errors.__getitem__) == ctas


def test_waves_beat_the_controls_only_where_there_are_waves() -> None:
    stairs, slope = made(0.01), made(0.01, continuous=True)
    found = [fit(stairs, TILING, SMS, BANDWIDTH, model) for model in MODELS]
    errors = [f.quality.median_error for f in found if f]
    assert len(errors) == 3
    assert errors[0] * 2 < min(errors[1:])
    on_slope = [fit(slope, TILING, SMS, BANDWIDTH, m) for m in ("waves", "continuous")]
    waves, control = (f.quality.median_error for f in on_slope if f)
    assert control * 2 < waves


def test_points_at_the_floor_of_memory_do_not_bend_the_fit() -> None:
    slow = 1.2e12  # a product of up to 256 rows waits for memory
    data = made(0)
    floored = [max(t, b / slow) for t, b in zip(data.seconds, data.moved, strict=True)]
    found = fit(Data(data.m, floored, data.moved), TILING, SMS, slow)
    assert found is not None
    assert found.floored > 10
    assert found.t_unit_s == pytest.approx(WAVE)
    assert found.quality.worst_error < 1e-9


def test_says_nothing_about_too_little() -> None:
    data = made(0)
    assert fit(Data(data.m[:5], data.seconds[:5], data.moved[:5]), TILING, SMS) is None
    flat = Data([16] * 8, [1e-6] * 8, [1.0] * 8)
    assert fit(flat, TILING, SMS) is None
    assert best_slots(flat, TILING, SMS) is None


def test_quality_by_hand() -> None:
    found = quality(np.array([1.0, 2.0, 4.0]), np.array([1.1, 2.0, 3.0]))
    assert found.median_error == pytest.approx(0.1)
    assert found.worst_error == pytest.approx(0.25)
    # Left over: 0.01 + 0 + 1; about the mean 7/3: 16/9 + 1/9 + 25/9.
    assert found.r_squared == pytest.approx(1 - 1.01 / (42 / 9))
