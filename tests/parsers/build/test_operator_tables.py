"""Tables `operators` and `gemms` of a run, from the artifacts of its steps."""

from __future__ import annotations

import gzip
import importlib.util
import json
import lzma
import runpy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.gaps import Gaps
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.build.operator_tables import with_modules, with_roofs
from nsight_prof.parsers.build.run_tables import build_tables
from nsight_prof.parsers.run.directory import (
    Manifest,
    RunDir,
    StepRecord,
    StepState,
    write_manifest,
)
from nsight_prof.parsers.run.run import Run

KERNEL = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
STAGES = {"prefill": r".*_generation_0\(0\)", "decode": r"execute_context_0\(0\).*"}
PREFILL, DECODE = "execute_context_2(32)_generation_0(0)", "execute_context_0(0)_generation_2(2)"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    steps = [
        StepRecord("trace", "a", StepState.DONE, "steps/1-trace"),
        StepRecord("operators", "b", StepState.DONE, "steps/4-operators"),
    ]
    for step in steps:
        (tmp_path / step.directory).mkdir(parents=True)
    made = RunDir(tmp_path)
    write_manifest(made, Manifest("r", "2026-11-21", {"name": "r", "stages": STAGES}, steps=steps))
    return made


def traced(run: RunDir, root: Path) -> None:
    """The fake trace: the product in the prefill (300 ns) and in one decode step (303 ns)."""
    path = root / "tests" / "fakes" / "fake_trace.py"
    spec = importlib.util.spec_from_file_location("fake_trace", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.make_trace(run.path / "steps/1-trace/trace.sqlite", "", {"FAKE_TRACE": "vllm"})


def recorded(run: RunDir, root: Path) -> None:
    b: Any = runpy.run_path(str(root / "tests/fakes/torch_trace.py"))["TraceBuilder"]()
    for name, rows in ((PREFILL, 32), (DECODE, 2)):
        with b.range(name):
            b.product(rows, 512, 256, KERNEL)
    b.write(run.path / "steps/4-operators/operators.json.gz")


def opened(run: RunDir) -> Run:
    build_tables(run)
    return load_run(run.path)


def test_a_run_joins_operators_to_its_trace(run: RunDir, root: Path) -> None:
    traced(run, root)
    recorded(run, root)
    found = opened(run)
    assert set(found.operators["operator"]) == {"aten::linear", "aten::mm"}
    gemms = found.gemms.set_index("stage")
    assert gemms["join"].to_dict() == {"prefill": "order and name", "decode": "order and name"}
    assert gemms["median_ns"].to_dict() == {"prefill": 300.0, "decode": 303.0}
    assert gemms["m"].to_dict() == {"prefill": 32, "decode": 2}
    assert set(gemms["kernel_id"]) <= set(found.kernels["kernel_id"])
    # the GPU's datasheet is known by its name; a tile of 256x128 is many times a product of 2 rows
    assert gemms["tile_padding"].to_dict() == {"prefill": 4.0, "decode": 64.0}
    assert (gemms["roof_source"] == "datasheet bandwidth").all()


def test_without_a_trace_there_are_shapes_without_kernels(run: RunDir, root: Path) -> None:
    recorded(run, root)
    found = opened(run)
    assert len(found.operators) == 4
    assert (found.gemms["join"] == "").all()
    assert found.gemms["reason"].ne("").all()
    assert found.gemms["roof_fraction"].isna().all()


def test_a_broken_trace_is_a_gap(run: RunDir, root: Path) -> None:
    traced(run, root)
    (run.path / "steps/4-operators/operators.json.gz").write_bytes(b"nothing")
    found = opened(run)
    assert found.operators.empty
    assert len(found.kernels) == 3
    reasons = found.gaps[found.gaps["table"] == "operators"]["reason"].tolist()
    assert len(reasons) == 1
    assert "operators.json.gz gave nothing" in reasons[0]


def test_a_step_that_failed_says_why(run: RunDir) -> None:
    step = StepRecord("operators", "b", StepState.FAILED, "steps/4-operators", error="no torch")
    write_manifest(run, Manifest("r", "2026-11-21", {"name": "r"}, steps=[step]))
    gaps = opened(run).gaps
    assert "no torch" in gaps[gaps["table"] == "operators"]["reason"].tolist()


def test_recorded_values_become_tables_also_packed(run: RunDir, root: Path) -> None:
    step = StepRecord("values", "b", StepState.DONE, "steps/5-values")
    write_manifest(run, Manifest("r", "2026-11-21", {"name": "r"}, steps=[step]))
    recording = (root / "tests/fixtures/values/needless.jsonl.gz").read_bytes()
    folder = run.path / step.directory
    folder.mkdir()
    (folder / "values.jsonl.gz").write_bytes(recording)
    plain = opened(run)
    assert plain.value_profiles["operators"].tolist() == [plain.operator_values["calls"].sum()]
    (folder / "values.jsonl.gz").unlink()
    (folder / "values.jsonl.xz").write_bytes(lzma.compress(gzip.decompress(recording)))
    assert opened(run).operator_values.equals(plain.operator_values)
    (folder / "values.jsonl.xz").unlink()
    (folder / "values.jsonl.gz").write_bytes(recording[:-9])
    gaps = opened(run).gaps
    (reason,) = gaps[gaps["table"] == "operator_values"]["reason"]
    assert "values.jsonl.gz gave nothing" in reason


def test_a_run_without_the_step_has_no_gap(run: RunDir) -> None:
    write_manifest(run, Manifest("r", "2026-11-21", {"name": "r"}))
    gaps = opened(run).gaps
    assert not gaps["table"].isin(["operators", "gemms", "operator_values"]).any()


def gemms(*rows: dict[str, Any]) -> pd.DataFrame:
    base = {
        "stage": "prefill",
        "kernel_id": "k1",
        "module": "",
        "join": "order",
        "batch": 1,
        "dtype": "bf16",
        "bytes": 1e6,
        "flops": 1e9,
        "median_ns": 1e4,
    }
    names = [column.name for column in tables.tables()["gemms"]]
    frame = pd.DataFrame([base | row for row in rows], columns=names)
    frame["flop_per_s"] = frame["flops"] / frame["median_ns"] * 1e9
    return tables.check(frame, "gemms")


def roofs() -> dict[str, pd.DataFrame]:
    rows = [
        {"level_or_pipe": "tensor", "dtype": "bf16", "kind": "steady", "value": 700e12},
        {"level_or_pipe": "tensor", "dtype": "bf16", "kind": "burst", "value": 850e12},
        {"level_or_pipe": "dram", "dtype": "", "kind": "read", "value": 4e12},
    ]
    names = [column.name for column in tables.tables()["measured_roofs"]]
    frame = pd.DataFrame(rows, columns=names)
    frame["unit"] = ["FLOP/s", "FLOP/s", "B/s"]
    return {"measured_roofs": tables.check(frame, "measured_roofs")}


def test_a_product_is_held_to_the_longer_of_moving_and_computing() -> None:
    compute = {"flops": 7e12, "bytes": 4e9, "median_ns": 12.5e6}  # 10 ms to 1 ms at the roofs
    memory = {"flops": 7e9, "bytes": 4e9, "median_ns": 1.25e6}  # 0.01 ms to 1 ms
    found = with_roofs(gemms(compute, memory), roofs(), Gaps())
    assert found["roof_used"].tolist() == ["tensor bf16", "dram"]
    assert found["roof_fraction"].tolist() == pytest.approx([0.8, 0.8])
    assert found["roof_source"].tolist() == ["measured steady roof", "measured DRAM read roof"]


def test_products_of_a_stage_are_held_to_one_roof() -> None:
    fast = {"flops": 8e12, "median_ns": 10e6}
    slow = {"flops": 6e12, "median_ns": 10e6}
    found = with_roofs(gemms(fast, slow, slow | {"stage": "other"}), roofs(), Gaps())
    sources = ["measured burst roof", "measured burst roof", "measured steady roof"]
    assert found["roof_source"].tolist() == sources
    assert found["roof_fraction"].tolist() == pytest.approx([800 / 850, 600 / 850, 600 / 700])


def test_what_has_no_fraction_is_told() -> None:
    gaps = Gaps()
    cached = {"flops": 1e6, "bytes": 4e9, "median_ns": 0.5e6}
    unknown = {"dtype": "fp64", "bytes": None}
    bare = {"kernel_id": "", "median_ns": None, "join": ""}
    found = with_roofs(gemms(cached, unknown, bare), roofs(), gaps)
    assert found["roof_fraction"].isna().all()
    reasons = " ".join(gaps.frame()["reason"])
    assert "came from a cache" in reasons
    assert "fp64" in reasons


FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CONFIG: dict[str, Any] = json.loads((FIXTURES / "small_llama.json").read_text())


def engines(**changed: Any) -> dict[str, pd.DataFrame]:
    row = {"source": "operators", "model_config": json.dumps(CONFIG), "dtype": "bfloat16"}
    names = [column.name for column in tables.tables()["engines"]]
    return {"engines": pd.DataFrame([row | {"tensor_parallel": 1} | changed], columns=names)}


def test_modules_come_from_the_shapes_of_the_model() -> None:
    rows = [{"n": n, "k": k, "m": 8} for n, k in ((192, 64), (64, 64), (64, 96), (100, 64), (7, 7))]
    named = {"n": 64, "k": 64, "module": "layers.*.own"}
    found = with_modules(gemms(*rows, named), engines())["module"].tolist()
    # gate and up have the shape of q, k and v here: which it is, shapes cannot tell
    assert found == [
        "layers.*.self_attn.qkv_proj or layers.*.mlp.gate_up_proj",
        "layers.*.self_attn.o_proj",
        "layers.*.mlp.down_proj",
        "lm_head",
        "",
        "layers.*.own",
    ]


def test_modules_of_a_shard() -> None:
    found = with_modules(gemms({"n": 64, "k": 48, "m": 8}), engines(tensor_parallel=2))
    assert found["module"].tolist() == ["layers.*.mlp.down_proj"]


@pytest.mark.parametrize("config", ["", "{}", "no json", '{"model_type": "other"}'])
def test_a_model_that_is_not_known_gives_no_modules(config: str) -> None:
    found = with_modules(gemms({"n": 64, "k": 64, "m": 8}), engines(model_config=config))
    assert found["module"].tolist() == [""]
