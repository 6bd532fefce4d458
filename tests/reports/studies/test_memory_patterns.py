"""The section on memory patterns, on cases of the target's own plan with times of a known model."""

import re
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from nsight_prof.parsers.run.run import Run  # noqa: E402
from nsight_prof.reports.page import Number, Section, Text  # noqa: E402
from nsight_prof.reports.page.charts import LineFigure  # noqa: E402
from nsight_prof.reports.page.writer import Writer  # noqa: E402
from nsight_prof.reports.plots.bench.lines import plot_lines  # noqa: E402
from nsight_prof.reports.studies.memory_patterns.section import section  # noqa: E402
from nsight_prof.targets import memory_patterns  # noqa: E402

READ, WRITE, TURN, BATCH = 4.6e12, 4.5e12, 2e-6, 40e6
HELD, ALONE = 27e6, {"whole": 0.95}
PLAN = list(memory_patterns.cases(Namespace(device="cuda", size_mib=6144, table_mib=8192)))
Rows = list[dict[str, Any]]


def seconds_and_bytes(params: dict[str, Any]) -> tuple[float, float]:
    """Seconds of one call by a made-up DRAM that moves 64 B for any part of them, and its bytes."""
    if params["pattern"] == "mix":
        read, write = params["read_bytes"], params["write_bytes"]
        rarer = min(read, write)
        turns = rarer / max(params["run_bytes"], BATCH)
        return read / READ + write / WRITE + turns * TURN, float(read + write)
    if params["pattern"] == "stride":
        moved = params["useful_bytes"] * min(2, params["stride_sectors"])
        return moved / READ, moved
    if params["order"] == "ordered":
        moved = params["gathered_bytes"] + params["index_bytes"]
    else:
        moved = params["items"] * max(64, params["item_bytes"]) + params["index_bytes"]
    return moved / READ, moved


def rows(bench_row: Callable[..., dict[str, Any]], *, counters: bool = True) -> Rows:
    rng = np.random.default_rng(1)
    made = []
    for case in PLAN:
        params = dict(case.params)
        seconds, moved = seconds_and_bytes(params)
        written = float(params.get("write_bytes", 0))
        made.append(
            bench_row(
                case.name,
                target="memory_patterns",
                params=params,
                bytes=case.work.bytes,
                median_s=seconds * (1 + 0.001 * rng.standard_normal()),
                dram_bytes=2 * moved if counters else None,
                dram_write_bytes=2 * (written - HELD * (written > 0)) if counters else None,
                counted_s=2 * seconds * ALONE.get(str(params.get("way")), 1.0)
                if counters
                else None,
                counted_calls=2 if counters else None,
            )
        )
    return made


@pytest.fixture
def make_section(
    make_bench_run: Callable[..., Run], bench_row: Callable[..., dict[str, Any]]
) -> Callable[..., Section]:
    def make(change: Callable[[Rows], Rows] = lambda kept: kept, **options: Any) -> Section:
        run = make_bench_run(change(rows(bench_row, **options)), target="memory_patterns")
        made = section(run)
        assert made is not None
        return made

    return make


def lines(made: Section) -> list[LineFigure]:
    charts = [figure.chart for figure in made.figures if isinstance(figure.chart, LineFigure)]
    assert len(charts) == len(made.figures)
    return charts


def verdicts(made: Section) -> dict[str, str]:
    return {finding.rule: Writer().text(finding.verdict) for finding in made.findings}


def value(made: Section, rule: str, name: str) -> float:
    """A number of a verdict."""
    (finding,) = (finding for finding in made.findings if finding.rule == rule)
    number = finding.verdict.values[name]
    assert isinstance(number, Number)
    assert number.value is not None
    return number.value


def evidence(made: Section, rule: str) -> dict[str, str]:
    (finding,) = (finding for finding in made.findings if finding.rule == rule)
    write = Writer()
    texts = {write.text(one): "" for one in finding.evidence if isinstance(one, Text)}
    pairs = [one for one in finding.evidence if not isinstance(one, Text)]
    return texts | {write.text(one.label): write.value(one.value) for one in pairs}


def test_the_turnaround_that_made_the_times_is_found_and_said(
    make_section: Callable[..., Section],
) -> None:
    made = make_section()
    best = made.numbers["mix"]["models"][0]
    assert best["model"] == "batched"
    assert best["turnaround_s"]["low"] < TURN < best["turnaround_s"]["high"]
    assert best["batch_bytes"]["low"] < BATCH < best["batch_bytes"]["high"]
    found = verdicts(made)
    assert list(found) == ["mixed_bandwidth", "turnaround", "one_price", "read_strides",
                           "write_strides", "random_gathers"]  # fmt: skip
    assert value(made, "turnaround", "turn") == best["turnaround_s"]["value"]
    assert "Alternate rarely: each turnaround from writing to reading costs" in found["turnaround"]
    assert " us (95 % interval" in found["turnaround"]
    assert found["one_price"].startswith("A fixed cost per switch between reads and writes")


