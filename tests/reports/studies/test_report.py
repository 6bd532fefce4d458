"""The report of a benchmark run around its sections: caveats, conditions, what is not here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.cases.conditions import caveats, sure, throttled
from nsight_prof.reports.page import Bullets, Number, Table, Text
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.studies.models import report_json
from nsight_prof.reports.studies.registry import bench_report

Row = dict[str, Any]
MakeRow = Callable[..., Row]
MakeRun = Callable[..., Run]


@pytest.fixture
def run(make_bench_run: MakeRun, bench_row: MakeRow) -> Run:
    return make_bench_run(
        [
            bench_row("quiet", median_s=1e-3, processes=3, relative_std=0.001, n=30),
            bench_row("noisy", median_s=1e-3, processes=1, relative_std=0.2, n=30,
                      throttled_samples=15, throttle_reasons="sw_power_cap"),
            bench_row("lost", median_s=None, status="failed", reason="out of memory"),
        ]
    )  # fmt: skip


def sentences(run: Run) -> list[str]:
    return [Writer().value(caveat.text) for caveat in caveats(run)]


def test_what_a_reader_must_know_is_said_first(run: Run) -> None:
    words = " ".join(sentences(run))
    assert "1 case ran in one process only" in words
    assert "1 case had a relative standard deviation above 5.0 %" in words
    assert "noisy|cold|normal with 20 %" in words


def test_a_noisy_roof_is_not_called_harmless(make_bench_run: MakeRun, bench_row: MakeRow) -> None:
    run = make_bench_run([bench_row("a", median_s=1e-3, relative_std=0.2)])
    (noise,) = (c for c in caveats(run) if "deviation" in Writer().value(c.text))
    assert noise.lay_text
    run.measured_roofs.loc[0, "case_id"] = "a|cold|normal"
    (noise,) = (c for c in caveats(run) if "deviation" in Writer().value(c.text))
    assert not noise.lay_text


def test_times_are_as_sure_as_the_processes_that_repeat_them(
    make_bench_run: MakeRun, bench_row: MakeRow
) -> None:
    of = {"median_s": 1e-3, "processes": 3, "process_spread": 0.01}
    assert sure(make_bench_run([bench_row("a", **of)])) == "high"
    assert sure(make_bench_run([bench_row("a", **{**of, "processes": 1})])) == "medium"
    assert sure(make_bench_run([bench_row("a", **{**of, "process_spread": 0.06})])) == "medium"
    run = make_bench_run([bench_row("a", **of)])
    assert "Each case ran in 3 fresh processes, which differ by 1.0 % (median)." in sentences(run)


def test_limited_clocks_are_counted_with_their_reason(run: Run) -> None:
    done = run.bench[run.bench["status"] == "ok"]
    assert Writer().text(throttled(done)) == (
        "15 samples (25 %) of 1 case ran with limited clocks: sw power cap"
    )
    unknown = done.assign(throttled_samples=None)
    assert Writer().text(throttled(unknown)).startswith("not known")


def test_cases_without_a_time_stand_with_their_reason(run: Run) -> None:
    report = bench_report(run)
    (lost,) = (t for t in report.trust.tables if t.key == "not-run")
    assert lost.cells[0][:3] == [1, "failed", "out of memory"]
    (conditions,) = (t for t in report.trust.tables if t.key == "conditions")
    labels = [label.message for label, _ in conditions.cells if isinstance(label, Text)]
    assert labels[0] == "Samples"
    assert len(labels) == len(set(labels))


def test_a_report_as_data_keeps_numbers_and_texts(run: Run) -> None:
    data = report_json(bench_report(run))
    overview = {fact["label"]: fact["value"] for fact in data["overview"]}
    assert overview["Cases measured"] == "2 of 3"
    assert overview["Samples"] == {"value": 60.0, "unit": "count"}
    assert data["not_run"][0]["cases"] == 1
    assert data["trust"]["tables"][0]["key"] == "conditions"


def test_the_section_of_trust_is_in_every_language_that_has_words(run: Run) -> None:
    trust = bench_report(run).trust
    method = next(part for part in trust.blocks if isinstance(part, Bullets))
    for language in ("ko", "zh"):
        write = Writer(language)
        assert write.translates(trust.heading)
        assert all(write.translates(item) for item in method.items)
        heads = [
            c.heading for part in trust.blocks if isinstance(part, Table) for c in part.columns
        ]
        assert all(map(write.translates, heads))


def test_overview_keeps_its_numbers(run: Run) -> None:
    noise = next(f for f in bench_report(run).overview if "Noise" in f.label.message)
    assert isinstance(noise.value, Number)
    assert noise.value.value == pytest.approx(0.1005)
