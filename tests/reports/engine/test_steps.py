"""The section about engine steps, on real traces of vLLM and on tables with known answers."""

import json
import lzma
import math
import re
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.build.run_tables import build_tables
from nsight_prof.parsers.run.directory import (
    Manifest,
    RunDir,
    StepRecord,
    StepState,
    write_manifest,
)
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.engine.steps.section import section
from nsight_prof.reports.engine.steps.times import (
    BEFORE,
    TRACED,
    UNTRACED,
    host_clock,
    kind_times,
    rank_times,
)
from nsight_prof.reports.page import Section
from nsight_prof.reports.render.gallery import bench_pictures
from tests.sections import finding, rows, table, told, words

FIXTURES = Path(__file__).parents[2] / "fixtures" / "vllm_nsys"
# What the host timed of the same capture, traced and before: seconds and outputs of each step.
HOST = {
    True: [
        (0.015489, 0),
        (0.068371, 8),
        (0.004443, 8),
        (0.00496, 8),
        (0.004855, 8),
        (0.004983, 8),
        (0.005021, 8),
        (0.005134, 8),
        (0.004891, 8),
        (0.004992, 8),
        (0.00493, 8),
        (0.005005, 8),
        (0.005286, 8),
    ],
    False: [
        (0.011461, 0),
        (0.068979, 8),
        (0.004678, 8),
        (0.00489, 8),
        (0.004953, 8),
        (0.005006, 8),
        (0.004758, 8),
        (0.004925, 8),
        (0.004915, 8),
        (0.004912, 8),
        (0.004912, 8),
        (0.004866, 8),
        (0.005123, 8),
    ],
}


def traced_run(folder: Path, name: str, host: dict[bool, list[tuple[float, int]]]) -> Run:
    """A run of one trace, with the tables that `prof report` makes of it."""
    trace = folder / "steps" / "1-trace"
    trace.mkdir(parents=True)
    packed = (FIXTURES / f"{name}.sqlite.xz").read_bytes()
    (trace / "trace.sqlite").write_bytes(lzma.decompress(packed))
    records = [
        {
            "record": "step",
            "case": "prefill-decode/b8/p512/o12",
            "repeat": 2 if traced else 1,
            "traced": traced,
            "index": index,
            "t_s": 1.0 + index,
            "seconds": seconds,
            "outputs": outputs,
            "tokens": outputs,
        }
        for traced, steps in host.items()
        for index, (seconds, outputs) in enumerate(steps)
    ]
    lines = "".join(f"{json.dumps(record)}\n" for record in records)
    (trace / "result.jsonl").write_text(lines, encoding="utf-8")
    manifest = Manifest(folder.name, "2025-01-01T00:00:00Z", {"name": "x", "stages": []})
    manifest.steps = [StepRecord("trace", "x", StepState.DONE, "steps/1-trace")]
    write_manifest(RunDir(folder), manifest)
    build_tables(RunDir(folder))
    return load_run(folder)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return traced_run(tmp_path_factory.mktemp("graphs"), "graphs", HOST)


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return traced_run(tmp_path_factory.mktemp("layers"), "layers", {})


def made(run: Run) -> Section:
    found = section(run)
    assert found is not None
    return found


def test_busy_and_idle_of_the_trace_agree_with_the_clock_of_the_host(graphs: Run) -> None:
    found = made(graphs)
    assert set(found.numbers["agreement"]) == {"batch", "decode step"}
    assert all(abs(value) < 0.02 for value in found.numbers["agreement"].values())
    agreement = finding(found, "agreement_with_host")
    assert "agree within 2" in words(agreement.verdict)
    # What a reader works out of the two times is the difference that stands there.
    stated = re.findall(
        r"([\d.]+) ms against ([\d.]+) ms \((-?[\d.]+) %\)", words(agreement.verdict)
    )
    assert stated
    for trace, host, difference in stated:
        again = 100 * (float(trace) / float(host) - 1)
        assert f"{again:.2g}" == f"{float(difference):.2g}"


def test_numbers_are_those_of_the_table(graphs: Run) -> None:
    steps = graphs.engine_steps
    decode = steps[steps["kind"] == "decode"]
    kind = made(graphs).numbers["kinds"]["decode"]
    assert kind["steps"] == 11
    assert kind["kernel_s"] == pytest.approx(decode["kernel_ns"].median() * 1e-9)
    idle = graphs.engine_gaps.merge(decode[["step"]])["idle_ns"].sum()
    assert sum(kind["idle_by_s"].values()) * 11 == pytest.approx(idle * 1e-9)
    assert kind["busy_s"] + kind["idle_s"] == pytest.approx(kind["step_s"], rel=0.01)


def test_a_host_that_keeps_ahead_is_not_blamed(graphs: Run, layers: Run) -> None:
    graph, eager = made(graphs).findings[0], made(layers).findings[0]
    assert words(graph.verdict).startswith("The CPU keeps ahead in decode")
    assert graph.rule == "host_keeps_up"
    assert words(eager.verdict).startswith("The CPU limits decode")
    assert words(eager.verdict.values["activity"]) == "launches of the forward pass"


def test_what_tracing_adds_is_stated(graphs: Run) -> None:
    traced, before = (sum(s for s, _ in HOST[key]) for key in (True, False))
    host = host_clock(graphs)
    assert host.batch(TRACED).value == pytest.approx(traced)
    assert host.batch(BEFORE).value == pytest.approx(before)
    difference: Any = finding(made(graphs), "tracing_overhead").verdict.values["difference"]
    assert difference.value == pytest.approx(traced / before - 1)


