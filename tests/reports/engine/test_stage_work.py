"""Stages of a recorded trace against the work that its target counted."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.gaps import Gaps
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.build.serving_tables import static_compute_frames
from nsight_prof.parsers.run.directory import RunDir
from nsight_prof.reports.engine.stage_work import section
from nsight_prof.reports.page import Verbatim
from nsight_prof.reports.page.markdown import section_markdown

LINEAR = {"kind": "Linear", "parameters": 2, "activation_bytes": 32}
MODULES = [
    {"module": "", "kind": "Toy", "parameters": 5, "flops": 1000, "activation_bytes": 8},
    *({"module": f"layers.{n}.up", "flops": 250 * n, **LINEAR} for n in (1, 2)),
    {"module": "norm2", "flops": 0, **LINEAR},
]
OPERATORS = [
    {"stage": "prefill", "operator": "aten.mm", "flops": 750},
    {"stage": "prefill", "operator": "aten.bmm", "flops": 250},
]


def work(**changes: Any) -> dict[str, Any]:
    """What a target writes: a prefill that computes, and a decode that reads."""
    prefill = {"stage": "prefill", "calls": 1, "flops": 10**12, "weight_bytes": 0, "kv_bytes": 0}
    decode = {"stage": "decode", "calls": 16, "flops": 0, "weight_bytes": 10**9, "kv_bytes": 10**8}
    return {
        "model": "toy",
        "dtype": "bfloat16",
        "parameters": 5,
        "stages": [prefill | changes, decode],
        "stages_s": [{"prefill": 1.0}, {"prefill": 4.0}, {"prefill": 2.0}],
    }


@pytest.fixture
def run(recorded_folder: Callable[[str], Path], tmp_path: Path) -> Any:
    """A recorded run whose target counted; of its tables only those of the work are made again."""

    def made(counted: object, recorded: str = "h200-top-kernels") -> Any:
        folder = RunDir(shutil.copytree(recorded_folder(recorded), tmp_path / "run"))
        (folder.path / "steps/1-trace/static_compute.json").write_text(json.dumps(counted))
        gaps = Gaps()
        frames = static_compute_frames(folder, gaps)
        frames["gaps"] = gaps.frame(tables.read(folder.tables, "gaps"))
        for name, frame in frames.items():
            tables.write(frame, name, folder.tables)
        return load_run(folder.path)

    return made


def test_mfu_and_mbu_are_work_over_time_and_the_measured_roofs(run: Any) -> None:
    found = run(work() | {"modules": MODULES, "operators": OPERATORS})
    shutil.rmtree(found.path / "tables")  # all of them are made, as of a new run
    found = load_run(found.path)
    shown = section(found)
    assert shown is not None
    prefill, decode = shown.numbers["stages"]
    wall = found.stages.set_index("stage")["wall_ns"]
    roofs = found.measured_roofs.set_index(["level_or_pipe", "dtype", "kind"])["value"]
    steady, read = roofs["tensor", "bf16", "steady"], roofs["dram", "", "read"]
    assert prefill["mfu"] == pytest.approx(1e12 / (wall["prefill"] * 1e-9) / steady)
    busy = found.stages.set_index("stage")["gpu_busy_ns"]
    assert prefill["mfu_busy"] == pytest.approx(1e12 / (busy["prefill"] * 1e-9) / steady)
    assert decode["mbu"] == pytest.approx(1.1e9 / (wall["decode"] * 1e-9) / read)
    (row,) = found.stage_work[found.stage_work["stage"] == "prefill"].to_dict("records")
    assert row["seconds"] == 2.0
    told: list[Any] = list(shown.facts)
    (fact,) = [f for f in told if f.label.values["stage"] == Verbatim("decode")]
    assert fact.value.values["part"].value == pytest.approx(
        wall["decode"] / wall.drop("(all)").sum()
    )
    written = section_markdown(shown)  # the modules of all layers are one row with their sum
    assert r"| layers.\*.up | Linear | 2 | 4 | 750 FLOP | 75.0 % | 64 B |" in written
    assert "norm2" not in written
    assert "| prefill | aten.mm | 750 FLOP | 75.0 % |" in written


def test_more_than_a_roof_allows_is_no_share(run: Any) -> None:
    shown = section(run(work(flops=10**18)))
    assert shown is not None
    assert shown.numbers["stages"][0]["mfu"] is None


def test_a_stage_beyond_measured_roofs_is_held_to_the_datasheets(
    run: Any, recorded_run_of: Any
) -> None:
    stages = recorded_run_of("h200-top-kernels").stages.set_index("stage")
    wall_s = stages["wall_ns"]["prefill"] * 1e-9
    shown = section(run(work(flops=int(950e12 * wall_s))))
    assert shown is not None
    assert shown.numbers["stages"][0]["mfu"] == pytest.approx(950 / 989.4, rel=1e-3)
    assert "The measured roofs are left out" in section_markdown(shown)


def test_a_quantized_checkpoint_says_what_it_would_read(run: Any) -> None:
    counted = work(weight_bytes=4 * 10**9, stored_bytes=10**9) | {"quantization": "awq"}
    shown = section(run(counted))
    assert shown is not None
    written = section_markdown(shown)
    assert "The checkpoint is quantized (awq)" in written
    assert "would read: prefill 1.0 GB." in written


@pytest.mark.parametrize("broken", [work(flops=-1), work(flops="many"), {"stages": 3}, []])
def test_what_is_no_count_is_told_and_shows_no_section(run: Any, broken: object) -> None:
    found = run(broken, "h200-known-gemm")
    assert section(found) is None
    told = found.gaps[found.gaps["table"] == "stage_work"]["reason"]
    assert told.str.contains("static_compute.json cannot be read").all()
    assert len(told) == 1


def test_a_run_that_counted_nothing_has_no_section(recorded_run_of: Any) -> None:
    assert section(recorded_run_of("h200-top-kernels")) is None
