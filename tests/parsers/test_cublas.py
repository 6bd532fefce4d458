"""Table `cublas_calls`: a real log beside the torch profiler's trace of the same program."""

import lzma
from pathlib import Path

import pytest

from nsight_prof.orchestrator.imports.importing import import_files
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.build.refresh import refresh_tables
from nsight_prof.parsers.join.cublas import read_cublas_calls
from nsight_prof.parsers.run.directory import RunDir
from nsight_prof.parsers.run.run import Run


@pytest.fixture(scope="module")
def run(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    fixtures = root / "tests" / "fixtures"
    trace = fixtures / "torch_trace" / "small-network-h200.json.xz"
    folder = import_files([trace], tmp_path_factory.mktemp("cublas") / "run").path
    log = fixtures / "cublas" / "small-network-h200.log.xz"
    (folder / "steps" / "1-trace" / "cublaslt.log.xz").write_bytes(log.read_bytes())
    refresh_tables(RunDir(folder))
    return load_run(folder)


def test_each_call_has_its_sizes_and_algorithm(run: Run) -> None:
    """Four runs of two blocks: forward twice over 2048 rows, three times over 8, and backward."""
    calls = run.cublas_calls
    assert calls["calls"].sum() == 4 * 2 * (2 * 2 + 3 * 2 + 4) - 4  # no gradient of the input
    up = calls.query("m == 4096 and n == 8 and k == 1024").iloc[0]
    assert up["calls"] == 4 * 2 * 3
    assert (up["transa"], up["transb"], up["epilogue"]) == ("OP_T", "OP_N", "EPILOGUE_BIAS")
    assert (up["tile"], up["cluster"], up["split_k"]) == ("64x8", "4x1x1", 1)
    down = calls.query("m == 1024 and n == 8 and k == 4096").iloc[0]
    assert (down["split_k"], down["a_type"], down["compute_type"]) == (3, "R_16BF", "COMPUTE_32F")


def test_joined_kernels_compute_products_of_that_size(run: Run) -> None:
    """Independent of names: the torch profiler says which sizes each kernel computed."""
    joined = run.cublas_calls[run.cublas_calls["join"] == "name"]
    assert len(joined) >= 5
    gemms = run.gemms[run.gemms["kernel_id"] != ""]
    for call in joined.to_dict("records"):
        of_kernel = gemms[gemms["kernel_id"] == call["kernel_id"]]
        sizes = {tuple(sorted(row)) for row in of_kernel[["m", "n", "k"]].to_numpy().tolist()}
        assert not sizes or tuple(sorted((call["m"], call["n"], call["k"]))) in sizes, call


def test_lines_that_are_cut_off_are_left_out(root: Path, run: Run, tmp_path: Path) -> None:
    log = root / "tests" / "fixtures" / "cublas" / "small-network-h200.log.xz"
    text = lzma.decompress(log.read_bytes()).decode()
    path = tmp_path / "cublaslt.log"
    path.write_text(text.splitlines()[0] + "\n" + text.splitlines()[1][:180])
    assert read_cublas_calls(path, run.kernels)["calls"].tolist() == [1]
    path.write_text("nothing\n")
    assert read_cublas_calls(path, run.kernels).empty
