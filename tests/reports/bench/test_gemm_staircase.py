"""The section on a made-up GPU that follows the tile model, with a kernel that cuBLAS would use."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nsight_prof.reports.bench.gemm_staircase import section
from nsight_prof.reports.bench.gemm_staircase_points import curves, read_points
from nsight_prof.reports.bench.gemm_staircase_steps import inversions, odd_sizes, worst_step
from nsight_prof.reports.load import Run
from nsight_prof.reports.page.charts import LineFigure

N, K, SMS = 8192, 4096, 132
T0, BANDWIDTH = 3e-6, 4.4e12
WAVE = {"bf16": 26e-6, "fp8": 14e-6}
SIZE = {"bf16": 2, "fp8": 1}
EDGES = (256, 512, 768, 1024)
ROWS = sorted({*range(16, 1089, 16), *EDGES, *(e + 1 for e in EDGES), 127, 129, 383, 385, 641})
MakeRow = Callable[..., dict[str, Any]]
MakeRun = Callable[..., Run]


def moved(m: int, n: int, k: int, dtype: str) -> float:
    return (m * k + n * k) * SIZE[dtype] + m * n * 2


def waves(m: int, tile_m: int, tile_n: int) -> int:
    return math.ceil(math.ceil(m / tile_m) * math.ceil(N / tile_n) / SMS)


def params(group: str, variant: str, m: int, n: int = N, k: int = K) -> dict[str, Any]:
    found: dict[str, Any] = {"set": group, "variant": variant, "m": m, "n": n, "k": k}
    if variant == "triton":
        found |= {"tile_m": 128, "tile_n": 128, "tile_k": 64, "stages": 4}
    return found


@pytest.fixture
def rows(bench_row: MakeRow) -> list[dict[str, Any]]:
    """Sweeps by Triton (128x128) and cuBLAS (128 rows x 256 columns), batches, odd sizes."""
    noise = np.random.default_rng(3)

    def row(dtype: str, words: dict[str, Any], exact: float, **columns: Any) -> dict[str, Any]:
        m, n, k = (words[side] for side in "mnk")
        label = f"{words['set']}/{dtype}/{words['variant']}/{m}x{n}x{k}"
        return bench_row(
            label, target="gemm_staircase", dtype=dtype, params=words, flops=2.0 * m * n * k,
            bytes=moved(m, n, k, dtype), median_s=exact * (1 + noise.normal(0, 0.004)), **columns,
        )  # fmt: skip

    made = []
    for dtype, wave in WAVE.items():
        kernel = f"cuBLAS GEMM, {dtype}, tile 256x128x64, 4 stages, cluster 2x1, TN"
        for m in ROWS:
            own = max(T0 + wave * waves(m, 128, 128), moved(m, N, K, dtype) / BANDWIDTH)
            made.append(row(dtype, params("sweep", "triton", m), own, tensor_pct=60.0))
            best = max(T0 + 1.6 * wave * waves(m, 128, 256), moved(m, N, K, dtype) / BANDWIDTH)
            seen = {"kernel_names": kernel, "tensor_pct": 80.0} if m % 64 <= 1 else {}
            made.append(row(dtype, params("sweep", "cublas", m), best, **seen))
        for m in (1, 2, 4, 8, 16, 32, 64):
            exact = moved(m, N, K, dtype) / BANDWIDTH
            made.append(row(dtype, params("batch", "cublas", m), exact))
        base = 2 * 4096**3 / 700e12
        made.append(row(dtype, params("odd", "cublas", 4096, 4096, 4096), base))
        made.append(row(dtype, params("odd", "cublas", 4097, 4096, 4096), base * 1.05))
        if dtype == "bf16":
            odd = params("odd", "cublas", 4096, 4096, 4097)
            made.append(row(dtype, odd, base * 2, kernel_names="sm80 kernel"))
            made.append(row(dtype, params("odd", "cublas", 4096, 4096, 4104), base * 1.002))
        else:
            odd = params("odd", "cublas", 4096, 4096, 4097)
            refused = row(dtype, odd, base) | {"status": "unsupported", "reason": "K % 16"}
            made.append(refused | {key: None for key in ("median_s", "flop_per_s", "clock_hz")})
    return made


def test_reads_tiles_of_names_and_of_parameters(
    make_bench_run: MakeRun, rows: list[dict[str, Any]]
) -> None:
    points, refused = read_points(make_bench_run(rows, target="gemm_staircase"))
    assert len(points) + len(refused) == len(rows)
    by_shape = {(p.group, p.dtype, p.variant, p.m): p for p in points}
    # cuBLAS is column-major: its 256 runs along N.
    library = by_shape["sweep", "bf16", "cublas", 257].tiling
    assert library is not None
    assert (library.tile_m, library.tile_n) == (128, 256)
    pinned = by_shape["sweep", "bf16", "triton", 272].tiling
    assert pinned is not None
    assert (pinned.tile_m, pinned.tile_n) == (128, 128)
    assert by_shape["sweep", "bf16", "cublas", 272].tiling is None  # not counted
    assert [one.reason for one in refused] == ["K % 16"]


def test_counted_flops_tell_how_a_tile_lies(make_bench_run: MakeRun, bench_row: MakeRow) -> None:
    # 100 rows in tiles of 256 rows x 128 columns are padded 2.56 times, the other way 1.28 times.
    flops = 2.0 * 100 * N * K
    tilings = []
    for padding in (1.28, 2.56):
        made = bench_row(
            "sweep/bf16/cublas/m100", target="gemm_staircase", dtype="bf16", median_s=1e-5,
            params=params("sweep", "cublas", 100), flops=flops, counted_flops=flops * padding,
            kernel_names="cuBLAS GEMM, bf16, tile 256x128x64, 4 stages, TN",
        )  # fmt: skip
        points, _ = read_points(make_bench_run([made], target="gemm_staircase"))
        tilings.append(points[0].tiling)
    assert [(t.tile_m, t.tile_n) for t in tilings if t] == [(128, 256), (256, 128)]


def test_split_k_has_no_known_number_of_tiles(make_bench_run: MakeRun, bench_row: MakeRow) -> None:
    made = bench_row(
        "batch/bf16/cublas/m1", target="gemm_staircase", dtype="bf16", median_s=1e-5,
        params=params("batch", "cublas", 1), flops=1e9,
        kernel_names="cuBLAS GEMM, bf16, tile 64x8x64, 16 stages, split-K, TN + split-K reduction",
    )  # fmt: skip
    points, _ = read_points(make_bench_run([made], target="gemm_staircase"))
    assert points[0].tiling is None


def test_fits_the_pinned_kernel_and_says_that_the_steps_are_real(
    make_bench_run: MakeRun, rows: list[dict[str, Any]]
) -> None:
    found = section(make_bench_run(rows, target="gemm_staircase"))
    assert found is not None
    fits = {(f["dtype"], f["variant"], f["model"]): f for f in found.numbers["fits"]}
    assert {variant for _, variant, _ in fits} == {"triton"}
    for dtype, wave in WAVE.items():
        best = fits[dtype, "triton", "waves"]
        assert best["slots"] == SMS
        low, high = best["t_unit_interval_s"]
        assert low <= wave <= high
        assert best["t_unit_s"] == pytest.approx(wave, rel=0.01)
        assert best["median_error"] < 0.01 < fits[dtype, "triton", "continuous"]["median_error"]
    told = " ".join(f"{finding.sentence} {finding.evidence}" for finding in found.findings)
    assert told.count("the steps are real") == 2
    assert sum("the steps are real" in finding.sentence for finding in found.findings) == 1


def test_names_the_costliest_row_of_each_kernel(
    make_bench_run: MakeRun, rows: list[dict[str, Any]]
) -> None:
    run = make_bench_run(rows, target="gemm_staircase")
    sweeps = {(c.dtype, c.variant): c for c in curves(read_points(run)[0])}
    # Two waves in place of one: bf16 (3 + 2 x 26) / (3 + 26) - 1.
    step = worst_step(sweeps["bf16", "triton"])
    assert step is not None
    assert (step.before.m, step.after.m) == (256, 257)
    assert step.loss == pytest.approx(55 / 29 - 1, rel=0.05)
    library = worst_step(sweeps["bf16", "cublas"])
    assert library is not None
    assert library.after.m == 513  # 32 columns of tiles: four rows of tiles fill 128 SMs
    found = section(run)
    assert found is not None
    assert any(
        "Triton bf16, pinned tile: M = 257 takes" in finding.sentence for finding in found.findings
    )


def test_finds_sizes_that_padding_would_speed_up(
    make_bench_run: MakeRun, rows: list[dict[str, Any]]
) -> None:
    for row in rows:
        if row["name"] == f"sweep/bf16/cublas/640x{N}x{K}":
            row |= {key: row[key] * 1.25 for key in ("median_s", "ci_low_s", "ci_high_s")}
    run = make_bench_run(rows, target="gemm_staircase")
    (sweep,) = [c for c in curves(read_points(run)[0]) if c.what == "cuBLAS bf16"]
    worst = inversions(sweep)[0]
    assert worst.point.m == 640
    assert worst.larger.m > 640
    assert worst.gain == pytest.approx(1 - 1 / 1.25, abs=0.02)
    found = section(run)
    assert found is not None
    assert any("padding M = 640" in finding.sentence for finding in found.findings)


def test_shows_warm_weights_beside_cold_ones(
    make_bench_run: MakeRun, rows: list[dict[str, Any]]
) -> None:
    cold = next(r for r in rows if r["name"] == f"batch/fp8/cublas/1x{N}x{K}")
    hot = cold | {"mode": "hot", "median_s": 5e-6, "case_id": "hot"}
    found = section(make_bench_run([*rows, hot], target="gemm_staircase"))
    assert found is not None
    table = next(t for t in found.tables if t.title == "Small batches")
    assert "cuBLAS fp8: hot" in table.columns
    assert "cuBLAS bf16: hot" not in table.columns
    assert table.rows[0][-1] == "5.00 us"
    fits = section(make_bench_run(rows, target="gemm_staircase"))
    assert fits is not None
    assert found.numbers["fits"] == fits.numbers["fits"]  # a hot case is no point of the sweep


def test_odd_sizes_stand_beside_their_base(
    make_bench_run: MakeRun, rows: list[dict[str, Any]]
) -> None:
    sizes = odd_sizes(*read_points(make_bench_run(rows, target="gemm_staircase")))
    by_size = {(one.base.dtype, one.side, one.size): one for one in sizes}
    worst = by_size["bf16", "k", 4097]
    # Twice the time for 4097/4096 of the work.
    assert worst.loss == pytest.approx(1 - 4097 / 4096 / 2, abs=0.02)
    assert by_size["fp8", "k", 4097].loss is None
    found = section(make_bench_run(rows, target="gemm_staircase"))
    assert found is not None
    sentence = next(f.sentence for f in found.findings if "cuBLAS bf16, sizes" in f.sentence)
    assert "K = 4097 loses" in sentence
    table = found.tables[-1]
    assert any("unsupported: K % 16" in row[-1] for row in table.rows)


def test_tables_have_a_cell_for_each_column(
    make_bench_run: MakeRun, rows: list[dict[str, Any]]
) -> None:
    found = section(make_bench_run(rows, target="gemm_staircase"))
    assert found is not None
    assert len(found.tables) == 7
    for table in found.tables:
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)}
        assert set(table.left) <= set(table.columns)
    sizes = found.tables[0]
    row = next(r for r in sizes.rows if r[0].startswith("Triton ") and r[1] == "257")
    assert row[sizes.columns.index("Waves (tiles)")] == "2 (192)"
    assert row[sizes.columns.index("Tail efficiency")] == "72.7 %"  # 192 of 264 slots
    assert row[sizes.columns.index("Tile use")] == "66.9 %"  # 257 of 384 rows
    names = [figure.name for figure in found.figures]
    assert names == ["staircase-bf16", "staircase-fp8", "small-batches", "odd-sizes"]
    first = found.figures[0]
    assert isinstance(first, LineFigure)
    assert [x for x, _ in first.marks] == [edge + 0.5 for edge in EDGES]


def test_says_what_it_can_without_counters_or_a_number_of_sms(
    make_bench_run: MakeRun, rows: list[dict[str, Any]]
) -> None:
    for row in rows:
        row |= {"kernel_names": "", "tensor_pct": None}
    run = make_bench_run(rows, target="gemm_staircase")
    run.gpus["sm_count"] = None
    found = section(run)
    assert found is not None
    assert found.numbers["fits"] == []
    assert any("does not tell the number of SMs" in sentence for sentence in found.method)
    assert any("M = 64 takes" in finding.sentence for finding in found.findings)


def test_another_run_has_no_such_section(make_bench_run: MakeRun, bench_row: MakeRow) -> None:
    assert section(make_bench_run([bench_row("dram/read", median_s=1e-3)])) is None


def test_a_run_in_which_all_failed_still_says_why(
    make_bench_run: MakeRun, bench_row: MakeRow
) -> None:
    made = bench_row(
        "sweep/bf16/triton/m16", target="gemm_staircase", dtype="bf16", status="failed",
        reason="wrong result", params=params("sweep", "triton", 16),
    )  # fmt: skip
    found = section(make_bench_run([made], target="gemm_staircase"))
    assert found is not None
    assert found.findings == ()
    assert any("1 size failed (wrong result)" in sentence for sentence in found.method)