def test_what_counters_saw_of_the_turns_is_evidence(make_section: Callable[..., Section]) -> None:
    found = evidence(make_section(), "turnaround")
    assert found["counters: written but not yet in DRAM at the end of a call"] == "27 MB"
    # 1 / 0.95 is 5.3 % more; what reads alone differ by, 0.1 % of noise, is taken off.
    slower = next(v for label, v in found.items() if "than alone under ncu" in label)
    assert re.fullmatch(r"5\.\d %", slower)


def test_a_penalty_by_the_byte_is_called_one(make_section: Callable[..., Section]) -> None:
    def by_the_byte(made: Rows) -> Rows:
        for row, case in zip(made, PLAN, strict=True):
            if case.params["pattern"] == "mix":
                read, write = case.params["read_bytes"], case.params["write_bytes"]
                assert isinstance(read, int)
                assert isinstance(write, int)
                exact = read / READ + write / WRITE + min(read, write) * 5e-14
                noise = row["median_s"] / seconds_and_bytes(dict(case.params))[0]
                row["median_s"] = exact * noise
        return made

    made = make_section(by_the_byte)
    assert made.numbers["mix"]["models"][0]["model"] == "mix"
    assert "each GB of the rarer direction costs 50 us" in verdicts(made)["turnaround"]


def test_bandwidths_by_hand(make_section: Callable[..., Section]) -> None:
    table = make_section().tables[0]
    heads = [Writer().text(column.heading) for column in table.columns]
    assert heads[:4] == ["read:write", "no mixing", "512 B (warp)", "16 KiB"]
    assert heads[-2:] == ["all at once", "two launches"]
    assert [row[0] for row in table.cells] == ["1:0", "7:1", "3:1", "2:1", "1:1", "1:2", "0:1"]
    # Reads at 4.6 and writes at 4.5 TB/s, one after the other: 2 / (1/4.6 + 1/4.5) = 4.55.
    alone = table.cells[4][1]
    assert isinstance(alone, Number)
    assert alone.value == pytest.approx(4.55e12, rel=0.005)
    assert table.cells[0][2] is None, "there is no run of a single direction"


def test_dram_bytes_are_of_one_call_and_without_indices(
    make_section: Callable[..., Section],
) -> None:
    made = make_section()
    strides = {(s["kind"], s["size"]): s for s in made.numbers["strides"]}
    assert strides["read", 1]["dram_bytes_per_useful_byte"] == pytest.approx(1)
    assert strides["read", 8]["dram_bytes_per_useful_byte"] == pytest.approx(2)
    gathers = {(g["kind"], g["size"]): g for g in made.numbers["gathers"]}
    assert gathers["random", 4]["dram_bytes_per_useful_byte"] == pytest.approx(16)
    assert gathers["random", 64]["dram_bytes_per_useful_byte"] == pytest.approx(1)
    assert value(made, "random_gathers", "used") == pytest.approx(1 / 16)
    assert value(made, "random_gathers", "most") == pytest.approx(1)
    assert value(made, "read_strides", "part") == pytest.approx(0.5, rel=0.01)


def test_without_counters_times_are_still_told(make_section: Callable[..., Section]) -> None:
    made = make_section(counters=False)
    assert len(made.findings) == 6
    assert not any("DRAM then moves" in label for label in evidence(made, "read_strides"))
    assert "used" not in made.findings[-1].verdict.values
    assert made.numbers["strides"][0]["dram_bytes_per_useful_byte"] is None
    assert [len(figure.panels) for figure in lines(made)] == [0, 2, 1, 1]


def test_failed_cases_leave_the_others(make_section: Callable[..., Section]) -> None:
    def few(made: Rows) -> Rows:
        for row in made:
            if row["name"] not in ("mix/1-0/alone", "mix/1-1/warp", "stride/read/1"):
                row.update(status="out-of-memory", median_s=None)
        return made

    made = make_section(few)
    assert made.numbers["mix"]["models"] == []
    assert "gathers" not in made.numbers
    assert list(verdicts(made)) == ["mixed_bandwidth"]
    assert made.tables[0].cells[0][0] == "1:0"


def test_other_targets_have_no_such_section(
    make_bench_run: Callable[..., Run], bench_row: Callable[..., dict[str, Any]]
) -> None:
    assert section(make_bench_run([bench_row("dram/read", median_s=1e-3, bytes=1e9)])) is None


def test_the_figures_can_be_drawn(make_section: Callable[..., Section]) -> None:
    for figure in lines(make_section()):
        drawn = plot_lines(figure)
        assert len(drawn.axes) == max(len(figure.panels), 1)
