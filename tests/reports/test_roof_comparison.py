"""Roofs of every source side by side, in the numbers and in the report."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.roofs.file import ROOFS_FILE, RoofsFile, write_roofs
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.roof_comparison import compare_roofs, roofs_measured_by
from nsight_prof.reports.page.charts import Roof
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.render.report import render_report
from tests.recorded import whole_report

BF16 = (
    Roof("tensor", "bf16", "Tensor bf16", 800e12, "FLOP/s", "measured", 1.5e9, ""),
    Roof("tensor", "bf16", "Tensor bf16", 1081e12, "FLOP/s", "counters", 2.0e9, ""),
    Roof("tensor", "bf16", "Tensor bf16", 1070e12, "FLOP/s", "datasheet", 1.98e9, ""),
)
DRAM = (
    Roof("dram", "", "DRAM", 4.6e12, "B/s", "measured", 1.5e9, ""),
    Roof("dram", "", "DRAM", 4.8e12, "B/s", "counters", 3.2e9, ""),
)


def test_a_pipe_is_compared_at_the_clock_of_its_measurement() -> None:
    (row,) = compare_roofs(BF16)
    assert row.of_counters == pytest.approx(800 / (1081 * 1.5 / 2.0))
    assert row.of_datasheet == pytest.approx(800 / 1070)


def test_dram_has_a_clock_of_its_own() -> None:
    (row,) = compare_roofs(DRAM)
    assert row.of_counters == pytest.approx(4.6 / 4.8)
    assert row.of_datasheet is None
    assert row.datasheet is None


def test_types_of_the_tensor_cores_are_rows_of_their_own() -> None:
    fp8 = Roof("tensor", "fp8", "Tensor fp8", 1.4e15, "FLOP/s", "measured", 1.5e9, "")
    assert [row.label for row in compare_roofs((*BF16, fp8, *DRAM))] == [
        "DRAM",
        "Tensor fp8",
        "Tensor bf16",
    ]


@pytest.fixture
def measured_run(make_run: Callable[..., Path]) -> Run:
    """An ordinary run with roofs that another run measured."""
    run = load_run(make_run())
    rows = [{"level_or_pipe": r.key, "dtype": r.dtype, "value": r.value, "unit": r.unit,
             "source": "measured", "clock_hz": r.clock_hz, "detail": "read: best of 18 tried"}
            for r in (DRAM[0], BF16[0])]  # fmt: skip
    roofs = pd.concat([pd.DataFrame(rows), run.roofs.astype(object)])
    tables.write(roofs, "roofs", run.directory.tables)
    gpu = {"name": "NVIDIA H200", "driver": "580.65"}
    file = RoofsFile("2026-11-20T08:00:00Z", "roofline-1", gpu, tables.empty("measured_roofs"))
    write_roofs(run.path / ROOFS_FILE, file)
    return load_run(run.path)


def test_who_measured_the_roofs_is_said(measured_run: Run, run: Run) -> None:
    told = roofs_measured_by(measured_run)
    assert told is not None
    assert Writer().text(told) == (
        "Measured roofs are from the run roofline-1, 2026-11-20T08:00:00Z, on NVIDIA H200, driver "
        "580.65."
    )
    assert roofs_measured_by(run) is None


def test_the_report_shows_them_and_measures_kernels_against_them(
    measured_run: Run, no_pictures: None
) -> None:
    text = whole_report(render_report(measured_run).folder)
    assert "| DRAM | 4.60 TB/s | – | 4.81 TB/s |" in text
    assert "from the run roofline-1" in text
    assert "Kernels are compared with the measured roof where there is one" in text


def test_a_report_without_measured_roofs_says_how_to_have_them(run: Run, no_pictures: None) -> None:
    text = whole_report(render_report(run).folder)
    assert "prof run recipes/roofline.yaml measures" in text
    assert "| Roof | Measured" not in text
