"""The section about operations of networks over their sizes, on made-up cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Section
from nsight_prof.reports.page.charts import LineFigure
from nsight_prof.reports.studies.network_kernels.section import section
from tests.sections import evidence, finding, rows, table, words

Row = dict[str, Any]
MakeRun = Callable[..., Run]
MakeRow = Callable[..., Row]
TARGET = "network_kernels"


class Cases:
    """Makes rows of the table with the parameters that the target writes."""

    def __init__(self, bench_row: MakeRow) -> None:
        self.bench_row = bench_row

    def row(self, seconds: float, **of: Any) -> Row:
        params = {"family": "conv", "op": "conv2d", "layout": "channels-last", "variant": "graph",
                  "weight_bytes": 72e3, "rows": 1, **of.pop("params", {})}  # fmt: skip
        usual = {"dtype": "bf16", "flops": 2e8 * params["rows"], "bytes": 1e6, "mode": "cold"}
        columns = usual | of
        name = "/".join(str(value) for value in (*params.values(), columns["dtype"]))
        return self.bench_row(name, target=TARGET, operation=params["op"], median_s=seconds,
                              params=params, **columns)  # fmt: skip

    def conv(self, batch: int, seconds: float, **of: Any) -> Row:
        sizes = {"channels": 64, "filters": 64, "size": 56, "outputs": 3136, "kernel": 3,
                 "stride": 1, "groups": 1, "rows": batch}  # fmt: skip
        return self.row(seconds, params=sizes | of.pop("params", {}), **of)

    def network(self, batch: int, variant: str, seconds: float) -> Row:
        params = {"family": "network", "op": "tiny-net", "rows": batch, "variant": variant}
        return self.row(seconds, params=params, mode="hot")

    def pair(self, how: str, seconds: float, *parts: tuple[str, int]) -> Row:
        params: Row = {"family": "side-by-side", "op": how}
        for number, (kind, grid) in enumerate(parts, 1):
            params |= {f"kernel{number}": kind, f"grid{number}": grid, f"threads{number}": 1024}
        flops = sum(1e6 * grid for kind, grid in parts if kind == "wide")
        moved = sum(1e6 * grid for kind, grid in parts if kind == "copy")
        return self.row(seconds, params=params, mode="hot", flops=flops, bytes=moved, dtype="fp32")


@pytest.fixture
def made(bench_row: MakeRow) -> Cases:
    return Cases(bench_row)


@pytest.fixture
def shown(make_bench_run: MakeRun) -> Callable[[list[Row]], Section]:
    def show(of: list[Row]) -> Section:
        columns = [column.name for column in tables.tables()["gpus"]]
        gpu = {"name": "NVIDIA H200", "sm_count": 132, "l2_bytes": 62_914_560.0,
               "compute_capability": "9.0"}  # fmt: skip
        run = make_bench_run(of, target=TARGET, gpus=pd.DataFrame([gpu], columns=columns))
        found = section(run)
        assert found is not None
        return found

    return show


def test_a_run_of_another_target_has_no_section(
    make_bench_run: MakeRun, bench_row: MakeRow
) -> None:
    assert section(make_bench_run([bench_row("dram/read", median_s=1e-3)])) is None


def test_batches_that_fill_the_gpu_are_told(
    made: Cases, shown: Callable[[list[Row]], Section]
) -> None:
    shares = {1: 0.1, 8: 0.3, 32: 0.6, 128: 0.8}
    found = shown([made.conv(b, 1e-5 * b, roof_fraction=s) for b, s in shares.items()])
    said = finding(found, "conv_saturation")
    assert "10 % of their roof at a batch of 1 and 80 % at 128" in words(said.verdict)
    assert said.action is not None
    assert "a batch of 32 or more" in words(said.action)
    chart = next(f.chart for f in found.figures if f.chart.name == "network-conv")
    assert isinstance(chart, LineFigure)
    time, share = chart.panels
    assert time.series[0].y == pytest.approx((10, 80, 320, 1280))
    assert share.series[0].y == pytest.approx((10, 30, 60, 80))


def test_the_price_of_layout_and_type_is_told(
    made: Cases, shown: Callable[[list[Row]], Section]
) -> None:
    found = shown([
        made.conv(8, 1e-5), made.conv(32, 3e-5),
        made.conv(8, 2e-5, params={"layout": "channels-first"}),
        made.conv(32, 24e-5, params={"layout": "channels-first"}),
        made.conv(8, 2e-5, dtype="tf32"), made.conv(32, 6e-5, dtype="tf32"),
    ])  # fmt: skip
    # 2 and 8 times as long: 4 in the geometric mean.
    assert "4.0x as long (geometric mean), up to 8.0x" in words(
        finding(found, "conv_layout").verdict
    )
    assert "take 2.0x as long as in bf16" in words(finding(found, "conv_precision").verdict)


def test_batches_that_wait_for_the_host_are_told(
    made: Cases, shown: Callable[[list[Row]], Section]
) -> None:
    found = shown([
        made.network(1, "eager", 4e-3), made.network(1, "graph", 1e-3),
        made.network(64, "eager", 2e-2), made.network(64, "graph", 2e-2),
    ])  # fmt: skip
    said = finding(found, "network_host_bound")
    assert "with a batch of 1 takes 4.0 ms, in a CUDA graph 1.0 ms (4.0x as fast)" in words(
        said.verdict
    )
    assert "1 of 2 measured networks" in evidence(said)
    assert said.gain is not None
    assert said.gain.value == pytest.approx(3e-3)
    # A network that is not bundled cannot be added up.
    assert {row["sum of operations"] for row in rows(table(found, "network-wholes"))} == {None}


def test_two_kernels_at_once_are_predicted_from_each_alone(
    made: Cases, shown: Callable[[list[Row]], Section]
) -> None:
    wide, twice, copy = ("wide", 66), ("wide", 132), ("copy", 132)
    found = shown([
        made.pair("alone", 1e-4, wide), made.pair("alone", 1e-4, twice),
        made.pair("alone", 2e-4, copy),
        made.pair("in-turn", 2e-4, wide, wide), made.pair("together", 1e-4, wide, wide),
        made.pair("in-turn", 2e-4, twice, twice), made.pair("together", 2e-4, twice, twice),
        made.pair("in-turn", 3e-4, twice, copy), made.pair("together", 2.5e-4, twice, copy),
    ])  # fmt: skip
    pairs = {r["kernels x blocks"]: r for r in rows(table(found, "network-side-by-side"))}
    # Half of the SMs each; the FMA pipes of all SMs twice; other resources.
    assert pairs["wide x 66 + wide x 66"]["predicted"] == pytest.approx(1e-4)
    assert pairs["wide x 132 + wide x 132"]["predicted"] == pytest.approx(2e-4)
    assert pairs["wide x 132 + wide x 132"]["bound by"] == "FMA pipes"
    assert pairs["wide x 132 + copy x 132"]["predicted"] == pytest.approx(2e-4)
    assert pairs["wide x 132 + copy x 132"]["off by"] == pytest.approx(-0.2)
    said = finding(found, "side_by_side")
    assert "100 us on two streams, 200 us one after the other" in words(said.verdict)


def test_evenly_spaced_sizes_tell_whether_time_oscillates(
    made: Cases, shown: Callable[[list[Row]], Section]
) -> None:
    def conv(batch: int) -> Row:
        wave = 1 + 0.1 * np.cos(2 * np.pi * batch / 8)
        return made.conv(batch, (5e-6 + 1e-6 * batch) * wave, params={"family": "fine"})

    (one,) = rows(table(shown([conv(batch) for batch in range(1, 65)]), "delay-factors"))
    assert one["Real"] == "yes"
    assert one["Period"] == pytest.approx(8, rel=0.03)
    assert one["Amplitude"] == pytest.approx(0.1, rel=0.1)


def test_peak_memory_is_that_of_used_buffers_alone(
    made: Cases, shown: Callable[[list[Row]], Section]
) -> None:
    found = shown([
        made.conv(8, 2e-5, peak_allocated_bytes=9e9),
        made.conv(8, 1e-5, mode="hot", peak_allocated_bytes=3e6),
    ])  # fmt: skip
    (row,) = rows(table(found, "network-conv"))
    assert (row["cold"], row["hot"], row["peak memory"]) == (2e-5, 1e-5, 3e6)
