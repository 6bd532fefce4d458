"""`prof import --aiconfigurator`, and predictions from what it made."""

from pathlib import Path

import pytest

from nsight_prof import load_run
from nsight_prof.orchestrator.cli import main
from tests.parsers.aiconfigurator_tables import DEVICE, write_tables


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("aic")
    words = ["import", "--aiconfigurator", str(write_tables(folder)), "--out", str(folder / "run")]
    assert main(words) == 0
    return folder / "run"


def test_a_run_of_operators_has_its_table_and_a_page(imported: Path) -> None:
    assert main(["report", str(imported)]) == 0
    run = load_run(imported)
    assert run.is_imported_operators
    assert [gpu["name"] for gpu in run.manifest.gpus] == [DEVICE]
    assert len(run.imported_operators) > 100
    page = (imported / "report" / "report.md").read_text()
    assert "operators of NVIDIA H200" in page
    assert "`gemm/vllm/0.10.0/gemm_perf.parquet`" in page


@pytest.mark.parametrize("gpus", [1, 2])
def test_it_predicts_alone_and_on_several_gpus(imported: Path, tmp_path: Path, gpus: int) -> None:
    words = ["predict", "llama-3.1-8b", "--on", str(imported), "--tp", str(gpus), "--batch", "1,8"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    run = load_run(tmp_path / "out")
    assert set(run.predicted_points["tier"]) == {"T1"}
    assert run.predicted_points["tpot_p50_s_high"].notna().all()
    assert set(run.predicted_operators["operator"]) >= {"qkv_proj", "attention_decode"}
    assert any("from imported tables" in note for note in run.manifest.assumptions)


def test_two_imported_runs_are_refused(
    imported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    tables = imported.parent
    assert main(["import", "--aiconfigurator", str(tables), "--backend-version", "0.2.0",
                 "--out", str(other)]) == 0  # fmt: skip
    assert main(["predict", "llama-3.1-8b", "--on", str(imported), "--on", str(other)]) == 2
    assert "several runs hold imported tables" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--aiconfigurator", ".", "trace.sqlite"], "no files of Nsight"),
        (["--system", "h200_sxm", "trace.sqlite"], "choose tables of aiconfigurator"),
        ([], "no file was given"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["import", *words, "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
