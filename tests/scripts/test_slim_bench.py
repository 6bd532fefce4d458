"""A recorded benchmark becomes small, and its report is rebuilt from it without a GPU."""

import json
from pathlib import Path
from types import ModuleType

import pytest

from nsight_prof.orchestrator.cli import main


@pytest.fixture
def recipe(root: Path, tmp_path: Path) -> Path:
    path = tmp_path / "fake.yaml"
    target = root / "tests/fakes/bench_target.py"
    path.write_text(
        f"target: {{file: {target}, args: {{roofs: true}}}}\n"
        "bench: {processes: 2}\ncounters: {enabled: false}\n"
    )
    return path


@pytest.fixture
def run(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "run"
    assert main(["run", str(recipe), "--out", str(folder)]) == 0
    return folder


def test_a_benchmark_is_replayed_from_its_small_record(
    run: Path, recipe: Path, slim: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "steps/1-bench.failed-1").mkdir()
    (run / "steps/1-bench.failed-1/result-1-1.jsonl").write_text("half")
    monkeypatch.setattr(slim, "PACK_FROM_BYTES", 2000)
    small = tmp_path / "small"
    options = ["--replace", f"{tmp_path}/=", "--forbid", str(tmp_path)]
    assert slim.main([str(run), str(small), *options]) == 0
    names = {path.relative_to(small).as_posix() for path in small.rglob("*") if path.is_file()}
    assert {"manifest.json", "roofs.json", "steps/1-bench/result-1-1.jsonl.xz"} <= names
    assert not any("failed" in name or name.startswith("tables") for name in names)
    # The recipe of the record names the target's folder, which is not that of this machine.
    manifest = json.loads((run / "manifest.json").read_text())
    replayed = json.loads((small / "manifest.json").read_text())
    replayed["recipe"]["target"] = manifest["recipe"]["target"]
    (small / "manifest.json").write_text(json.dumps(replayed))
    again = tmp_path / "again"
    assert main(["run", str(recipe), "--replay", str(small), "--out", str(again)]) == 0
    whole, rebuilt = [(f / "tables/bench.csv").read_text() for f in (run, again)]
    assert whole == rebuilt
    assert (again / "report/report.md").is_file()


def test_the_last_file_of_counters_is_not_dropped(
    run: Path, slim: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counters = run / "steps/2-counters"
    counters.mkdir()
    (counters / "counters.ncu-rep").write_text("a report")
    (counters / "ncu.log").write_text("==PROF==\n")
    arguments = [str(run), str(tmp_path / "small"), "--drop", "counters.ncu-rep"]
    assert slim.main(arguments) == 1
    assert "without it the run has no counters" in capsys.readouterr().err
    (counters / "counters.csv").write_text("ID\n")
    assert slim.main(arguments) == 0
    assert not (tmp_path / "small/steps/2-counters/counters.ncu-rep").exists()
