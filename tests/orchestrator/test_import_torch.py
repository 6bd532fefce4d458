"""Traces of the torch profiler as runs: against their own events, and beside a trace of nsys."""

import gzip
import json
import lzma
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.imports.importing import import_files
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.engine.operators.section import icicle

STAGES = ["^execute_context.*"]


@pytest.fixture(scope="module")
def steps(root: Path) -> Path:
    return root / "captures" / "h200-vllm-kernels" / "steps"


@pytest.fixture(scope="module")
def recorded(steps: Path) -> Path:
    """A trace of vLLM under the torch profiler on an H200."""
    return steps / "4-operators" / "operators.json.xz"


@pytest.fixture(scope="module")
def events(recorded: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(lzma.decompress(recorded.read_bytes()))["traceEvents"]
    return [event for event in found if event.get("ph") == "X"]


@pytest.fixture(scope="module")
def run(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("torch") / "run"
    return load_run(import_files([recorded], out, STAGES).path)


def test_kernels_and_copies_are_those_of_the_events(run: Run, events: list[dict[str, Any]]) -> None:
    kernels = [event for event in events if event["cat"] == "kernel"]
    times: dict[str, int] = defaultdict(int)
    for event in kernels:
        times[event["name"]] += round(event["dur"] * 1000)
    assert run.kernels.groupby("name")["total_ns"].sum().to_dict() == times
    assert len(run.launches) == len(kernels)
    assert set(run.launches["grid"]) == {"x".join(map(str, e["args"]["grid"])) for e in kernels}
    copies = Counter(event["name"].split()[1] for event in events if event["cat"] == "gpu_memcpy")
    calls = run.memory_operations.set_index("kind")["calls"].to_dict()
    names = {"HtoD": "host to device", "DtoH": "device to host", "DtoD": "device to device"}
    assert {kind: calls[names[kind]] for kind in copies} == copies
    assert run.gpus.iloc[0]["name"] == "NVIDIA H200"
    assert run.gpus.iloc[0]["sm_count"] == 132
    assert run.manifest.created.startswith("2026-11-22")
    assert "nsys" not in run.manifest.tools


def test_its_operators_and_stages_are_there(run: Run) -> None:
    stages = run.stages.set_index("stage")
    assert any(name.startswith("execute_context") for name in stages.index)
    work = run.operators["gpu_ns"].sum()
    assert work == run.kernels["total_ns"].sum()
    assert not run.idle_gaps.empty


def test_beside_nsys_it_gives_the_operators_alone(
    steps: Path, recorded: Path, tmp_path: Path, run: Run
) -> None:
    given = [steps / "1-trace" / "trace.sqlite.xz", recorded]
    both = load_run(import_files(given, tmp_path / "both", STAGES).path)
    assert both.manifest.tools["nsys"].startswith("2025.3")
    assert len(both.launches) != len(run.launches)
    joined = both.gemms[both.gemms["join"] == "order and name"]
    assert set(joined["kernel_id"]) <= set(both.kernels["kernel_id"])
    assert set(joined["operator"]) == {"aten::mm", "aten::addmm"}


def test_traces_that_cannot_belong_together_are_refused(
    steps: Path, recorded: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "other.json.xz"
    copy.write_bytes(recorded.read_bytes())
    nsys = steps / "1-trace" / "trace.sqlite.xz"
    with pytest.raises(UsageError, match="which belong together is not known"):
        import_files([nsys, recorded, copy], tmp_path / "run")


def test_a_trace_without_a_gpu_has_operators_alone(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(record_shapes=True) as profile:
        torch.nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward()
    path = tmp_path / "trace.json.gz"
    profile.export_chrome_trace(str(path))
    run = load_run(import_files([path], tmp_path / "run").path)
    assert "aten::addmm" in set(run.operators["operator"])
    assert run.kernels.empty
    assert any("saw no kernel" in sentence for sentence in run.manifest.assumptions)


@pytest.mark.parametrize(
    "event",
    [
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "pid": 0, "args": [1]},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": "x", "dur": 1, "pid": 0},
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "pid": 0, "tid": 7,
         "args": {"grid": [1, 2], "block": [1, 1, 1]}},
        {"ph": "X", "cat": "gpu_memset", "name": "m", "ts": 1, "dur": 1, "pid": 0, "tid": 7,
         "args": {"bytes": {"a": 1}}},
    ],
)  # fmt: skip
def test_damaged_events_are_refused(tmp_path: Path, event: dict[str, Any]) -> None:
    path = tmp_path / "trace.json.gz"
    host = {"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}
    text = json.dumps({"schemaVersion": 1, "traceEvents": [host, event]})
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(ArtifactUnreadable):
        import_files([path], tmp_path / "run")


def test_memory_and_functions_stand_beside_operators(root: Path, tmp_path: Path) -> None:
    """Two blocks, three times: a product of 2048 x 4096 in bf16 takes 16 MiB each time."""
    trace = root / "tests" / "fixtures" / "torch_trace" / "small-network-h200.json.xz"
    stages = ["^prefill$", "^decode$", "^train$"]
    run = load_run(import_files([trace], tmp_path / "run", stages).path)
    up = run.operators.query("stage == 'prefill' and operator == 'aten::addmm' and n == 4096")
    assert up["calls"].tolist() == [6]
    assert up["allocated_bytes"].tolist() == [6 * 2 * 2048 * 4096]
    assert up["call_path"].item().endswith("habits_prog.py:14 forward")
    assert "torch/" not in "".join(run.operators["call_path"])
    read = json.loads(lzma.decompress(trace.read_bytes()))["traceEvents"]
    changes = [e["args"] for e in read if e["name"] == "[memory]" and e["args"]["Device Type"] == 1]
    memory = run.stage_memory
    assert memory["allocated_bytes"].sum() == sum(max(e["Bytes"], 0) for e in changes)
    assert memory["freed_bytes"].sum() == -sum(min(e["Bytes"], 0) for e in changes)
    assert memory["peak_bytes"].max() == max(e["Total Allocated"] for e in changes)
    assert set(memory["stage"]) == {*(name.strip("^$") for name in stages), ""}
    assert main(["report", str(run.path), "--png", "no"]) == 0
    page = (run.path / "report" / "details.md").read_text()
    assert "Functions that call the operators" in page
    whole = (run.path / "report" / "operators.md").read_text()
    assert "habits\\_prog.py:14 forward" in whole
    assert whole.count("\n| train |") + whole.count("\n| prefill |") > 15
    assert (run.path / "report" / "operators-icicle.svg").is_file()


def test_boxes_of_the_icicle_divide_the_time_of_their_row(root: Path, tmp_path: Path) -> None:
    trace = root / "tests" / "fixtures" / "torch_trace" / "small-network-h200.json.xz"
    run = load_run(import_files([trace], tmp_path / "run", ["^prefill$", "^decode$"]).path)
    drawn = icicle(run)
    assert drawn is not None
    whole = run.operators["gpu_ns"].sum()
    stages = [box.value for box in drawn.slices if box.depth == 0]
    assert sum(stages) == pytest.approx(whole, rel=0.01)
    for box in drawn.slices:
        inside = [
            one for one in drawn.slices
            if one.depth == box.depth + 1 and one.path.startswith(f"{box.path} > ")
        ]  # fmt: skip
        assert sum(one.value for one in inside) <= box.value * (1 + 1e-9)
        for one in inside:
            assert box.begin <= one.begin
            assert one.begin + one.value <= (box.begin + box.value) * (1 + 1e-9)
    of_prefill = run.operators.query("stage == 'prefill'")["gpu_ns"].sum()
    assert next(box.value for box in drawn.slices if box.text == "prefill") == of_prefill
