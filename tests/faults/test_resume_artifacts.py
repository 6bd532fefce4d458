"""Captures that are deleted, cut or scrambled after their step: who uses them again says so."""

import errno
import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator import cli
from nsight_prof.orchestrator.report.run_tables import ensure_tables
from nsight_prof.orchestrator.system import run_lock
from nsight_prof.parsers import whole_folder
from nsight_prof.parsers.build.run_tables import build_tables
from nsight_prof.parsers.errors import ArtifactUnreadable, StepFailed, UsageError
from nsight_prof.parsers.run.artifacts import describe, differences
from nsight_prof.parsers.run.directory import Artifact, RunDir, read_manifest, write_manifest
from tests.forked import Forked


def cut(path: Path) -> None:
    with path.open("rb+") as stream:
        stream.truncate(path.stat().st_size // 2)


def scramble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "gone": (Path.unlink, "{} is gone"),
    "cut": (cut, "{} has "),
    "scrambled": (scramble, "{} has other content"),
}
TRACE, SELECTION = "steps/1-trace/trace.sqlite", "steps/2-select/selection.yaml"
COUNTERS = "steps/3-counters/counters.csv"


@pytest.mark.parametrize(
    ("file", "again", "damage"),
    [
        *((TRACE, ["trace", "select", "counters"], damage) for damage in DAMAGES),
        (SELECTION, ["select", "counters"], "cut"),
        (COUNTERS, ["counters"], "scrambled"),
    ],
)
def test_a_resumed_run_does_a_step_again_whose_files_are_not_what_it_left(
    lab: Any, watcher: Any, file: str, again: list[str], damage: str
) -> None:
    lab.run()
    harm, words = DAMAGES[damage]
    harm(lab.out / file)
    watching = watcher()
    assert lab.run(resume=lab.out, progress=watching).exit_code == 0
    done = [step for step, state in watching.states if state == "done"]
    assert done == [*again, "report"]
    reason = lab.manifest.step(again[0]).rerun_reason
    assert reason.startswith(f"{Path(file).parent} is not what it left: ")
    assert words.format(Path(file).name) in reason
    assert any(reason in warning for warning in watching.warnings)
    kept = lab.out / f"{Path(file).parent}.replaced-1"
    assert kept.is_dir()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_replay_of_damaged_captures_is_refused(lab: Any, damage: str) -> None:
    lab.run()
    harm, words = DAMAGES[damage]
    harm(lab.out / TRACE)
    with pytest.raises(ArtifactUnreadable) as caught:
        lab.run(replay=lab.out, out=lab.folder / "again")
    assert words.format("trace.sqlite") in caught.value.message


def test_a_run_of_an_older_prof_has_no_record_of_its_files(lab: Any, watcher: Any) -> None:
    lab.run()
    run = RunDir(lab.out)
    manifest = read_manifest(run)
    for record in manifest.steps:
        record.files = {}
    write_manifest(run, manifest)
    watching = watcher()
    lab.run(resume=lab.out, progress=watching)
    assert [state for _, state in watching.states] == ["skipped", "skipped", "skipped", "done"]


def test_logs_reports_and_packed_files_may_change(lab: Any, watcher: Any) -> None:
    lab.run()
    step = lab.out / "steps/1-trace"
    for name in ("stdout.log", "trace.nsys-rep", "command.json"):
        (step / name).unlink(missing_ok=True)
    (step / "trace.sqlite").rename(step / "trace.sqlite.xz")
    assert list(differences(step, lab.manifest.step("trace").files)) == []