def test_a_step_without_outputs_belongs_to_the_next(graphs: Run) -> None:
    host = host_clock(graphs)
    first = HOST[True][0][0] + HOST[True][1][0]
    assert host.step(TRACED, "prefill").value == pytest.approx(first)
    assert host.step(TRACED, "decode").value == pytest.approx(median(s for s, _ in HOST[True][2:]))


def test_modules_are_shown_or_said_not_to_be_there(graphs: Run, layers: Run) -> None:
    shown = rows(table(made(layers), "engine-modules"))
    assert any("mlp.gate_up_proj" in row["Module"] for row in shown)
    assert "engine-modules" not in {one.key for one in made(graphs).tables}
    method: Any = made(graphs).blocks[-1]
    assert any(words(text).startswith("No time by module") for text in method.items)


def test_figures_can_be_drawn(graphs: Run, layers: Run) -> None:
    for run in (graphs, layers):
        pictures = bench_pictures([made(run)])
        assert {picture.name for picture in pictures} == {"engine-steps", "engine-idle"}
        for picture in pictures:
            picture.draw()


def test_a_run_without_engine_steps_has_no_section(run: Run) -> None:
    assert section(run) is None


def steps_of_ranks(collective: list[int], wait: list[int | None]) -> pd.DataFrame:
    """Two decode steps on each of two GPUs; the second has no period."""
    every = []
    for device in (0, 1):
        for step in (0, 1):
            row: dict[str, Any] = {column.name: 0 for column in tables.tables()["engine_steps"]}
            row |= {
                "step": step,
                "pid": 10 + device,
                "device": device,
                "kind": "decode",
                "gpu_start_ns": 1000 * step,
                "gpu_end_ns": 1000 * step + 900,
                "period_ns": 1000 if step == 0 else None,
                "kernel_ns": 900,
                "busy_ns": 900,
                "idle_ns": 100 if step == 0 else None,
                "idle_after_ns": 100 if step == 0 else None,
                "collective_ns": collective[device],
                "collective_exposed_ns": collective[device],
                "collective_wait_ns": wait[device],
                "cause": "",
            }
            every.append(row)
    return tables.check(pd.DataFrame(every), "engine_steps")


def rank_run(frame: pd.DataFrame, **more: pd.DataFrame) -> Any:
    empty = {name: tables.empty(name) for name in tables.tables()}
    return SimpleNamespace(**{**empty, "engine_steps": frame, **more})


def test_ranks_stand_beside_each_other() -> None:
    run = rank_run(steps_of_ranks([300, 100], [200, 0]))
    ranks = rank_times(run)
    assert [(r.device, r.mean["collective_ns"]) for r in ranks] == [(0, 300), (1, 100)]
    assert [r.mean["collective_wait_ns"] for r in ranks] == [200, 0]
    found = made(run)
    verdict = finding(found, "collectives").verdict
    part: Any = verdict.values["part"]
    assert part.value == pytest.approx(200 / ((1000 + 900) / 2))
    assert "100 ns of it waiting" in words(verdict)
    assert rows(table(found, "engine-gpus"))[0]["Step"] == "decode"
    assert "each of 2 GPUs" in told(found)


def test_an_unknown_wait_is_not_told() -> None:
    found = made(rank_run(steps_of_ranks([300, 100], [None, None])))
    assert "waiting" not in words(finding(found, "collectives").verdict)
    assert all(math.isnan(rank["collective_waiting_s"]) for rank in found.numbers["ranks"])


def test_one_gpu_without_collectives_has_no_ranks() -> None:
    frame = steps_of_ranks([0, 0], [None, None])
    assert rank_times(rank_run(frame[frame["device"] == 0])) == ()


def test_the_run_by_itself_goes_before_the_same_process() -> None:
    frame = steps_of_ranks([0, 0], [None, None])
    host = [
        (source, traced, repeat, index, seconds)
        for source, traced, repeat, times in (
            ("trace", True, 2, (0.3, 0.3)),
            ("trace", False, 1, (0.25, 0.25)),
            ("untraced", False, 1, (0.2, 0.2)),
        )
        for index, seconds in enumerate(times)
    ]
    columns = ["source", "traced", "repeat", "index", "seconds"]
    steps = pd.DataFrame(host, columns=columns).assign(
        process=1, case="c", t_s=0.0, outputs=2, tokens=2
    )
    run = rank_run(frame, host_steps=tables.check(steps, "host_steps"))
    assert host_clock(run).batch(UNTRACED).value == pytest.approx(0.4)
    verdict = words(finding(made(run), "tracing_overhead").verdict)
    assert "batch by 50 %" in verdict
    assert "the target run by itself" in verdict


def test_generations_with_another_number_of_steps_are_left_out() -> None:
    frame = steps_of_ranks([0, 0], [None, None])
    steps = pd.DataFrame({"seconds": [0.1, 0.1, 0.1], "index": [0, 1, 2]}).assign(
        source="trace", traced=True, repeat=1, process=1, case="c", t_s=0.0, outputs=2, tokens=2
    )
    run = rank_run(frame, host_steps=tables.check(steps, "host_steps"))
    host = host_clock(run)
    assert (host.steps, host.batches) == ({}, {})
    assert host.batch(TRACED).value is None


def test_kinds_have_an_order_and_empty_steps_no_time() -> None:
    frame = steps_of_ranks([0, 0], [None, None])
    frame.loc[frame["step"] == 1, "kind"] = "prefill"
    kinds = kind_times(rank_run(frame))
    assert [kind.kind for kind in kinds] == ["prefill", "decode"]
    assert replace(kinds[0], steps=1) == kinds[0]
    frame["gpu_start_ns"] = pd.array([pd.NA] * len(frame), dtype="Int64")
    assert kind_times(rank_run(frame)) == ()
