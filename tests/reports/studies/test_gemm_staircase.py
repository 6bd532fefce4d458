"""The section on a made-up GPU that follows the tile model, with a kernel that cuBLAS would use."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Bullets, Finding, Number, Section, Table, Text
from nsight_prof.reports.page.charts import LineFigure
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.studies.gemm_staircase.points import (
    curves,
    inversions,
    odd_sizes,
    read_points,
    worst_step,
)
from nsight_prof.reports.studies.gemm_staircase.section import section
from tests.reports.programs import write

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


def made_section(run: Run) -> Section:
    made = section(run)
    assert made is not None
    return made


def by_rule(made: Section) -> dict[str, Finding]:
    return {finding.rule: finding for finding in made.findings}


def evidence(finding: Finding) -> list[str]:
    return [Writer().text(item) for item in finding.evidence if isinstance(item, Text)]


def table_of(made: Section, key: str) -> Table[Any]:
    return next(table for table in made.tables if table.key == key)


def cells(table: Table[Any], place: int) -> dict[str, str]:
    """The cells of a row as a page shows them, by the heading of the column."""
    write, row = Writer(), table.cells[place]
    return {
        write.text(column.heading): write.cell(cell, column.unit, column.digits)
        for column, cell in zip(table.columns, row, strict=True)
    }


def method(made: Section) -> list[str]:
    (bullets,) = (part for part in made.blocks if isinstance(part, Bullets))
    return [Writer().text(item) for item in bullets.items]


def test_reads_tiles_of_names_and_of_parameters(
    make_bench_run: MakeRun, rows: list[dict[str, Any]]
) -> None:
    points, refused = read_points(make_bench_run(rows, target="gemm_staircase"))
    assert len(points) + len(refused) == len(rows)
    by_shape = {(p.set, p.dtype, p.variant, p.m): p for p in points}
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
    found = made_section(make_bench_run(rows, target="gemm_staircase"))
    fits = {(f["dtype"], f["variant"], f["model"]): f for f in found.numbers["fits"]}
    assert {variant for _, variant, _ in fits} == {"triton"}
    for dtype, wave in WAVE.items():
        best = fits[dtype, "triton", "waves"]
        assert best["slots"] == SMS
        low, high = best["t_unit_interval_s"]
        assert low <= wave <= high
        assert best["t_unit_s"] == pytest.approx(wave, rel=0.01)
        assert best["median_error"] < 0.01 < fits[dtype, "triton", "continuous"]["median_error"]
    finding = by_rule(found)["tile_model"]
    assert Writer().text(finding.verdict).startswith("The steps are real")
    assert sum("median errors" in line for line in evidence(finding)) == 2  # of both dtypes
    assert finding.action is not None
    assert finding.action.values["sms"] == SMS


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
    finding = by_rule(made_section(run))["wave_edges"]
    loss = finding.verdict.values["loss"]
    assert isinstance(loss, Number)
    assert loss.value == step.loss
    assert finding.verdict.values["m"] == "257"
    assert finding.action is not None
    assert finding.action.values["edges"] == [str(edge) for edge in EDGES]


def test_finds_sizes_that_padding_would_speed_up(
    make_bench_run: MakeRun, rows: list[dict[str, Any]]
) -> None:
    for row in rows:
        if row["name"] == f"sweep/bf16/cublas/640x{N}x{K}":
            row |= {key: row[key] * 1.25 for key in ("median_s", "ci_low_s", "ci_high_s")}
    run = make_bench_run(rows, target="gemm_staircase")
    (sweep,) = [c for c in curves(read_points(run)[0]) if c.name == "cuBLAS bf16"]
    worst = inversions(sweep)[0]
    assert worst.before.m == 640
    assert worst.after.m > 640
    assert worst.saved.value == pytest.approx(1 - 1 / 1.25, abs=0.02)
    action = by_rule(made_section(run))["padding"].action
    assert action is not None
    assert (action.values["m"], action.values["larger"]) == ("640", str(worst.after.m))


def test_shows_warm_weights_beside_cold_ones(
    make_bench_run: MakeRun, rows: list[dict[str, Any]]
) -> None:
    cold = next(r for r in rows if r["name"] == f"batch/fp8/cublas/1x{N}x{K}")
    hot = cold | {"mode": "hot", "median_s": 5e-6, "case_id": "hot"}
    found = made_section(make_bench_run([*rows, hot], target="gemm_staircase"))
    row = cells(table_of(found, "gemm-batches"), 0)
    assert "cuBLAS bf16: hot" not in row
    assert row["cuBLAS fp8: hot"].startswith("5.00 us")
    fits = made_section(make_bench_run(rows, target="gemm_staircase"))
    assert found.numbers["fits"] == fits.numbers["fits"]  # a hot case is no point of the sweep


def test_odd_sizes_stand_beside_their_base(
    make_bench_run: MakeRun, rows: list[dict[str, Any]]
) -> None:
    sizes = odd_sizes(*read_points(make_bench_run(rows, target="gemm_staircase")))
    by_size = {(size.base.dtype, size.side, size.size): size for size in sizes}
    worst = by_size["bf16", "k", 4097]
    # Twice the time for 4097/4096 of the work.
    assert worst.loss == pytest.approx(1 - 4097 / 4096 / 2, abs=0.02)
    assert by_size["fp8", "k", 4097].loss is None
    found = made_section(make_bench_run(rows, target="gemm_staircase"))
    finding = by_rule(found)["odd_sizes"]
    assert "K = 4097 loses 50 %" in Writer().text(finding.verdict)
    assert finding.action is not None
    saved = finding.action.values["saved"]
    assert isinstance(saved, Number)
    assert saved.value == pytest.approx(1 - 1.002 / 2, abs=0.02)  # 4104 in place of 4097
    assert any("1 size did not run (fp8, unsupported: K % 16)" in e for e in evidence(finding))
    table = table_of(found, "gemm-odd-sizes")
    last = [cells(table, place)["Kernel"] for place in range(len(table.rows))]
    assert "unsupported: K % 16" in last


def test_tables_and_figures_show_the_tile_model(
    make_bench_run: MakeRun, rows: list[dict[str, Any]]
) -> None:
    found = made_section(make_bench_run(rows, target="gemm_staircase"))
    assert len(found.tables) == 8
    assert all(table.rows for table in found.tables)
    sizes = found.tables[0]
    place = next(
        n for n, point in enumerate(sizes.rows) if (point.variant, point.m) == ("triton", 257)
    )
    row = cells(sizes, place)
    assert (row["Waves"], row["Tiles"]) == ("2", "192")
    assert row["Tail efficiency"] == "72.7 %"  # 192 of 264 slots
    assert row["Tile use"] == "66.9 %"  # 257 of 384 rows
    charts = [figure.chart for figure in found.figures]
    names = [chart.name for chart in charts]
    assert names == ["staircase-bf16", "staircase-fp8", "small-batches", "odd-sizes"]
    first = charts[0]
    assert isinstance(first, LineFigure)
    assert [x for x, _ in first.marks] == [edge + 0.5 for edge in EDGES]


@pytest.mark.parametrize(("source", "rate"), [("measured", "4.71 TB/s"), ("counters", "4.4")])
def test_the_floor_of_bytes_is_what_was_measured_on_this_gpu(
    make_bench_run: MakeRun, rows: list[dict[str, Any]], source: str, rate: str
) -> None:
    run = make_bench_run(rows, target="gemm_staircase")
    roof = {"level_or_pipe": "dram", "dtype": "", "value": 4.71e12, "unit": "B/s", "source": source}
    found = made_section(write(run, "roofs", [roof]))
    (small,) = [f.chart for f in found.figures if f.chart.name == "small-batches"]
    assert isinstance(small, LineFigure)
    floors = [Writer().value(line.label) for line in small.series if "bytes at" in str(line.label)]
    assert floors
    assert all(rate in label for label in floors)


def test_says_what_it_can_without_counters_or_a_number_of_sms(
    make_bench_run: MakeRun, rows: list[dict[str, Any]]
) -> None:
    for row in rows:
        row |= {"kernel_names": "", "tensor_pct": None}
    run = make_bench_run(rows, target="gemm_staircase")
    run.gpus["sm_count"] = None
    found = made_section(run)
    assert found.numbers["fits"] == []
    assert any("does not tell the number of SMs" in sentence for sentence in method(found))
    assert by_rule(found)["small_batches"].verdict.values["m"] == 64


def test_another_run_has_no_such_section(make_bench_run: MakeRun, bench_row: MakeRow) -> None:
    assert section(make_bench_run([bench_row("dram/read", median_s=1e-3)])) is None


def test_a_run_in_which_all_failed_still_says_why(
    make_bench_run: MakeRun, bench_row: MakeRow
) -> None:
    made = bench_row(
        "sweep/bf16/triton/m16", target="gemm_staircase", dtype="bf16", status="failed",
        reason="wrong result", params=params("sweep", "triton", 16),
    )  # fmt: skip
    found = made_section(make_bench_run([made], target="gemm_staircase"))
    assert list(found.findings) == []
    assert any("1 size failed (wrong result)" in sentence for sentence in method(found))