def test_what_is_described_is_what_is_compared(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/result.jsonl").write_text("{}\n")
    (tmp_path / "link").symlink_to("/etc/hostname")
    files = describe(tmp_path)
    assert list(files) == ["deep/result.jsonl"]
    assert list(differences(tmp_path, files)) == []
    outside = {"../secret": Artifact(3, "")}
    (tmp_path.parent / "secret").write_text("abc")
    assert list(differences(tmp_path, outside)) == ["../secret is not in the folder of the step"]
    (tmp_path / "deep/result.jsonl").write_text("[]\n")
    assert list(differences(tmp_path, files)) == ["deep/result.jsonl has other content"]


@pytest.fixture
def recorded(root: Path, tmp_path: Path) -> Path:
    """A recorded run whose steps know their files, with tables and a report."""
    run = tmp_path / "run"
    shutil.copytree(root / "captures/h200-known-gemm", run)
    manifest = read_manifest(RunDir(run))
    for record in manifest.steps:
        if record.directory:
            record.files = describe(run / record.directory)
    write_manifest(RunDir(run), manifest)
    for name in ("tables", "report"):
        (run / name).mkdir()
        (run / name / "old").write_text("as it was")
    return run


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_report_of_damaged_captures_is_refused_and_the_old_one_stays(
    recorded: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    """It was made of the counters alone, without a word."""
    harm, words = DAMAGES[damage]
    harm(recorded / "steps/1-trace/trace.sqlite.xz")
    assert cli.main(["report", str(recorded)]) == 4
    error = capsys.readouterr().err
    assert words.format("trace.sqlite.xz") in error
    assert "defect of prof" not in error
    assert "the trace step left" in error
    for name in ("tables", "report"):
        assert (recorded / name / "old").read_text() == "as it was"


def hold(folder: Path) -> Any:
    """Hold a run as another prof does."""
    lock = (folder / ".lock").open("w")
    lock.write("4711\n")
    lock.flush()
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


@pytest.mark.parametrize("held", ["run", "sweep"])
def test_a_report_beside_a_run_says_who_writes_there(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], held: str
) -> None:
    run, place = recorded, recorded
    if held == "sweep":
        place = tmp_path / "sweep"
        run = place / "variants/batch=8"
        run.parent.mkdir(parents=True)
        shutil.copyfile(recorded / "manifest.json", place / "manifest.json")
        recorded.rename(run)
    with hold(place):
        assert cli.main(["report", str(run)]) == 2
        assert (run / "tables/old").is_file()
        shutil.rmtree(run / "tables")
        with pytest.raises(UsageError, match="4711"):
            ensure_tables(run)
    assert "another prof (process 4711) is writing" in capsys.readouterr().err


def test_two_reports_at_once_leave_one_whole_report(recorded: Path, root: Path) -> None:
    argv = ["-m", "nsight_prof", "report", str(recorded), "--format", "md"]
    two = [Forked(argv, cwd=root) for _ in range(2)]
    ended = [(one.communicate()[1], one.returncode) for one in two]
    assert 0 in [code for _, code in ended]
    for error, code in ended:
        assert code == 0 or (code == 2 and "another prof (process " in error), error
    assert (recorded / "report/report.md").is_file()
    assert (recorded / "tables/kernels.parquet").is_file()
    left = {path.name for path in recorded.iterdir()}
    assert left <= {"manifest.json", "roofs.json", "steps", "tables", "report"}


def test_a_rank_waits_for_another_that_makes_the_tables_it_needs(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = hold(recorded)
    waits = []

    def let_go(seconds: float) -> None:
        waits.append(seconds)
        lock.close()

    monkeypatch.setattr("nsight_prof.orchestrator.system.run_lock.time.sleep", let_go)
    with run_lock.locked_in_turn(recorded):
        assert waits
        with pytest.raises(UsageError, match="another prof"), run_lock.locked(recorded):
            pass
    monkeypatch.setattr(run_lock, "TURN_S", -1)
    with (
        hold(recorded),
        pytest.raises(UsageError, match="4711"),
        run_lock.locked_in_turn(recorded),
    ):
        pass


def test_without_locks_of_the_file_system_a_rank_goes_on(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_available(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none_available)
    with run_lock.locked_in_turn(recorded):
        assert (recorded / "tables").is_dir()


def test_a_run_that_cannot_be_written_says_so(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(recorded / ".lock"))

    monkeypatch.setattr("nsight_prof.orchestrator.system.run_lock.locked", refuse)
    assert cli.main(["report", str(recorded)]) == 1
    assert "cannot be written: Permission denied" in capsys.readouterr().err


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_takes_the_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(whole_folder, "_exchange", lambda *_: False)
    for content in ("one", "two"):
        new = tmp_path / "tables.partial"
        new.mkdir()
        (new / content).touch()
        whole_folder.put_in_place(new, tmp_path / "tables")
        assert [path.name for path in (tmp_path / "tables").iterdir()] == [content]
        assert [path.name for path in tmp_path.iterdir()] == ["tables"]


def test_tables_are_there_at_each_moment_of_their_renewal(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between the removal of the old ones and the rename of the new left none."""
    seen = []
    real = shutil.rmtree

    def watch(*args: Any, **options: Any) -> None:
        seen.append((recorded / "tables").is_dir())
        real(*args, **options)
        seen.append((recorded / "tables").is_dir())

    monkeypatch.setattr(shutil, "rmtree", watch)
    build_tables(RunDir(recorded))
    assert len(seen) >= 2
    assert all(seen)


def test_too_little_address_space_is_told_before_a_library_aborts(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nsight_prof.orchestrator.report import reporting

    monkeypatch.setattr("resource.getrlimit", lambda _: (1 << 29, 1 << 29))
    with pytest.raises(StepFailed, match="the limit here is 0.5 GiB") as caught:
        reporting.make_report(RunDir(recorded))
    assert "ulimit -v" in caught.value.hint
