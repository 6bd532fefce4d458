"""GPU time by module: vLLM's layer-wise ranges of an eager trace, and traces that have none."""

import lzma
import re
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.parsers.names.ranges import module_path
from nsight_prof.parsers.nsys.trace import open_trace

FIXTURES = Path(__file__).parents[2] / "fixtures" / "vllm_nsys"
DECODE = "execute_context_0(0)_generation_2(2)"


def test_a_module_path_stands_for_all_layers() -> None:
    assert module_path("{'Module': 'M.model.layers.12.mlp.down_proj', 'Inputs': [[8, 4]]}") == (
        "M.model.layers.*.mlp.down_proj"
    )
    assert module_path("{'Module': 'M.layers.3', 'x': 1}") == "M.layers.*"
    assert module_path("vllm:{'Module': 'top'}") == "top"
    assert module_path("gpu_model_runner: forward") is None


def test_each_kernel_counts_to_its_innermost_module() -> None:
    """Against a walk over the export, kernel by kernel."""
    packed = FIXTURES / "layers.sqlite.xz"
    db = sqlite3.connect(":memory:")
    db.deserialize(lzma.decompress(packed.read_bytes()))
    ranges = db.execute(
        "SELECT start, end, coalesce(text, value) AS name FROM NVTX_EVENTS LEFT JOIN StringIds"
        " ON id = textId WHERE name LIKE '{''Module''%' OR name LIKE 'execute%' ORDER BY start"
    ).fetchall()
    kernels = db.execute(
        "SELECT k.end - k.start, r.start FROM CUPTI_ACTIVITY_KIND_KERNEL k"
        " JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId"
    ).fetchall()
    db.close()
    expected: Counter[tuple[str, str]] = Counter()
    launches: Counter[tuple[str, str]] = Counter()
    for duration, call in kernels:
        open_here = [name for start, end, name in ranges if start <= call < end]
        begun = [name for start, _, name in ranges if name[0] == "e" and start <= call]
        kind = "prefill" if begun[-1].startswith("execute_context_8") else "decode"
        inside = [name for name in open_here if name[0] == "{"]
        if inside:
            path = re.sub(r"\.\d+", ".*", inside[-1].split("'")[3])
            expected[kind, path] += duration
            launches[kind, path] += 1
    with open_trace(packed) as trace:
        modules, kernels_of = trace.modules()
        steps = trace.engine_steps()
        known = set(trace.kernels()["kernel_id"])
    worked = modules[modules["launches"] > 0]
    found = {(r["stage"], r["module"]): r["kernel_ns"] for r in worked.to_dict("records")}
    assert found == dict(expected)
    counted = {(r["stage"], r["module"]): r["launches"] for r in worked.to_dict("records")}
    assert counted == dict(launches)
    assert set(kernels_of["kernel_id"]) <= known
    by_stage = kernels_of.groupby("stage")["kernel_ns"].sum()
    assert by_stage.to_dict() == steps.groupby("kind")["kernel_ns"].sum().to_dict()


def test_modules_are_counted_once_a_run() -> None:
    """24 layers of Qwen2.5-0.5B, one prefill and two decode steps."""
    with open_trace(FIXTURES / "layers.sqlite.xz") as trace:
        modules, _ = trace.modules()
        assert trace.why_no_modules() is None
    times = modules.set_index(["stage", "module"])["instances"]
    name = "Qwen2ForCausalLM.model.layers.*.mlp.gate_up_proj"
    assert times["prefill", name] == 24
    assert times["decode", name] == 48
    assert times["decode", "Qwen2ForCausalLM.model.norm"] == 2


@pytest.mark.parametrize("name", ["graphs", "spawned"])
def test_graphs_have_no_modules_and_say_why(name: str) -> None:
    with open_trace(FIXTURES / f"{name}.sqlite.xz") as trace:
        modules, kernels = trace.modules()
        reason = trace.why_no_modules()
    assert modules.empty
    assert kernels.empty
    assert reason is not None
    assert "CUDA graphs" in reason


def test_an_eager_trace_without_ranges_says_how_to_have_them(export: Any, tmp_path: Path) -> None:
    export.range(5, 50, DECODE)
    with open_trace(export.write(tmp_path / "t.sqlite")) as trace:
        assert "enable_layerwise_nvtx_tracing" in (trace.why_no_modules() or "")
