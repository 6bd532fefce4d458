"""Prefill and decode of a small model whose FLOPs, bytes and times are known."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.serving.model_shape import model_shape
from nsight_prof.reports.engine.stages.kinds import Floor, Kind, Stages, stages_of
from nsight_prof.reports.engine.stages.section import section
from nsight_prof.reports.profile.links import page_links
from nsight_prof.reports.profile.views import engine_sections as sections
from nsight_prof.reports.profile.views import report_view
from nsight_prof.reports.render.metrics_json import render_metrics
from nsight_prof.reports.serving.formulas import decode, flops, prefill, traffic
from tests.schemas import of_metrics
from tests.sections import finding, rows, table, told, words

Make = Callable[..., Run]
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CONFIG: dict[str, Any] = json.loads((FIXTURES / "small_llama.json").read_text())
SHAPE = model_shape(CONFIG)
PREFILL = flops(SHAPE, prefill(2, 10)).total
READ = sum(traffic(SHAPE, decode(2, context)).read for context in (10, 11))


def roof(level: str, dtype: str, kind: str, value: float) -> dict[str, Any]:
    """One row of measured_roofs."""
    unit = "B/s" if level == "dram" else "FLOP/s"
    return {"level_or_pipe": level, "dtype": dtype, "kind": kind, "value": value, "unit": unit}


# Roofs at which the prefill reaches half of the arithmetic and decode half of the bandwidth.
STEADY = roof("tensor", "bf16", "steady", 2 * PREFILL / 1200e-9)
BURST = roof("tensor", "bf16", "burst", 4 * PREFILL / 1200e-9)
DRAM = roof("dram", "", "read", 2 * READ / 900e-9)


def made(run: Run) -> Stages:
    stages = stages_of(run)
    assert stages is not None
    return stages


def floor_of(kind: Kind) -> Floor:
    assert kind.floor is not None
    return kind.floor


def test_times_and_tokens_of_each_kind(serving_run: Make) -> None:
    stages = made(serving_run())
    first, second = stages.kinds
    assert (first.kind, second.kind) == ("prefill", "decode")
    assert (first.steps, first.time_ns, first.tokens, first.generated) == (1, 1200, 20, 0)
    # The last step has no next one: it lasts to its own end.
    assert (second.steps, second.time_ns, second.tokens, second.generated) == (2, 900, 4, 4)
    assert stages.span_ns == 2100
    assert first.share == pytest.approx(1200 / 2100)
    assert first.busy_ns + first.idle_ns == first.time_ns
    assert second.idle_ns == 900 - 2 * 390
    assert second.gaps == (("sampling", 100.0), ("launches", 10.0))


def test_mfu_mbu_and_floors(serving_run: Make) -> None:
    stages = made(serving_run(measured_roofs=[STEADY, BURST, DRAM]))
    first, second = stages.kinds
    assert first.work is not None
    assert first.work.flops.total == PREFILL
    assert second.work is not None
    assert second.work.traffic.read == READ
    floor = floor_of(first)
    # No step beats the highest roof; the power limit takes what the steady one is below it.
    assert (floor.limited_by, floor.roof.key) == ("arithmetic", "burst")
    assert floor.seconds == pytest.approx(300e-9)
    assert first.power_ns(stages.roofs) == pytest.approx(300)
    assert second.power_ns(stages.roofs) == 0
    floor = floor_of(second)
    assert (floor.limited_by, floor.roof.key) == ("memory", "read")
    assert floor.seconds == pytest.approx(225e-9)
    assert floor.seconds <= second.mean_ns / 1e9
    found = section(serving_run(measured_roofs=[STEADY, BURST, DRAM]))
    assert found is not None
    assert [row["Time over floor"] for row in rows(table(found, "stages-floors"))] == [4, 2]
    assert "210 ns of idle time, 300 ns by the power limit" in told(found)
    assert "and 390 ns of kernels that do not reach the roof" in told(found)
    assert "50 % of the measured steady roof" in told(found)
    numbers = found.numbers["kinds"]
    assert numbers["prefill"]["mfu_steady"] == pytest.approx(0.5)
    assert numbers["prefill"]["mfu_burst"] == pytest.approx(0.25)
    assert numbers["decode"]["mbu_read"] == pytest.approx(0.5)


def test_the_steady_roof_stands_beside_the_floor_of_the_burst_roof(serving_run: Make) -> None:
    slow = STEADY | {"value": 0.9 * PREFILL / 1200e-9}
    stages = made(serving_run(measured_roofs=[slow, BURST, DRAM]))
    floor = floor_of(stages.kinds[0])
    assert floor.roof.key == "burst"
    assert floor.seconds == pytest.approx(300e-9)
    # It is faster than the power limit lets it be for long: it ended before.
    assert stages.kinds[0].power_ns(stages.roofs) == 0
    found: Any = section(serving_run(measured_roofs=[slow, BURST, DRAM]))
    assert "111 % of the measured steady roof" in told(found)


def test_without_measured_roofs_the_datasheet_is_named_and_without_it_nothing_is_told(
    serving_run: Make,
) -> None:
    from_sheet = made(serving_run())
    assert from_sheet.roofs.memory is not None
    assert from_sheet.roofs.memory.name == "datasheet bandwidth"
    assert from_sheet.roofs.compute is None
    bare = serving_run(roofs=[])
    stages = made(bare)
    assert stages.kinds[0].floor is None
    found = section(bare)
    assert found is not None
    assert "prof run recipes/roofline.yaml" in told(found)
    assert found.numbers["kinds"]["decode"]["floor_s"] is None
    assert found.figures == ()
    assert not any("floor" in words(finding.verdict) for finding in found.findings)


def test_without_an_engine_times_remain(serving_run: Make) -> None:
    found = section(serving_run(engines=[]))
    assert found is not None
    assert "recorded no engine" in told(found)
    assert found.tables[0].key == "stages-times"
    assert found.numbers["kinds"]["prefill"]["flops"] is None


def test_an_unknown_model_is_a_reason(serving_run: Make, base: SimpleNamespace) -> None:
    unknown = base.engine | {"model_config": json.dumps(CONFIG | {"model_type": "mamba"})}
    found = section(serving_run(engines=[unknown]))
    assert found is not None
    assert "model type mamba" in told(found)


def test_steps_that_do_not_fit_the_requests_have_no_work(
    serving_run: Make, base: SimpleNamespace
) -> None:
    found = section(serving_run(serving_points=[base.point | {"batch": 1}]))
    assert found is not None
    assert "do not fit them" in told(found)
    assert found.numbers["kinds"]["decode"]["floor_s"] is None


def test_a_run_without_engine_steps_has_no_section(
    run: Run, serving_run: Make, base: SimpleNamespace
) -> None:
    assert stages_of(run) is None
    assert section(run) is None
    empty = [base.steps[0] | {"kind": "empty", "gpu_start_ns": None, "gpu_end_ns": None}]
    assert section(serving_run(engine_steps=empty)) is None


def test_of_two_gpus_the_first_stands_for_both(serving_run: Make, base: SimpleNamespace) -> None:
    talking = {"collective_ns": 100, "collective_exposed_ns": 60}
    mine = [row | talking for row in base.steps]
    other = [row | talking | {"device": 1, "pid": 8, "busy_ns": 1} for row in base.steps]
    run = serving_run(
        engine_steps=[*other, *mine],
        engines=[base.engine | {"tensor_parallel": 2}],
        measured_roofs=[STEADY, DRAM],
    )
    stages = made(run)
    assert (stages.gpus, stages.kinds[0].busy_ns) == (2, 990)
    assert stages.kinds[0].work is not None
    assert stages.kinds[0].work.flops.total == PREFILL / 2
    found = section(run)
    assert found is not None
    first = rows(table(found, "stages-collectives"))[0]
    assert list(first.values()) == ["prefill", 100, pytest.approx(1 / 12), 60, 0.4]


def test_other_batches_tell_what_a_larger_one_costs(
    serving_run: Make, base: SimpleNamespace
) -> None:
    plain = {"source": "untraced", "traced": False}
    points = [
        base.point,
        base.point | plain | {"case": "a", "decode_step_s": 400e-9},
        base.point | plain | {"case": "b", "batch": 16, "decode_step_s": 440e-9},
        base.point | plain | {"case": "c", "batch": 32, "decode_step_s": None, "status": "failed"},
        base.point | plain | {"case": "d", "batch": 64, "decode_step_s": 1.0, "engine": "eager"},
    ]
    found = section(serving_run(serving_points=points, measured_roofs=[STEADY, BURST, DRAM]))
    assert found is not None
    assert [one["batch"] for one in found.numbers["batches"]] == [2, 16]
    larger = finding(found, "larger_batch")
    assert larger.action is not None
    for text in (larger.verdict, larger.action):
        assert "takes 1.1x the time" in words(text)
        assert "7.3x the tokens per second" in words(text)
    assert "at 50 % of the measured DRAM read roof" in words(found.findings[0].verdict)


def test_the_report_shows_the_sections_and_fits_its_schema(serving_run: Make) -> None:
    run = serving_run(measured_roofs=[STEADY, BURST, DRAM])
    view = report_view(run)
    assert [made.key for made in view.sections][0] == "stages"
    assert {"stages", "model"} <= {made.key for made in view.sections}
    leading = [f.verdict for made in view.sections for f in made.findings if not f.technical]
    assert view.answer[0] in leading
    written = json.loads(render_metrics(view, page_links(run, view), run.gaps))
    of_metrics().validate(written)
    assert [s["key"] for s in written["sections"]] == [s.key for s in view.sections]
    assert all("figures" not in s for s in written["sections"])


def test_a_program_that_serves_nothing_has_no_sections(run: Run) -> None:
    assert sections(run, {}) == ()
    view = report_view(run)
    assert view.sections == ()
    assert replace(view, sections=()) == view


def test_idle_time_is_named_by_what_the_host_did(serving_run: Make, base: SimpleNamespace) -> None:
    gaps = [base.gaps[0] | {"activity": "", "cause": "cudaEventSynchronize"}]
    found: Any = section(serving_run(engine_gaps=gaps))
    first = rows(table(found, "stages-times"))[0]
    assert first["GPU idle, mostly"] == "17.5 %: cudaEventSynchronize"
