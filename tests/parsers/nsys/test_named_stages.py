"""Stages that the recipe names, and GPU work that vLLM issues after the range of a step."""

from pathlib import Path
from typing import Any

import pytest

from nsight_prof.parsers.names.ranges import name_stages
from nsight_prof.parsers.nsys.trace import open_trace

PREFILL = "execute_context_2(64)_generation_0(0)"
DECODE = "execute_context_0(0)_generation_2(2)"
EMPTY = "execute_context_0(0)_generation_0(0)"
STAGES = {
    "prefill": r"execute_context_[1-9]\d*\(\d+\)_generation_0\(0\)",
    "decode": r"execute_context_0\(0\)_generation_[1-9]\d*\(\d+\)",
}


def test_a_mapping_names_the_stages_and_the_first_that_fits_wins() -> None:
    names = [("", "forward 1"), ("torch", "backward"), ("", "other")]
    assert name_stages(names, {"first": "forward.*", "all": "torch:.*|f.*"}) == [
        "first",
        "all",
        None,
    ]
    assert name_stages(names, ["back.*"]) == [None, "torch:backward", None]
    assert name_stages(names, []) == ["forward 1", "torch:backward", "other"]


@pytest.fixture
def engine(export: Any, tmp_path: Path) -> Path:
    """Two steps with samplers behind them, an empty step, and a kernel before them all."""
    export.rows.clear()
    host = [(2, "early"), (20, "p"), (35, "sample p"), (50, "d"), (65, "sample d"), (95, "late")]
    for number, (start, name) in enumerate(host, 1):
        export.call(start, 1, number)
        export.kernel(1000 + 10 * number, 5, name, number)
    export.call(85, 1, 50)
    export.copy(1100, 1, 50)
    for start, end, name in [(10, 30, PREFILL), (40, 60, DECODE), (80, 90, EMPTY)]:
        export.range(start, end, name)
    made: Path = export.write(tmp_path / "engine.sqlite")
    return made


def test_work_after_a_step_counts_to_its_stage_until_the_next_step(engine: Path) -> None:
    with open_trace(engine, STAGES) as trace:
        launches, stages = trace.launches(), trace.stages().set_index("stage")
        assert any("engine step" in warning for warning in trace.warnings)

    assert launches["stage"].astype("string").fillna("").tolist() == [
        "",
        "prefill",
        "prefill",
        "decode",
        "decode",
        "",
    ]
    assert stages["launches"].to_dict() == {"(all)": 6, "prefill": 2, "decode": 2}


def test_a_stage_that_no_range_fits_is_told_by_its_name(engine: Path) -> None:
    with open_trace(engine, {**STAGES, "mixed": "nothing"}) as trace:
        trace.stages()
        assert any("fits stage mixed ('nothing')" in warning for warning in trace.warnings)


def test_threads_keep_their_own_steps(export: Any, tmp_path: Path) -> None:
    export.rows.clear()
    for process, start in ((7, 10), (9, 15)):
        export.range(start, start + 10, DECODE, process=process)
        for number, at in enumerate((start + 1, start + 30), 1):
            export.call(at, 1, number, process)
            export.kernel(100 * process + number * 10, 5, f"k{process}", number, process)
    export.call(5, 1, 3, 9)
    export.kernel(5000, 5, "before", 3, 9)
    with open_trace(export.write(tmp_path / "t.sqlite"), STAGES) as trace:
        launches = trace.launches()
    assert launches["stage"].astype("string").fillna("").tolist() == ["decode"] * 4 + [""]
