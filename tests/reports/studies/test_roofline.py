"""The section of the measured roofs, and the whole report of a benchmark run, on made-up cases."""

import json
import math
import re
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.roofs.measured import choose_roofs
from nsight_prof.parsers.roofs.roofs import Measured, build_roofs, ridge_points
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.roofs import find, measured_roofs, searches
from nsight_prof.reports.page import Evidence, Finding, Number, Section, Text
from nsight_prof.reports.page.charts import BarFigure, Chart, LineFigure, RooflineFigure
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.render.report import render_report
from nsight_prof.reports.studies.roofline import section as roofline
from nsight_prof.reports.studies.trust import missing
from tests.schemas import of_metrics

Row = dict[str, Any]
CLOCK, SMS = 1.755e9, 132
L2 = 62_914_560


def dram(bench_row: Callable[..., Row]) -> list[Row]:
    speeds = {"read": (4.62e12, 4.56e12, 3.4e12), "write": (4.65e12, 4.37e12, 4.2e12),
              "copy": (4.11e12, 4.0e12, 3.9e12)}  # fmt: skip
    return [
        bench_row(f"dram/{kind}/{shape}", operation=f"DRAM {kind}", level="dram", bytes=8e9,
                  params={"shape": shape}, roof=f"dram {kind}", median_s=8e9 / speed,
                  dram_bytes=8e9, counted_calls=1, counted_launches=1)
        for kind, rates in speeds.items()
        for shape, speed in zip(("one-shot-b256-u4", "grid-b256-u4", "grid-b64-u1"), rates,
                                strict=True)
    ]  # fmt: skip


def l2_sweep(bench_row: Callable[..., Row]) -> list[Row]:
    rates = {4: 8.4e12, 16: 8.5e12, 32: 8.45e12, 48: 8.4e12, 64: 5.3e12, 128: 4.6e12}
    return [
        bench_row(f"l2/read/private-{mib}mib", operation="L2 read", level="l2", mode="hot",
                  params={"footprint_bytes": mib << 20, "pattern": "private", "threads": 256},
                  bytes=8e9, median_s=8e9 / rate, roof="l2 read" if mib < 60 else "")
        for mib, rate in rates.items()
    ]  # fmt: skip


def tensor(bench_row: Callable[..., Row]) -> list[Row]:
    flops = 2.0 * 8192**3
    common = {"level": "tensor", "dtype": "bf16", "operation": "BF16 matrix product",
              "params": {"m": 8192, "n": 8192, "k": 8192}, "flops": flops}  # fmt: skip
    name = "tensor/bf16/8192x8192x8192"
    return [
        bench_row(f"{name}/burst", duration="burst", median_s=flops / 800e12,
                  roof="tensor bf16 burst", **common),
        bench_row(f"{name}/burst", duration="burst", median_s=flops / 880e12, data="zeros",
                  roof="tensor bf16 burst", clock_hz=1.9e9, **common),
        bench_row(f"{name}/steady", duration="steady", median_s=flops / 720e12, clock_hz=1.5e9,
                  roof="tensor bf16 steady", throttled_samples=30,
                  throttle_reasons="sw_power_cap", **common),
        bench_row("fma/fp32/b256", level="fp32", dtype="fp32", flops=1e12, roof="fp32 fma",
                  median_s=1e12 / (249.8 * SMS * CLOCK), params={"block": 256}),
    ]  # fmt: skip


def others(bench_row: Callable[..., Row]) -> list[Row]:
    return [
        bench_row("latency/l1", operation="L1 latency", level="l1", accesses=1000, mode="hot",
                  median_s=33 * 1000 / CLOCK, roof="l1 latency"),
        bench_row("launch", level="host", launches=1, median_s=2.4e-6, roof="host launch"),
        bench_row("launch-graph", level="host", launches=1, median_s=0.9e-6,
                  roof="host launch-graph"),
        bench_row("h2d", level="host", bytes=1e9, median_s=1 / 55, roof="host h2d-pinned"),
        bench_row("h2d-p", level="host", bytes=1e9, median_s=1 / 11, roof="host h2d-pageable"),
        bench_row("tensor/fp8/1", status="unsupported", reason="torch has no fp8 product here",
                  roof="tensor fp8 burst", n=None),
        bench_row("tensor/fp8/2", status="unsupported", reason="torch has no fp8 product here",
                  roof="tensor fp8 burst", n=None),
    ]  # fmt: skip


