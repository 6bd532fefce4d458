"""Tables that predictions read of recorded runs are made once, and again where anything changed."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.orchestrator.predict import table_cache
from nsight_prof.orchestrator.predict.run_folder import opened
from nsight_prof.parsers.run.directory import RunDir

FRAMES = {"gpus": pd.DataFrame({"name": ["H200"], "memory_bytes": pd.array([1], "Int64")})}


class Made:
    """Makes tables, and counts how often."""

    def __init__(self, frames: dict[str, pd.DataFrame] | None) -> None:
        self.frames, self.times = frames, 0

    def __call__(self) -> dict[str, pd.DataFrame] | None:
        self.times += 1
        return self.frames


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = RunDir(tmp_path / "run")
    found.path.mkdir()
    found.manifest_path.write_text("{}")
    return found


def files(folder: Path) -> list[Path]:
    return sorted((folder / "cache/prof/predict").glob("*"))


def test_tables_are_made_once_and_stay_as_they_are(run: RunDir) -> None:
    make = Made(FRAMES)
    for _ in range(3):
        found = table_cache.cached(run, make)
        assert found is not None
        pd.testing.assert_frame_equal(found["gpus"], FRAMES["gpus"])
    assert make.times == 1


def test_a_run_with_other_captures_and_other_code_have_their_own(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Made(FRAMES)
    table_cache.cached(run, make)
    run.manifest_path.write_text('{"steps": []}')
    table_cache.cached(run, make)
    monkeypatch.setattr(pd, "__version__", "0")
    table_cache.cached(run, make)
    assert make.times == 3


@pytest.mark.parametrize("left", [b"", b"\x80", b"no pickle", None], ids=repr)
def test_a_damaged_cache_is_made_again(run: RunDir, tmp_path: Path, left: bytes | None) -> None:
    make = Made(FRAMES)
    table_cache.cached(run, make)
    (file,) = files(tmp_path)
    file.write_bytes(file.read_bytes()[:-100] if left is None else left)
    table_cache.cached(run, make)
    table_cache.cached(run, make)
    assert make.times == 2


def test_what_cannot_be_made_is_not_kept(run: RunDir, tmp_path: Path) -> None:
    assert table_cache.cached(run, Made(None)) is None
    assert files(tmp_path) == []


def test_a_cache_that_cannot_be_written_is_none(run: RunDir, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert table_cache.cached(run, Made(FRAMES)) is FRAMES


def test_no_more_runs_are_kept_than_said(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_cache, "RUNS", 3)
    for number in range(5):
        run.manifest_path.write_text(f"[{number}]")
        table_cache.cached(run, Made(FRAMES))
    assert len(files(tmp_path)) == 3


def test_a_recorded_run_opens_with_the_same_tables_from_the_cache(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "run"
    shutil.copytree(
        root / "captures/h200-vllm-kernels", path, ignore=shutil.ignore_patterns("tables")
    )
    first, second = opened(path), opened(path)
    assert first.frames
    assert first.frames is not second.frames
    for name, frame in first.frames.items():
        pd.testing.assert_frame_equal(frame, second.frames[name])
