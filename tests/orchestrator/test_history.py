"""`prof history`: results are kept by commit, and a gate fails where they became slower."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.parsers.history.changes import changes
from nsight_prof.parsers.history.store import COLUMNS, add


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Twelve runs of commit a, then twelve of commit b, which made one stage 2 % slower."""
    folder, random = tmp_path / "history", np.random.default_rng(1)
    for number in range(24):
        commit = "a" if number < 12 else "b"
        decode = (1.02 if commit == "b" else 1.0) * random.normal(1, 0.001)
        about = (commit, f"run-{number}", f"2026-01-01T00:{number:02}:00Z", "bench", "NVIDIA H100")
        rows = [(*about, "stage:decode:gpu_time", decode), (*about, "wall_time", 2.0)]
        add(folder, pd.DataFrame(rows, columns=list(COLUMNS)))
    return folder


def test_the_gate_names_the_stage_that_became_slower(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "check", "--store", str(store)]) == 1
    printed = capsys.readouterr().err
    assert "stage:decode:gpu_time (bench): 1.9% slower" in printed
    assert "from commit b on (run run-12)" in printed
    assert "wall_time" not in printed
    for passes in (["--since", "b"], ["--threshold", "5"], ["--series", "wall_time"]):
        assert main(["history", "check", "--store", str(store), *passes]) == 0
    assert main(["history", "check", "--store", str(store), "--since", "a"]) == 1


def test_changes_before_a_commit_of_git_that_no_run_is_of_are_known(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c"):
        git = ("git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
        for words in ([] if name != "a" else [("init", "-q")]) + [
            ("commit", "-q", "--allow-empty", "-m", name),
            ("tag", name),
        ]:
            subprocess.run((*git, *words), check=True)
    hashes = {n: subprocess.check_output(("git", "rev-parse", n), text=True).strip() for n in "abc"}
    for file in store.iterdir():
        frame = pd.read_parquet(file)
        frame["commit"] = frame["commit"].map(hashes)
        frame.to_parquet(file)
    assert main(["history", "check", "--store", str(store), "--since", "c"]) == 0
    assert main(["history", "check", "--store", str(store), "--since", hashes["a"]]) == 1
    assert main(["history", "check", "--store", str(store), "--since", "c~3"]) == 2
    assert "no run of commit c~3, or of one before it, was added" in capsys.readouterr().err


def test_changes_are_shown_and_told_to_programs(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "show", "--store", str(store), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["commit"], found["runs_since"]) == ("b", 12)
    assert found["relative"] == pytest.approx(0.02, abs=0.002)
    assert main(["history", "show", "--store", str(store), "--series", "wall"]) == 0
    assert "wall_time, bench, NVIDIA H100: 24 runs, now 2.00 s" in capsys.readouterr().out


def test_a_run_is_added_once(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, store = tmp_path / "run", tmp_path / "history"
    shutil.copytree(root / "tests/fixtures/ranks/comm-roofs", run)
    for _ in range(2):
        words = ["history", "add", str(run), "--commit", "v1/x", "--store", str(store)]
        assert main(words) == 0
    assert "95 results of commit v1/x" in capsys.readouterr().out
    (file,) = store.iterdir()
    frame = pd.read_parquet(file)
    assert set(frame["gpu"]) == {"NVIDIA H100 80GB HBM3"}
    times = frame.set_index("series")["seconds"]
    assert times["case:all-reduce/x2/256m|hot|zeros:time"] == pytest.approx(886e-6, rel=0.01)
    assert main(["history", "check", "--store", str(store)]) == 0  # too few runs to say anything


def test_what_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "show", "--store", str(tmp_path / "none")]) == 2
    assert "has no results" in capsys.readouterr().err
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/x.parquet").write_bytes(b"no parquet")
    assert main(["history", "show", "--store", str(tmp_path / "bad")]) != 0
    assert "x.parquet cannot be read as results of prof history" in capsys.readouterr().err


RECORDED = "tests/fixtures/history/h200.parquet"
"""144 runs on an H200, each a process: 64 of one commit, 16 with 1 % more work, 64 of it again."""


def recorded(root: Path, folder: Path, runs: int) -> Path:
    """The first `runs` of them as a store."""
    frame = pd.read_parquet(root / RECORDED)
    last = f"run-{runs:03}"
    add(folder, frame[frame["run"] <= last])
    return folder


@pytest.mark.parametrize(
    ("runs", "slower"),
    [(64, ()), (72, ("chain", "copy", "product")), (80, ("chain", "copy", "product")), (144, ())],
)
def test_a_planted_1_per_cent_of_real_runs_fails_the_gate(
    root: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    runs: int,
    slower: tuple[str, ...],
) -> None:
    store = recorded(root, tmp_path / "store", runs)
    assert main(["history", "check", "--store", str(store)]) == bool(slower)
    printed = capsys.readouterr().err
    # The host-bound case differs by 7 % from run to run.
    assert [
        case for case in ("chain", "copy", "eager", "product") if f"case:{case}" in printed
    ] == [*slower]
    if slower:
        assert "case:chain|hot|normal:time (steps): 1.0% slower from commit planted on" in printed
        assert "case:product|hot|normal:time (steps): 1.1% slower from commit planted" in printed


def test_real_runs_of_one_commit_raise_no_alarm(root: Path) -> None:
    frame = pd.read_parquet(root / RECORDED)
    same = frame[frame["commit"] != "planted"].sort_values(["created", "run"])
    for name, rows in same.groupby("series"):
        times = rows["seconds"].tolist()
        assert len(times) == 128
        for count in range(8, len(times) + 1, 12):
            slower = [change for change in changes(times[:count]) if change.relative > 0]
            assert slower == [], (name, count)