def all_rows(bench_row: Callable[..., Row]) -> list[Row]:
    parts = (dram, l2_sweep, tensor, others)
    return [row for part in parts for row in part(bench_row)]


def frames(rows: list[Row], repeats: int = 1) -> dict[str, pd.DataFrame]:
    """Tables bench_runs, measured_roofs, roofs and ridge_points that belong to `rows`."""
    bench = tables.check(pd.DataFrame(rows, columns=list(tables.empty("bench").columns)), "bench")
    runs = [
        {"case_id": row["case_id"], "repeat": repeat, "process": process, "n": 10,
         "median_s": row["median_s"] * (1 + 0.004 * (repeat - 1) + 0.0005 * process),
         "ci_low_s": row["ci_low_s"], "ci_high_s": row["ci_high_s"], "relative_std": 0.002,
         "clock_hz": row["clock_hz"], "throttled_samples": 0, "power_w": None,
         "temperature_c": None}
        for row in rows if row["status"] == "ok"
        for repeat in range(1, repeats + 1) for process in range(1, 4)
    ]  # fmt: skip
    bench_runs = tables.check(pd.DataFrame(runs), "bench_runs")
    chosen = choose_roofs(bench, bench_runs, SMS).roofs
    roofs = build_roofs(tables.empty("gpus"), tables.empty("metrics"), Measured(chosen))
    return {"bench_runs": bench_runs, "measured_roofs": chosen, "roofs": roofs,
            "ridge_points": ridge_points(roofs)}  # fmt: skip


@pytest.fixture
def bench_run(make_bench_run: Callable[..., Run], bench_row: Callable[..., Row]) -> Run:
    """A run of target roofline, measured once."""
    rows = all_rows(bench_row)
    return make_bench_run(rows, **frames(rows))


@pytest.fixture
def repeated_run(make_bench_run: Callable[..., Run], bench_row: Callable[..., Row]) -> Run:
    """The same three times over: each repeat is 0.4 % slower than the one before."""
    rows = [row | {"repeats": 3, "processes": 9} for row in all_rows(bench_row)]
    return make_bench_run(rows, **frames(rows, 3))


def made_section(run: Run) -> Section:
    made = roofline.section(run)
    assert made is not None
    return made


def by_rule(run: Run) -> dict[str, Finding]:
    return {finding.rule: finding for finding in made_section(run).findings}


def verdict(finding: Finding) -> str:
    return Writer().text(finding.verdict)


def charts(section: Section) -> dict[str, Chart]:
    return {figure.chart.name: figure.chart for figure in section.figures}


def test_findings_say_the_numbers_of_the_cases(bench_run: Run) -> None:
    found = by_rule(bench_run)
    dram = found["dram_bandwidth"].verdict.values
    assert isinstance(dram["rate"], Number)
    assert (dram["rate"].value, dram["rate"].refs[0].row) == (4.62e12, "DRAM read")
    assert "writes 4.7 TB/s" in verdict(found["dram_bandwidth"])
    assert "costs DRAM 11 % of its bandwidth" in verdict(found["copy_bandwidth"])  # 1 - 4.11 / 4.62
    assert "slowest reaches 74 % of the best" in verdict(found["launch_shape"])  # 3.4 / 4.62
    assert found["launch_shape"].action is not None
    assert "one-shot-b256-u4" in Writer().text(found["launch_shape"].action)
    assert "at 90 % of its speed or more up to 48 MiB of its 60 MiB" in verdict(
        found["l2_capacity"]
    )
    assert "costs up to 10 %" in verdict(found["steady_load"])  # 720 / 800
    limits = [e for e in found["steady_load"].evidence if isinstance(e, Evidence)]
    assert Writer().value(limits[1].value) == "100 %"
    assert Writer().value(limits[2].value) == "sw_power_cap"
    assert "up to 10 % faster" in verdict(found["zeros"])  # 880 / 800
    assert "33 cycles (19 ns) from L1" in verdict(found["latency"])
    assert "2.4 us through the driver and 900 ns in a CUDA graph" in verdict(found["launch_cost"])
    assert "pageable memory loses up to 80 %" in verdict(found["host_transfers"])


