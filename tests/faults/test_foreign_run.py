"""A run directory that somebody sent runs nothing, and nothing outside of it is read or written."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.parsers.errors import ArtifactUnreadable, ProfError, UsageError
from nsight_prof.parsers.run.directory import RunDir, StepRecord, read_manifest
from nsight_prof.reports.render.templating import render

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "captures" / "h200-known-gemm"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A run that somebody sent: a copy of a recorded one."""
    return Path(shutil.copytree(RECORDED, tmp_path / "sent"))


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A run of the reader's, whose files must stay as they are and where they are."""
    return Path(shutil.copytree(RECORDED, tmp_path / "victim"))


def change(run: Path, edit: Callable[[Any], None]) -> None:
    manifest = json.loads((run / "manifest.json").read_text("utf-8"))
    edit(manifest)
    (run / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_templates_of_the_manifest_are_not_rendered(
    foreign: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "report.md.j2").write_text("PWNED", encoding="utf-8")
    change(foreign, lambda manifest: manifest["recipe"].update(templates=str(own)))
    assert main(["report", str(foreign), "--format", "md"]) == 0
    assert "PWNED" not in (foreign / "report/report.md").read_text("utf-8")
    assert f"--templates {own}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() | length }}",
        "{{ self.__init__.__globals__ }}",
        "{% set _ = view.name.__class__ %}{{ _.__base__ }}",
        "{{ view.__init__.__globals__['os'].system('touch pwned') }}",
    ],
)
def test_a_template_reaches_no_code(tmp_path: Path, source: str) -> None:
    (tmp_path / "report.md.j2").write_text(source, encoding="utf-8")
    with pytest.raises(ProfError, match="unsafe"):
        render("report.md.j2", {"view": StepRecord("trace")}, tmp_path)
    assert not Path("pwned").exists()


@pytest.mark.parametrize(
    "edit",
    [
        lambda manifest: manifest.update(variants=["../../victim"]),
        lambda manifest: manifest.update(variants=[".."]),
        lambda manifest: manifest.update(variants=["."]),
        lambda manifest: manifest.update(variants=["/tmp"]),
        lambda manifest: manifest["steps"][0].update(directory="../victim/steps"),
        lambda manifest: manifest["steps"][0].update(directory="/etc"),
        lambda manifest: manifest["steps"][0].update(directory="."),
        lambda manifest: manifest["steps"][0].update(directory="steps/../.."),
        lambda manifest: manifest["steps"][0].update(directory="a\0b"),
    ],
)
def test_paths_of_the_manifest_that_lead_out_of_the_run_are_refused(
    foreign: Path, victim: Path, edit: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(victim)
    change(foreign, edit)
    assert main(["report", str(foreign)]) == 4
    assert "does not lie inside of the run" in capsys.readouterr().err
    assert files(victim) == before


@pytest.mark.parametrize("place", ["steps", "steps/1-trace", "steps/1-trace/trace.sqlite.xz"])
def test_links_that_lead_out_of_the_run_are_refused(
    foreign: Path, victim: Path, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(victim)
    taken = foreign / place
    shutil.rmtree(taken) if taken.is_dir() else taken.unlink()
    taken.symlink_to(victim / place)
    recipe = ["run", str(ROOT / "recipes/known-gemm.yaml"), "--replay", str(foreign)]
    assert main([*recipe, "--out", str(tmp_path / "again")]) == 4
    assert "does not lie inside of the run" in capsys.readouterr().err
    assert files(victim) == before
    assert not list((tmp_path / "again").rglob("trace.sqlite*"))


def test_a_whole_run_behind_a_link_is_read(victim: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(victim)
    assert read_manifest(RunDir(link)).run_id == read_manifest(RunDir(victim)).run_id


def test_a_circle_of_links_ends(foreign: Path) -> None:
    shutil.rmtree(foreign / "steps")
    (foreign / "steps").symlink_to("steps")
    with pytest.raises(ArtifactUnreadable, match="does not lie inside"):
        read_manifest(RunDir(foreign))


def test_force_removes_nothing_that_no_run_of_prof_made(lab: Any) -> None:
    lab.out.mkdir()
    (lab.out / "report").mkdir()
    (lab.out / "report" / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match="holds report, and no run of prof made that"):
        lab.run(force=True)
    assert (lab.out / "report" / "thesis.tex").read_text() == "mine"


def test_force_does_not_take_the_manifest_of_something_else_for_a_run(lab: Any) -> None:
    lab.out.mkdir()
    (lab.out / "manifest.json").write_text('{"name": "a web page"}')
    (lab.out / "steps").mkdir()
    (lab.out / "steps" / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="no run of prof made that"):
        lab.run(force=True)
    assert (lab.out / "steps" / "mine.txt").read_text() == "mine"


def test_force_removes_the_steps_of_the_run_alone(lab: Any) -> None:
    lab.run()
    (lab.out / "steps" / "notes").mkdir()
    (lab.out / "steps" / "1-trace.failed-2").mkdir()
    (lab.out / "mine.txt").write_text("mine")
    lab.run(lab.recipe(counters__enabled=False), force=True)
    assert (lab.out / "mine.txt").read_text() == "mine"
    assert sorted(path.name for path in (lab.out / "steps").iterdir()) == [*("1-trace", "notes")]


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_planted_lock_is_not_written_through(lab: Any, kind: str) -> None:
    victim = lab.folder / "victim"
    victim.write_text("mine")
    lab.out.mkdir()
    lock = lab.out / ".lock"
    {"link": lambda: lock.symlink_to(victim), "pipe": lambda: os.mkfifo(lock),
     "folder": lock.mkdir}[kind]()  # fmt: skip
    with pytest.raises(UsageError, match="not prof's lock"):
        lab.run()
    assert victim.read_text() == "mine"
