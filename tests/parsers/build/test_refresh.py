"""Tables are made again where captures or tables changed, and are left alone else."""

import os
import shutil
from pathlib import Path

import pytest

from nsight_prof.parsers.build import refresh, run_tables
from nsight_prof.parsers.build.refresh import refresh_tables
from nsight_prof.parsers.run.directory import RunDir


def build(run: RunDir, *, refuse: bool = False) -> None:
    run.tables.mkdir(exist_ok=True)
    (run.tables / "gaps.csv").write_text("")
    (run.path / "built").touch()


@pytest.fixture
def run(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    folder = tmp_path / "run"
    shutil.copytree(root / "captures" / "h200-known-gemm", folder)

    monkeypatch.setattr(run_tables, "build_tables", build)
    refresh_tables(RunDir(folder))
    (folder / "built").unlink()
    return RunDir(folder)


def made_again(run: RunDir) -> bool:
    refresh_tables(run)
    return (run.path / "built").is_file()


def test_tables_of_these_captures_are_left_alone(run: RunDir) -> None:
    assert not made_again(run)


@pytest.mark.parametrize("name", ["manifest.json", "roofs.json", "steps/1-trace/more.csv"])
def test_tables_follow_what_they_are_made_from(run: RunDir, name: str) -> None:
    (run.path / name).parent.mkdir(exist_ok=True)
    with (run.path / name).open("a") as stream:
        stream.write(" ")
    assert made_again(run)


def test_a_file_of_the_same_size_is_told_apart_by_its_time(run: RunDir) -> None:
    os.utime(run.manifest_path, ns=(0, 0))
    assert made_again(run)


@pytest.mark.parametrize("name", ["gaps.csv", refresh.MADE_FROM])
def test_a_table_that_is_gone_is_made_again(run: RunDir, name: str) -> None:
    (run.tables / name).unlink()
    assert made_again(run)


def test_another_version_of_prof_makes_them_again(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "_program", lambda: "of tomorrow")
    assert made_again(run)


def test_a_manifest_that_changes_while_tables_are_made_is_not_that_of_the_tables(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def beside_another(run: RunDir, *, refuse: bool = False) -> None:
        build(run)
        with run.manifest_path.open("a") as stream:  # as another rank's process does
            stream.write(" ")

    (run.tables / refresh.MADE_FROM).unlink()
    monkeypatch.setattr(run_tables, "build_tables", beside_another)
    refresh_tables(run)
    (run.path / "built").unlink()
    monkeypatch.setattr(run_tables, "build_tables", build)
    assert made_again(run)
    (run.path / "built").unlink()
    assert not made_again(run)
