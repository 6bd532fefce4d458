"""The planted defects: their list, and what the compiler makes of the kernels that have them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nsight_prof.targets.defects.pair import SIDES, Pair, plans
from nsight_prof.targets.defects.run import main, parse_arguments
from nsight_prof.targets.harness import Unsupported

FOLDER = Path(__file__).resolve().parents[2] / "targets" / "defects"


def test_every_plan_says_what_is_planted_repaired_and_expected() -> None:
    assert len(plans()) >= 14
    for plan in plans().values():
        assert plan.title
        assert plan.defect.endswith(".")
        assert plan.twin.endswith(".")
        assert plan.measure in ("kernel", "wall")
        assert plan.expects, plan.name
        assert json.loads(json.dumps(plan.record()))["name"] == plan.name


def test_plans_and_programs_have_the_same_names() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py"))
    made = set(re.findall(r'Pair\(\s*"([a-z0-9_]+)"', text))
    assert made == set(plans())


def test_a_pair_gives_the_program_of_each_side() -> None:
    pair = Pair("x", defect=lambda: 1, twin=lambda: 2)
    assert [pair.side(side)() for side in SIDES] == [1, 2]


def test_list_and_only_need_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--only", "gemm"]) == 0
    assert capsys.readouterr().out.split() == ["fp32_gemm", "misaligned_gemm"]


@pytest.mark.parametrize(
    ("only", "reason"), [("nothing-has-this", "no name has that"), ("(", "no regular expression")]
)
def test_a_filter_that_fits_nothing_is_refused(
    only: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse_arguments(["--only", only])
    assert stopped.value.code == 2
    assert reason in capsys.readouterr().err


def test_without_a_gpu_it_says_so() -> None:
    pytest.importorskip("torch")
    command = [sys.executable, str(FOLDER / "run.py")]
    environment = {"CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd="/", env=environment
    )
    assert done.returncode == 1
    assert "torch sees no CUDA device" in done.stderr
    assert "hint:" in done.stderr


def disassemble(file: str, kernel: str, tmp_path: Path, *options: str) -> str:
    """Return the instructions that NVRTC makes of a kernel for an H200."""
    pytest.importorskip("torch")
    from nsight_prof.targets.harness.cuda import compile_cubin

    beside = pytest.importorskip("triton").__file__
    tool = shutil.which("cuobjdump") or str(
        Path(beside).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    )
    if not Path(tool).exists():
        pytest.skip("no cuobjdump")
    cubin = tmp_path / "kernel.cubin"
    source = (FOLDER / f"{file}.cu").read_text(encoding="utf-8")
    try:
        cubin.write_bytes(compile_cubin(source, (*options, "--gpu-architecture=sm_90a")))
    except Unsupported as error:
        pytest.skip(str(error))
    command = [tool, "-sass", "-res-usage", "-fun", kernel, str(cubin)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def count(listing: str, instruction: str) -> int:
    return len(re.findall(rf"\b{instruction}\b", listing))


def test_only_the_defect_computes_with_unfused_instructions(tmp_path: Path) -> None:
    options = ("-DNAME=polynomial", "-DPOLYNOMIAL")
    unfused = disassemble("options", "polynomial", tmp_path, *options, "-fmad=false")
    fused = disassemble("options", "polynomial", tmp_path, *options)
    assert count(unfused, "FFMA") == 0
    assert count(unfused, "FMUL") >= 16  # four chains, four steps at a time
    assert count(fused, "FMUL") == 0
    assert count(fused, "FFMA") >= 16


def test_only_the_defect_spills(tmp_path: Path) -> None:
    options = ("-DNAME=series", "-DSTATE=80")
    spilled = disassemble("options", "series", tmp_path, *options, "-maxrregcount=64")
    whole = disassemble("options", "series", tmp_path, *options)
    assert len(re.findall(r"\bSTL\b", spilled)) > 40
    assert len(re.findall(r"\bLDL", spilled)) > 40
    assert not re.findall(r"\b(STL|LDL)\b", whole)


def test_the_coefficients_stay_in_registers_across_the_loop(tmp_path: Path) -> None:
    listing = disassemble("occupancy", "sum_then_series_held", tmp_path)
    held = [int(n) for n in re.findall(r"REG:(\d+)", listing)]
    # Of the kernels in the file, that one alone; a block of 256 takes more than half of an SM.
    assert sum(registers > 128 for registers in held) == 1
    assert count(listing, "STL") == 0


@pytest.mark.parametrize("kernel", ["sums_few_blocks", "sums_many_blocks", "sums_blocks_of_32"])
def test_a_stream_has_one_load_in_flight(tmp_path: Path, kernel: str) -> None:
    assert len(re.findall(r"\bLDG\.", disassemble("occupancy", kernel, tmp_path))) == 1


def test_the_branches_of_the_kinds_stay_branches(tmp_path: Path) -> None:
    for kernel in ("kinds_mixed", "kinds_sorted"):
        listing = disassemble("compute", kernel, tmp_path)
        assert count(listing, "BSSY") >= 1, "without it the lanes never part"
        assert count(listing, "BRA") > 16


def test_each_thread_of_the_defect_adds_atomically(tmp_path: Path) -> None:
    # No aggregation across the warp by the compiler: that would be the repair.
    listing = disassemble("memory", "sum_atomic_per_thread", tmp_path)
    assert len(re.findall(r"\bREDG?\.", listing)) == 1
    assert not re.search(r"\bSHFL|\bREDUX|\bVOTE", listing)


def test_in_the_second_set_only_the_defect_computes_with_unfused_instructions(
    tmp_path: Path,
) -> None:
    twice = disassemble("second_compute", "horner_rounded_twice", tmp_path)
    once = disassemble("second_compute", "horner_rounded_once", tmp_path)
    assert count(twice, "DFMA") == 0
    assert count(twice, "DMUL") >= 8  # two chains, four steps at a time
    assert count(once, "DMUL") == 0
    assert count(once, "DFMA") >= 8


def test_in_the_second_set_only_the_defect_spills(tmp_path: Path) -> None:
    spilled = disassemble("second_compute", "oscillators_32_registers", tmp_path)
    whole = disassemble("second_compute", "oscillators_all_registers", tmp_path)
    assert len(re.findall(r"\bSTL\b", spilled)) > 20
    assert not re.findall(r"\b(STL|LDL)\b", whole)


def test_the_sums_of_channels_stay_in_registers(tmp_path: Path) -> None:
    listing = disassemble("second_occupancy", "channel_sums_in_lanes", tmp_path)
    held = [int(n) for n in re.findall(r"REG:(\d+)", listing)]
    # 64 sums of 8 bytes are 128 registers; a block of 128 then takes more than a third of an SM.
    assert sum(registers > 128 for registers in held) == 1
    assert count(listing, "STL") == 0


@pytest.mark.parametrize("kernel", ["gather_blocks_of_32", "gather_blocks_of_256"])
def test_a_warp_gathers_one_row_after_another(tmp_path: Path, kernel: str) -> None:
    listing = disassemble("second_occupancy", kernel, tmp_path)
    order = re.findall(r"\b(LDG\.E\.128|STG\.E\.128)", listing)
    assert order
    assert order == ["LDG.E.128", "STG.E.128"] * (len(order) // 2)


def test_in_the_second_set_each_label_of_the_defect_adds_to_memory(tmp_path: Path) -> None:
    listing = disassemble("second_memory", "count_classes_in_memory", tmp_path)
    assert len(re.findall(r"\bREDG?\.", listing)) == 8
    assert not re.search(r"\bSHFL|\bREDUX|\bVOTE|\bMATCH", listing)