def test_the_ridge_point_says_how_many_rows_a_product_needs(bench_run: Run) -> None:
    finding = by_rule(bench_run)["ridge_points"]
    ridge = finding.verdict.values["ridge"]
    assert isinstance(ridge, Number)
    assert ridge.value == pytest.approx(800e12 / 4.65e12)
    assert finding.action is not None
    rows = finding.action.values["rows"]
    assert isinstance(rows, Number)
    assert rows.value == ridge.value


def test_a_footprint_whose_bytes_did_not_come_to_the_l2_is_left_out(
    make_bench_run: Callable[..., Run], bench_row: Callable[..., Row]
) -> None:
    rows = all_rows(bench_row)
    for row in rows:
        if row["level"] == "l2":
            size = json.loads(row["params"])["footprint_bytes"] >> 20
            counted = 0.4 if size == 16 else 1.0
            row |= {"l2_bytes": 8e9 * counted, "dram_bytes": 8e9 * (0.5 if size > 40 else 0.0),
                    "counted_calls": 1, "counted_launches": 1}  # fmt: skip
    run = make_bench_run(rows, **frames(rows))
    sweep = charts(made_section(run))["l2-size"]
    assert isinstance(sweep, LineFigure)
    rates, leaks = sweep.panels
    assert 16 << 20 not in rates.series[0].x
    assert leaks.series[0].y == pytest.approx((0, 0, 50, 50, 50))
    finding = by_rule(run)["l2_capacity"]
    assert "holds footprints of up to 32 MiB (L2 read, a slice per SM)" in verdict(finding)
    texts = [Writer().text(e) for e in finding.evidence if isinstance(e, Text)]
    assert "by counters: DRAM serves at most 5.0 % of the bytes up to there" in texts


def test_every_finding_has_evidence(bench_run: Run) -> None:
    for finding in made_section(bench_run).findings:
        assert finding.evidence, finding.rule
        assert len(verdict(finding).split()) <= 45


def test_a_search_ranks_the_shapes_of_one_roof(bench_run: Run) -> None:
    roofs = measured_roofs(bench_run)
    found = {search.roof.name: search for search in searches(bench_run, roofs)}
    assert found["DRAM read"].slowest_fraction == pytest.approx(3.4 / 4.62)
    assert found["DRAM read"].median_fraction == pytest.approx(4.56 / 4.62)


def test_a_roof_that_counters_contradict_is_told_and_not_used(
    make_bench_run: Callable[..., Run], bench_row: Callable[..., Row]
) -> None:
    rows = all_rows(bench_row)
    made = frames(rows)
    wrong = made["measured_roofs"]["level_or_pipe"] == "l1"
    made["measured_roofs"].loc[wrong, "accepted"] = False
    made["measured_roofs"].loc[wrong, "reason"] = "the L2 moved as many bytes"
    run = make_bench_run(rows, **made)
    assert "latency" not in by_rule(run)
    assert "the L2 moved as many bytes" in render_report(run).report.read_text()


def test_a_table_for_each_kind_of_roof(bench_run: Run) -> None:
    keys = [table.key for table in made_section(bench_run).tables]
    kinds = ("arithmetic", "memory", "latency", "ridges", "probes")
    assert keys == [f"roofline-{kind}" for kind in kinds]


def test_a_verdict_of_counters_leads_to_what_they_counted(bench_run: Run) -> None:
    page = render_report(bench_run).report.read_text()
    (roof,) = [line for line in page.splitlines() if '"measured_roofs-DRAM+read"' in line]
    anchor = re.findall(r"\[confirmed\]\(#([^)]+)\)", roof)
    (probe,) = [line for line in page.splitlines() if line.startswith(f'| <a id="{anchor[0]}"')]
    assert "| 8.000 GB | 8.000 GB | `dram_bytes` |" in probe


