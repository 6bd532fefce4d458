import json
import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.declared import Shape, read_shapes
from nsight_prof.reports.analysis.padding import padded_flops, paddings
from nsight_prof.reports.findings.padding import padding_findings
from tests.reports.programs import english


def stdout(run: Run) -> Path:
    return run.path / "steps/1-trace/stdout.log"


def shapes(run: Run) -> list[Shape]:
    return read_shapes(run.directory.artifact("trace", "stdout.log"))


def test_the_padding_of_a_known_gemm_on_an_h200() -> None:
    # 8192^3 bf16, nvjet tile 320x128x64: sm__ops_path_tensor_src_bf16_dst_fp32 = 1.11669e12.
    shape = Shape("square", "", 8192, 8192, 8192)
    ratios = [flops / shape.flops for flops in padded_flops(shape, "320x128x64")]
    assert ratios[0] == pytest.approx(1.0156, abs=5e-5)
    assert pytest.approx(padded_flops(shape, "320x128x64")[0], rel=1e-5) == 1.11669e12


def test_the_tile_may_lie_the_other_way_round() -> None:
    shape = Shape("head", "decode", 8, 128200, 4096)
    assert pytest.approx(2.0 * 8 * 128256 * 4096) in padded_flops(shape, "256x8x64")


def test_a_name_without_tile_has_no_padding() -> None:
    assert padded_flops(Shape("x", "", 8, 8, 8), "") == []


def test_shapes_come_from_the_json_line_of_the_target(run: Run) -> None:
    assert [shape.name for shape in shapes(run)] == [
        "gate_up",
        "down",
        "qkv",
        "lm_head",
    ]


def test_shapes_are_found_in_a_compressed_log(run: Run) -> None:
    path = stdout(run)
    path.with_name("stdout.log.xz").write_bytes(lzma.compress(path.read_bytes()))
    path.unlink()
    assert len(shapes(run)) == 4


@pytest.mark.parametrize(
    "line", ['{"gemms": [{"name": "x"}]}', '{"gemms": 3}', 'say "gemms"', '{"gemms": [']
)
def test_a_line_that_is_no_list_of_shapes_is_passed_over(run: Run, line: str) -> None:
    stdout(run).write_text(line)
    assert shapes(run) == []


def test_each_shape_finds_the_kernel_with_its_flops(run: Run) -> None:
    found = {p.shape.name: p for p in paddings(run)}
    assert found["gate_up"].ratio == pytest.approx(1.0)
    # 4000 rows in tiles of 128: 4096 are computed.
    assert found["qkv"].ratio == pytest.approx(4096 / 4000)
    assert found["lm_head"].row is not None
    assert found["lm_head"].row["short_name"] == "cuBLAS GEMM 64x8 splitK"


def test_a_shape_that_no_counted_launch_has_says_so(run: Run) -> None:
    gemm = {"name": "other", "stage": "prefill", "m": 100, "n": 100, "k": 100, "calls": 1}
    stdout(run).write_text(json.dumps({"gemms": [gemm]}))
    (found,) = paddings(run)
    assert found.ratio is None
    assert "has another one" in found.reason


def test_a_shape_of_one_stage_does_not_take_a_kernel_of_another(run: Run) -> None:
    gemm = {"name": "x", "stage": "decode", "m": 4096, "n": 28672, "k": 4096, "calls": 1}
    stdout(run).write_text(json.dumps({"gemms": [gemm]}))
    assert paddings(run)[0].row is None


def test_shapes_of_stages_that_were_not_captured_are_left_out(run: Run) -> None:
    gemm = {"name": "x", "stage": "warm-up", "m": 64, "n": 64, "k": 64, "calls": 1}
    stdout(run).write_text(json.dumps({"gemms": [gemm]}))
    assert paddings(run) == []


def test_without_counters_nothing_is_told(trace_only_run: Run) -> None:
    assert {p.reason for p in paddings(trace_only_run)} == {"no GEMM kernel has counters"}


def test_padding_is_a_finding_only_where_it_costs_a_per_cent(run: Run) -> None:
    # qkv pads by 2.4 %, but takes 3.4 % of the time.
    assert padding_findings(run) == []
    sizes = {"name": "gate_up", "stage": "prefill", "m": 3841, "n": 28672, "k": 4033, "calls": 4}
    stdout(run).write_text(json.dumps({"gemms": [sizes]}))
    (finding,) = padding_findings(replace(run))  # what is known of a run is kept with it
    assert finding.gain_kernel == pytest.approx(1 - 3841 * 4033 / 4096**2)
    assert finding.gain_program == pytest.approx(finding.share * finding.gain_kernel)
    assert "1.08 times the FLOPs" in english(finding.verdict)
