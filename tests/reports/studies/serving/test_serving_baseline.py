"""The report of the offline baseline: known laws come back as numbers, sentences and figures."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Finding, Number, Section, Text
from nsight_prof.reports.page.charts import LineFigure, TimelineFigure
from nsight_prof.reports.page.frame import rests, sentence_values
from nsight_prof.reports.page.markdown import section_markdown
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.render.gallery import bench_pictures
from nsight_prof.reports.render.report import render_report
from nsight_prof.reports.render.results_json import schema
from nsight_prof.reports.studies.registry import bench_report
from nsight_prof.reports.studies.serving_baseline.findings import baseline
from nsight_prof.reports.studies.serving_baseline.section import section

Make = Callable[..., Run]
SCHEMA = Path(__file__).parents[4] / "reports" / "results.schema.json"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, make_run: Make) -> Run:
    folder = tmp_path_factory.mktemp("baseline")
    batches = (1, 4, 8, 16, 32, 64, 128, 256)
    return make_run(folder, batches=batches, out_of_memory=(256,), preempt_from=128)


@pytest.fixture(scope="module")
def made(run: Run) -> Section:
    found = section(run)
    assert found is not None
    return found


def finding(made: Section, rule: str) -> Finding:
    (found,) = (one for one in made.findings if one.rule == rule)
    return found


def value(made: Section, rule: str, name: str) -> float | None:
    number = finding(made, rule).verdict.values[name]
    assert isinstance(number, Number)
    return number.value


def test_the_bend_is_where_the_law_has_it(made: Section, laws: Any) -> None:
    # A batch takes the prefill's first part and 127 steps, and each request its share of both.
    steps = sum(laws.kv_s * (512 + n) + laws.each_s for n in range(1, 128))
    each = laws.prompt_s * 512 + steps
    fixed = laws.first_s + 127 * laws.step_s
    law = made.numbers["batch_law"]
    assert law["bend"] == pytest.approx(fixed / each, rel=0.01)
    assert law["fixed_s"] == pytest.approx(fixed, rel=0.01)
    assert law["flat_until"] == 0
    assert law["bend_was_measured"]
    advice = finding(made, "batch_scaling").verdict.values["advice"]
    assert isinstance(advice, Text)
    bend = advice.values["bend"]
    assert isinstance(bend, Number)
    assert bend.value == pytest.approx(fixed / each, rel=0.01)


def test_the_batch_to_run_is_the_largest_before_the_bend(made: Section, laws: Any) -> None:
    scaling = finding(made, "batch_scaling")
    assert scaling.verdict.values["batch"] == 32  # the bend is at 43
    ttft = value(made, "batch_scaling", "ttft")
    assert ttft == pytest.approx(laws.prefill(32, 512), rel=0.01)
    assert scaling.action is not None


def test_what_a_doubled_prompt_costs_is_the_slope_between_two_lengths(
    made: Section, laws: Any
) -> None:
    found = {(d["from_tokens"], d["to_tokens"]): d["factor"] for d in made.numbers["doublings"]}
    ratio = laws.prefill(1, 4000) / laws.prefill(1, 1000)
    assert found[1000, 4000] == pytest.approx(math.sqrt(ratio), rel=1e-6)
    assert made.numbers["prompt_law"]["each_s"] == pytest.approx(laws.prompt_s, rel=0.01)
    assert made.numbers["prompt_law"]["fixed_s"] == pytest.approx(laws.first_s, rel=0.01)
    head = finding(made, "doubled_prompt").verdict.values["head"]
    assert head == Text("A doubled prompt costs less than twice")


def test_stages_are_set_against_the_measured_roofs(made: Section, laws: Any) -> None:
    loads = made.numbers["points"]["batch/cuda-graphs/b8/p512/o128|hot|normal"]
    # 7.62e9 parameters of 2 B without the embedding table (152,064 x 3,584), and the KV cache:
    # 57,344 B per token for 8 x (512 + 64) tokens.
    weights = 2 * (7_615_616_512 - 152_064 * 3_584 + 8 * 3_584)
    read = weights + 8 * 576 * 57_344
    assert loads["decode"]["bytes"] == pytest.approx(read, rel=1e-3)
    assert loads["decode"]["mbu"] == pytest.approx(read / 4.6e12 / laws.step("", 8, 576), rel=0.01)
    assert loads["prefill"]["mfu"] == pytest.approx(
        loads["prefill"]["flops"] / 700e12 / laws.prefill(8, 512), rel=0.01
    )
    bound = finding(made, "bound").verdict.values
    assert (bound["decode"], bound["prefill"]) == (Text("memory-bound"), Text("compute-bound"))


def test_every_question_has_its_answer(made: Section) -> None:
    assert value(made, "idle", "free") == pytest.approx(10)
    assert "2.0x at batch 1" in Writer().text(finding(made, "cuda_graphs").verdict)
    assert value(made, "single_request", "e2e") == pytest.approx(0.304, rel=0.01)
    assert value(made, "single_request", "ttft") == pytest.approx(0.0193, rel=0.01)
    preempted = finding(made, "kv_cache").verdict.values
    assert (preempted["n"], preempted["smallest"]) == (16, 128)
    lost = finding(made, "lost_points").verdict.values
    assert (lost["n"], lost["total"]) == (1, 27)
    assert "sw power cap" in section_markdown(made)
    assert (value(made, "agreement", "difference") or 0) < 0.01


def test_nothing_is_missing_in_a_finding(made: Section) -> None:
    numbers = [
        v
        for one in made.findings
        for v in (*sentence_values(one), *rests(one))
        if isinstance(v, Number)
    ]
    assert [n for n in numbers if n.value is None] == []


def test_figures_and_the_timeline_hold_what_was_measured(made: Section) -> None:
    names = {figure.chart.name: figure.chart for figure in made.figures}
    throughput, over_time = names["serving-throughput"], names["serving-timeline"]
    assert isinstance(throughput, LineFigure)
    assert throughput.marks[0][0] == pytest.approx(made.numbers["batch_law"]["bend"])
    assert isinstance(over_time, TimelineFigure)
    assert [span.group for span in over_time.spans[:3]] == [
        "engine starts or ends",
        "warm-up",
        "single request",
    ]
    assert {"128"} <= {span.text for span in over_time.spans if span.group == "batch size"}
    for panel in over_time.panels:
        for line in panel.series:
            assert len(line.x) <= 400
            assert all(b > a for a, b in zip(line.x, line.x[1:], strict=False))
    for picture in bench_pictures([made]):
        picture.draw()


def test_the_report_speaks_of_serving_and_results_json_fits_its_schema(run: Run) -> None:
    written = render_report(run)
    report = written.report.read_text(encoding="utf-8")
    for wrong in ("CUDA events", "N(0, 1)", "no counters", "SM clock of the samples", "|hot|"):
        assert wrong not in report, wrong
    for right in ("Points measured", "random (dummy)", "results.json", "TTFT"):
        assert right in report, right
    text = (written.folder / "results.json").read_text(encoding="utf-8")
    results = json.loads(text)
    jsonschema.validate(results, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert len(results["points"]) == 27
    lost = [point for point in results["points"] if point["status"] == "out-of-memory"]
    assert [(point["batch"], point["ttft_p50_s"]) for point in lost] == [(256, None)]
    assert results["engines"][0]["model_config"]["model_type"] == "qwen2"
    assert results["analysis"]["serving_baseline"]["batch_law"]["bend"] > 1
    assert "NaN" not in text


def test_the_schema_of_results_is_up_to_date() -> None:
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == schema()


def test_without_roofs_and_telemetry_less_is_said_and_nothing_is_made_up(
    tmp_path: Path, make_run: Make
) -> None:
    run = make_run(tmp_path, roofs=False, telemetry=False, requests=False, batches=(1, 4))
    made = section(run)
    assert made is not None
    rules = {one.rule for one in made.findings}
    assert not rules & {"idle", "bound", "clock_limit", "batch_scaling"}
    assert value(made, "decode_rate", "rate") == pytest.approx(3e12, rel=0.1)
    assert made.numbers["batch_law"] is None  # two batches are no sweep
    assert not any(isinstance(figure.chart, TimelineFigure) for figure in made.figures)
    numbers = [
        v
        for one in made.findings
        for v in (*sentence_values(one), *rests(one))
        if isinstance(v, Number)
    ]
    assert [n for n in numbers if n.value is None] == []
    assert "nan" not in section_markdown(made)
    render_report(run)


def test_points_of_the_two_modes_are_kept_apart(run: Run) -> None:
    found = baseline(run)
    assert found.mode == "cuda-graphs"
    assert [point.batch for point in found.batches] == [1, 4, 8, 16, 32, 64, 128]
    assert {point.mode for point in found.of("graphs")} == {"eager"}


def test_a_run_of_other_cases_has_no_such_section(run: Run) -> None:
    view = bench_report(run)
    assert [made.key for made in view.sections] == ["serving_baseline"]
    assert view.overview[0].label.message == "Points measured"


def test_nothing_is_said_of_idle_time_that_nvml_does_not_see(
    recorded_run_of: Callable[[str], Run],
) -> None:
    run = recorded_run_of("h200-vllm-baseline")
    alone = run.serving_points.set_index("case")["gpu_util_pct_mean"]
    assert alone["batch/cuda-graphs/b1/p512/o128"] > 99
    found = section(run)
    assert found is not None
    rules = {finding.rule for finding in found.findings}
    assert "batch_scaling" in rules
    assert "idle" not in rules