def test_ridge_points_are_peak_over_bandwidth(bench_run: Run) -> None:
    table = next(t for t in made_section(bench_run).tables if t.key == "roofline-ridges")
    pipe, dram, *_ = next(cells for cells in table.cells if cells[0] == "Tensor bf16")
    assert isinstance(dram, Number)
    assert dram.value == pytest.approx(800e12 / 4.65e12)  # writing is the faster of the two


def test_figures_are_those_of_the_data(bench_run: Run) -> None:
    figures = charts(made_section(bench_run))
    sweep = figures["l2-size"]
    assert isinstance(sweep, LineFigure)
    assert sweep.marks == ((L2, "L2 capacity"),)
    assert sweep.panels[0].series[0].y == pytest.approx((8.4, 8.5, 8.45, 8.4, 5.3, 4.6))
    power = figures["burst-steady"]
    assert isinstance(power, BarFigure)
    assert [bar.value for bar in power.bars] == pytest.approx([800, 720])
    zeros = figures["zeros"]
    assert isinstance(zeros, BarFigure)
    assert [bar.value for bar in zeros.bars] == pytest.approx([110])
    assert isinstance(figures["roofline-measured"], RooflineFigure)


@pytest.mark.usefixtures("no_pictures")
def test_the_report_stands_on_the_findings_and_fits_its_schema(bench_run: Run) -> None:
    paths = render_report(bench_run)
    text = paths.report.read_text()
    assert text.index("DRAM reads reach") < text.index("![") < text.index("\n## ")
    assert "| 2 | unsupported | torch has no fp8 product here |" in text
    assert "ran once" in text
    assert not re.search(r"\bnan\b", text)
    assert paths.summary is not None
    assert paths.metrics is not None
    assert "4.62 TB/s" in paths.summary.read_text()
    data = json.loads(paths.metrics.read_text())
    of_metrics().validate(data)
    assert data["kind"] == "bench"
    numbers = data["sections"][0]["numbers"]
    assert math.isclose(numbers["DRAM read"]["value"], 4.62e12)
    assert len(data["bench"]) == len(bench_run.bench)


@pytest.mark.usefixtures("no_pictures")
def test_the_headline_is_that_of_the_findings(bench_run: Run) -> None:
    made = render_report(bench_run)
    assert "4.6 TB/s" in made.headline[0]
    assert len(made.headline) == 3
    text = re.sub(r"\[([^]]+)]\([^)]+\)", r"\1", made.report.read_text())  # numbers are links there
    assert all(sentence in text for sentence in made.headline)


@pytest.mark.usefixtures("no_pictures")
def test_repeats_are_told_for_each_roof(repeated_run: Run) -> None:
    text = render_report(repeated_run).report.read_text()
    roof = find(measured_roofs(repeated_run), "dram", "read")
    assert roof is not None
    assert roof.repeatability == pytest.approx(0.008, rel=0.02)
    assert "measured 3 times over, the results agree within that" in text


@pytest.mark.usefixtures("no_pictures")
def test_a_run_without_cases_says_why(make_bench_run: Callable[..., Run]) -> None:
    text = render_report(make_bench_run([])).report.read_text()
    assert "no case was measured" in text


def test_only_gaps_that_a_section_shows_are_told(
    make_bench_run: Callable[..., Run], bench_row: Callable[..., Row]
) -> None:
    told = "there are no measured roofs of this GPU"
    rows = [
        ("kernels", "", "total_ns", "without a trace: calls and GPU time are not known"),
        ("counters", "k1", "top_stall", "not collected: metric set stalls"),
        ("bench", "", "tensor_pct", "not collected: sm__pipe_tensor_cycles_active"),
        ("bench", "", "l2_hit_pct", "L2 hits came out at 111.1 %, outside of 0 to 105"),
        ("bench", "", "counted_flops", "needs flops_tensor"),
        ("bench", "", "roof_fraction", told),
    ]
    columns = [column.name for column in tables.tables()["gaps"]][:4]
    gaps = pd.DataFrame(rows, columns=columns).assign(kind="")
    run = make_bench_run([bench_row("dram/read/a", bytes=8e9, median_s=2e-3)], gaps=gaps)
    assert [Writer().text(text) for text in missing(run)] == [f"No share of the roof: {told}"]
