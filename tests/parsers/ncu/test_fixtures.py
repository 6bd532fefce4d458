"""Our own reports of ncu 2025.3.1: known work is counted right, names join, NVTX is read."""

from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.join.join import join
from nsight_prof.parsers.ncu import NcuCapture, read_ncu
from nsight_prof.parsers.run.selection import Selection

pytest.importorskip("ncu_report", reason="NVIDIA's ncu_report is not installed")


@pytest.fixture
def fixtures(root: Path) -> Path:
    return root / "tests" / "fixtures" / "ncu_csv"


def numbers(capture: NcuCapture) -> pd.Series:
    return capture.metrics.set_index(["profile", "metric"])["value"].dropna()


def test_the_csv_in_base_units_is_exact_for_time_and_operations(fixtures: Path) -> None:
    rep = numbers(read_ncu(fixtures / "llm_block.ncu-rep.xz"))
    csv = numbers(read_ncu(fixtures / "llm_block.base.csv.xz"))
    for metric in ("gpu__time_duration.sum", "sm__ops_path_tensor_src_bf16_dst_fp32.sum"):
        assert csv.xs(metric, level="metric").equals(rep.xs(metric, level="metric"))


def test_the_fused_multiply_adds_of_a_known_kernel_are_counted(fixtures: Path) -> None:
    capture = read_ncu(fixtures / "flops.ncu-rep.xz")
    names = capture.launches.set_index("profile")["name"]
    profile = int(names.index[names.str.startswith("void fma_scalar<float>")][0])
    count = numbers(capture)[profile, "sm__sass_thread_inst_executed_op_ffma_pred_on.sum"]
    assert count == 1056 * 256 * 10_000


def test_the_nvtx_path_of_a_result_is_outermost_first(fixtures: Path) -> None:
    capture = read_ncu(fixtures / "nvtx.base.csv.xz")
    paths = capture.launches["nvtx"]
    assert paths.str.startswith("decode/").all()
    assert "decode/step/layer/attention" in set(paths)


def test_demangled_names_of_ncu_join_to_the_kernels_that_mangled_ones_join_to(
    fixtures: Path,
) -> None:
    rep = read_ncu(fixtures / "llm_block.ncu-rep.xz")
    kernels = rep.launches.assign(kernel_id="k" + rep.launches["profile"].astype("string"))
    for column in tables.tables()["kernels"]:
        if column.name not in kernels:
            kernels[column.name] = None
    names = [column.name for column in tables.tables()["kernels"]]
    keys = ["mangled_name", "grid", "block"]
    kernels = tables.check(kernels[names].drop_duplicates(keys), "kernels")
    truth = join(rep, kernels, Selection()).joins
    assert (truth["method"] == "mangled").all()
    for page in ("base", "demangled"):
        joins = join(read_ncu(fixtures / f"llm_block.{page}.csv.xz"), kernels, Selection()).joins
        known = joins["kernel_id"].notna()
        assert joins["kernel_id"][known].equals(truth["kernel_id"][known])
        assert known.mean() > 0.6
