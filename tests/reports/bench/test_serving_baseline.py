"""The report of the offline baseline: known laws come back as numbers, sentences and figures."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nsight_prof.reports.bench.adapter import page_section
from nsight_prof.reports.bench.models import Section
from nsight_prof.reports.bench.serving_baseline import section
from nsight_prof.reports.bench.serving_baseline_points import baseline
from nsight_prof.reports.bench.view import bench_view
from nsight_prof.reports.load import Run
from nsight_prof.reports.page.charts import LineFigure, TimelineFigure
from nsight_prof.reports.plots.gallery import bench_pictures
from nsight_prof.reports.render import render_report
from nsight_prof.reports.results_json import schema

Make = Callable[..., Run]
SCHEMA = Path(__file__).parents[3] / "reports" / "results.schema.json"


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


def sentences(made: Section) -> str:
    return " ".join(finding.sentence for finding in made.findings)


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
    assert f"bends at batch {round(fixed / each)}" in sentences(made)


def test_what_a_doubled_prompt_costs_is_the_slope_between_two_lengths(
    made: Section, laws: Any
) -> None:
    found = {(d["from_tokens"], d["to_tokens"]): d["factor"] for d in made.numbers["doublings"]}
    ratio = laws.prefill(1, 4000) / laws.prefill(1, 1000)
    assert found[1000, 4000] == pytest.approx(math.sqrt(ratio), rel=1e-6)
    assert made.numbers["prompt_law"]["each_s"] == pytest.approx(laws.prompt_s, rel=0.01)
    assert made.numbers["prompt_law"]["fixed_s"] == pytest.approx(laws.first_s, rel=0.01)
    assert "A doubled prompt does not cost twice" in sentences(made)


def test_stages_are_set_against_the_measured_roofs(made: Section, laws: Any) -> None:
    loads = made.numbers["points"]["batch/cuda-graphs/b8/p512/o128|hot|normal"]
    # 7.62e9 parameters of 2 B without the embedding table (152,064 x 3,584), and the KV cache:
    # 57,344 B a token for 8 x (512 + 64) tokens.
    weights = 2 * (7_615_616_512 - 152_064 * 3_584 + 8 * 3_584)
    read = weights + 8 * 576 * 57_344
    assert loads["decode"]["bytes"] == pytest.approx(read, rel=1e-3)
    assert loads["decode"]["mbu"] == pytest.approx(read / 4.6e12 / laws.step("", 8, 576), rel=0.01)
    assert loads["prefill"]["mfu"] == pytest.approx(
        loads["prefill"]["flops"] / 700e12 / laws.prefill(8, 512), rel=0.01
    )
    assert "Decode is bound by memory" in sentences(made)
    assert "Prefill is bound by arithmetic" in sentences(made)


def test_every_question_has_its_sentence(made: Section) -> None:
    told = sentences(made)
    for words in (
        "NVML sees a kernel running for 90.0 %",
        "CUDA graphs make a decode step 1.99x as fast at batch 1",
        "takes 304 ms: 19.3 ms until its first token",
        "16 requests had to be preempted, from batch 128 on",
        "1 point of 27 could not be measured: 1 out of memory",
        "The clock was held down (sw power cap)",
        "agrees with vLLM's own counters",
    ):
        assert words in told
    assert all("nan" not in f"{f.sentence} {f.evidence}" for f in made.findings)
    assert all("n/a" not in f"{f.sentence} {f.evidence}" for f in made.findings)


def test_figures_and_the_timeline_hold_what_was_measured(made: Section) -> None:
    names = {figure.name: figure for figure in made.figures}
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
    for picture in bench_pictures([page_section(made)]):
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
    told = sentences(made)
    assert "NVML" not in told
    assert "bound by" not in told
    assert "TB/s" in told
    assert "bends" not in told  # two batches are no sweep
    assert not any(isinstance(figure, TimelineFigure) for figure in made.figures)
    assert all("nan" not in f"{f.sentence} {f.evidence}" for f in made.findings)
    assert "nan" not in " ".join(cell for t in made.tables for row in t.rows for cell in row)
    render_report(run)


def test_points_of_the_two_modes_are_kept_apart(run: Run) -> None:
    found = baseline(run)
    assert found.mode == "cuda-graphs"
    assert [point.batch for point in found.batches] == [1, 4, 8, 16, 32, 64, 128]
    assert {point.mode for point in found.of("graphs")} == {"eager"}


def test_a_run_of_other_cases_has_no_such_section(run: Run) -> None:
    view = bench_view(run)
    assert [made.key for made in view.sections] == ["serving_baseline"]
    assert [fact.label for fact in view.overview][0] == "Points measured"
