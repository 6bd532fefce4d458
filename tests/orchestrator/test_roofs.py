"""Measured roofs from the run that measures them to the reports that use them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.report import reporting
from nsight_prof.orchestrator.roofs import cache as roofs_cache
from nsight_prof.orchestrator.run import doctor, runner
from nsight_prof.orchestrator.run.bench_records import measures_roofs
from nsight_prof.orchestrator.run.roofs_of_run import attach_given
from nsight_prof.orchestrator.system.environment import Gpus
from nsight_prof.parsers.build.run_tables import build_tables
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.roofs.file import Fit, RoofsFile, gpu_facts, read_roofs, write_roofs
from nsight_prof.parsers.run.directory import RunDir
from nsight_prof.parsers.tables import check, tables

FAKE = Path(__file__).resolve().parent.parent / "fakes/bench_target.py"
# The GPU of the fake target, as NVML tells it.
H200 = {
    "device": 0,
    "name": "NVIDIA H200",
    "uuid": "GPU-0",
    "compute_capability": "9.0",
    "sm_clock_max_hz": 1.98e9,
    "memory_clock_max_hz": 3.201e9,
    "power_limit_w": 700.0,
}


@pytest.fixture(autouse=True)
def machine_of_the_fake(lab: Any) -> None:
    """The machine's GPU is the one that the fake target measures; reports are left out."""
    see(lab)
    lab.monkeypatch.setattr(runner, "make_report", roofs_only)


def roofs_only(run: RunDir) -> tuple[tuple[str, ...], Path]:
    """Write the roofs that a run measured as `build_tables` does, in a moment."""
    if measures_roofs(run):
        write_roofs(run.path / "roofs.json", replace(canned(), run_id=run.path.name))
    return (), run.report / "report.md"


def tables_only(run: RunDir) -> tuple[tuple[str, ...], Path]:
    build_tables(run)
    return (), run.report / "report.md"


def canned() -> RoofsFile:
    """The roofs of the fake target."""
    rows = [
        ("dram", "", "read", 5e12, "B/s", True),
        ("dram", "", "write", 2.5e12, "B/s", False),
        ("tensor", "bf16", "burst", 1.6e15, "FLOP/s", True),
    ]
    names = ["level_or_pipe", "dtype", "kind", "value", "unit", "is_ceiling"]
    frame = pd.DataFrame(rows, columns=names)
    frame["case_id"] = "dram/read/one-shot|cold|normal"
    frame["reason"] = "no counters"
    frame["repeats"] = frame["processes"] = frame["samples"] = frame["candidates"] = 1
    for column in tables()["measured_roofs"]:
        if column.name not in frame:
            frame[column.name] = None
    facts = gpu_facts({**H200, "sm_count": 132}, "580.95")
    return RoofsFile("2026-01-01T00:00:00Z", "", facts, check(frame, "measured_roofs"))


def see(lab: Any, driver: str = "580.95", **changes: Any) -> None:
    """Let NVML tell of a GPU with other facts."""
    gpus = Gpus([{**H200, **changes}], driver, "13.0")
    lab.monkeypatch.setattr("nsight_prof.orchestrator.run.machine.read_gpus", lambda: gpus)
    lab.monkeypatch.setattr("nsight_prof.orchestrator.system.environment.read_gpus", lambda: gpus)


def roofline(lab: Any, **changes: Any) -> Any:
    changes = {"target__args": {"roofs": True}, "bench": {"processes": 2}, **changes}
    return lab.recipe(target__file=str(FAKE), counters__enabled=False, **changes)


def other(lab: Any) -> Any:
    """A benchmark that measures no roofs."""
    return roofline(lab, target__args={})


@pytest.fixture
def measured(lab: Any) -> Path:
    """A run that measured roofs."""
    folder: Path = lab.folder / "measured"
    lab.run(roofline(lab), out=folder)
    return folder


def test_roofs_are_kept_for_the_gpu_that_they_were_measured_on(lab: Any, measured: Path) -> None:
    (one,), unreadable = roofs_cache.cached()
    assert unreadable == []
    assert one.path == roofs_cache.file_of(gpu_facts(H200, "580.95"))
    assert one.path.is_relative_to(lab.folder / "cache/prof/roofs")
    assert one.roofs.run_id == "measured"
    assert set(one.roofs.roofs["level_or_pipe"]) == {"dram", "tensor"}


def test_a_later_run_on_that_gpu_uses_them(lab: Any) -> None:
    lab.monkeypatch.setattr(runner, "make_report", tables_only)
    lab.run(roofline(lab), out=lab.folder / "measured")
    lab.run(other(lab))
    assert read_roofs(lab.out / "roofs.json").run_id == "measured"
    (told,) = [words for words in lab.manifest.assumptions if words.startswith("measured roofs")]
    assert told.startswith("measured roofs are those of run measured, 2026-01-01T00:00:00Z")
    roofs = pd.read_parquet(lab.out / "tables/roofs.parquet")
    assert set(roofs[roofs["source"] == "measured"]["level_or_pipe"]) == {"dram", "tensor"}


def test_without_roofs_they_are_left_out_also_of_a_resumed_run(lab: Any, measured: Path) -> None:
    lab.run(other(lab))
    lab.run(other(lab), resume=lab.out, roofs=False)
    assert not (lab.out / "roofs.json").exists()
    assert not [words for words in lab.manifest.assumptions if "measured roofs" in words]


def test_another_gpu_of_the_kind_uses_them_with_a_caveat(lab: Any, measured: Path) -> None:
    see(lab, uuid="GPU-1")
    lab.run(other(lab))
    assert (lab.out / "roofs.json").is_file()
    assert "measured on another NVIDIA H200 (GPU-0)" in " ".join(lab.manifest.assumptions)


@pytest.mark.parametrize(
    ("driver", "changes", "why"),
    [
        ("590.1", {}, "measured with driver 580.95, not 590.1"),
        ("580.95", {"sm_clock_max_hz": 1.755e9}, "maximum SM clock"),
        ("580.95", {"power_limit_w": 500.0}, "power limit"),
    ],
)
def test_other_conditions_do_not_use_them_and_say_so(
    lab: Any, measured: Path, driver: str, changes: Any, why: str
) -> None:
    see(lab, driver, **changes)
    lab.run(other(lab))
    assert not (lab.out / "roofs.json").exists()
    (told,) = [words for words in lab.manifest.assumptions if words.startswith("measured roofs")]
    assert why in told
    assert told.endswith("measure again: prof run roofline")


def test_another_kind_of_gpu_has_nothing_to_do_with_them(lab: Any, measured: Path) -> None:
    see(lab, name="NVIDIA A100")
    lab.run(other(lab))
    assert not (lab.out / "roofs.json").exists()
    assert not [words for words in lab.manifest.assumptions if "measured roofs" in words]


def test_the_very_gpu_stands_before_a_newer_one_of_its_kind(lab: Any, measured: Path) -> None:
    file = read_roofs(measured / "roofs.json")
    newer = replace(file, measured="2027-01-01T00:00:00Z", gpu={**file.gpu, "uuid": "GPU-9"})
    assert roofs_cache.keep(newer)[0] is not None
    found, _ = roofs_cache.find(gpu_facts(H200, "580.95"))
    assert found is not None
    assert (found.match.fit, found.roofs.gpu["uuid"]) == (Fit.EXACT, "GPU-0")
    found, _ = roofs_cache.find(gpu_facts({**H200, "uuid": "GPU-3"}, "580.95"))
    assert found is not None
    assert found.roofs.gpu["uuid"] == "GPU-9"


def test_a_part_of_the_roofs_does_not_replace_all(lab: Any, measured: Path) -> None:
    file = read_roofs(measured / "roofs.json")
    path, why = roofs_cache.keep(replace(file, run_id="part", roofs=file.roofs.iloc[:1]))
    assert path is None
    assert "did not measure (dram write, tensor bf16 burst…)" in why
    assert roofs_cache.cached()[0][0].roofs.run_id == "measured"
    path, why = roofs_cache.keep(replace(file, run_id="whole"))
    assert (path, why) == (roofs_cache.file_of(file.gpu), "")
    assert roofs_cache.cached()[0][0].roofs.run_id == "whole"


def test_a_damaged_file_hides_no_other(lab: Any, measured: Path) -> None:
    (roofs_cache.folder() / "broken.json").write_text("{")
    found, unreadable = roofs_cache.cached()
    assert len(found) == 1
    assert "broken.json is not a file of measured roofs" in unreadable[0]


def test_a_replay_has_the_roofs_of_the_record_and_keeps_none(lab: Any, measured: Path) -> None:
    lab.run(other(lab), out=lab.folder / "recorded")
    shutil.rmtree(roofs_cache.folder())
    lab.run(other(lab), replay=lab.folder / "recorded")
    assert read_roofs(lab.out / "roofs.json").run_id == "measured"
    lab.run(roofline(lab), replay=measured, out=lab.folder / "again")
    assert (lab.folder / "again/roofs.json").is_file()
    assert roofs_cache.cached() == ([], [])


def test_roofs_outlive_a_report_that_fails(lab: Any) -> None:
    def fails(run: RunDir) -> Any:
        roofs_only(run)
        raise RuntimeError("no font")

    lab.monkeypatch.setattr(runner, "make_report", fails)
    with pytest.raises(RuntimeError):
        lab.run(roofline(lab))
    assert len(roofs_cache.cached()[0]) == 1


def test_other_roofs_are_given_to_a_finished_run(
    lab: Any, measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.run(other(lab), roofs=False)
    lab.monkeypatch.setattr(reporting, "make_report", roofs_only)
    assert main(["report", str(lab.out), "--roofs", str(measured)]) == 0
    assert "report: " in capsys.readouterr().out
    assert read_roofs(lab.out / "roofs.json").given
    assert "run measured" in lab.manifest.assumptions[-1]
    attach_given(RunDir(lab.out), measured / "roofs.json")
    assert sum("measured roofs" in words for words in lab.manifest.assumptions) == 1


def test_roofs_given_under_another_driver_are_used_with_a_caveat(lab: Any, measured: Path) -> None:
    see(lab, "590.1")
    lab.run(other(lab))
    lab.monkeypatch.setattr(reporting, "make_report", tables_only)
    assert main(["report", str(lab.out), "--roofs", str(measured)]) == 0
    assert lab.manifest.assumptions[-1].endswith("measured with driver 580.95, not 590.1")
    assert "measured" in (lab.out / "tables/roofs.csv").read_text()


@pytest.mark.parametrize("case", ["own", "other GPU", "no file"])
def test_roofs_that_make_no_sense_are_refused(lab: Any, measured: Path, case: str) -> None:
    run, given, why = RunDir(measured), measured, "measured its own roofs"
    if case == "own":
        (measured / "steps/1-bench/command.json").unlink()  # a recorded run may lack it
    if case != "own":
        lab.run(other(lab))
        run = RunDir(lab.out)
    if case == "other GPU":
        file = read_roofs(measured / "roofs.json")
        given = lab.folder / "a100.json"
        write_roofs(given, replace(file, gpu={**file.gpu, "name": "NVIDIA A100"}))
        why = "are those of NVIDIA A100, and the run is of NVIDIA H200"
    if case == "no file":
        given, why = lab.folder, "has no measured roofs"
    with pytest.raises(UsageError, match=why):
        attach_given(run, given)


def test_the_cache_is_listed(lab: Any, measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["roofs", "list"]) == 0
    text = capsys.readouterr().out
    assert "NVIDIA H200" in text
    assert "2026-01-01T00:00:00Z" in text
    assert main(["roofs", "list", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["run"], one["roofs"], one["gpu"]["uuid"]) == ("measured", 3, "GPU-0")


def test_an_empty_cache_says_how_to_fill_it(lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofs", "list"]) == 0
    assert "measure them: prof run roofline" in capsys.readouterr().out
    assert main(["roofs"]) == 2
    assert "hint: measure them: prof run roofline" in capsys.readouterr().err


def test_the_roofs_of_this_gpu_are_shown(
    lab: Any, measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["roofs"]) == 0
    text = capsys.readouterr().out
    lines = [line for line in text.splitlines() if "dram/read/one-shot" in line]
    assert "5.00 TB/s" in lines[0]
    assert lines[0].startswith(" *")
    assert "ridge points" in text
    assert "320" in text  # 1.6e15 FLOP/s over 5e12 B/s


def test_roofs_are_shown_as_json(lab: Any, measured: Path, capsys: Any) -> None:
    capsys.readouterr()
    assert main(["roofs", "show", str(measured), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["gpu"]["sm_count"] == 132
    assert shown["roofs"][0]["unit"] == "B/s"
    assert shown["roofs"][0]["clock_hz"] is None
    assert shown["ridge_points"][0]["level"] == "dram"


def test_without_a_gpu_the_only_roofs_are_shown_and_it_is_said(
    lab: Any, measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.monkeypatch.setattr("nsight_prof.orchestrator.system.environment.read_gpus", lambda: Gpus())
    capsys.readouterr()
    assert main(["roofs", "show"]) == 0
    assert "they are of NVIDIA H200, the only ones there are" in capsys.readouterr().err
    file = read_roofs(measured / "roofs.json")
    roofs_cache.keep(replace(file, gpu={**file.gpu, "uuid": "GPU-5"}))
    assert main(["roofs", "show"]) == 2
    assert "prof roofs list names them" in capsys.readouterr().err


def test_roofs_of_other_conditions_are_shown_with_the_difference(
    lab: Any, measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    see(lab, "590.1")
    capsys.readouterr()
    assert main(["roofs", "show"]) == 0
    assert "not 590.1" in capsys.readouterr().err


def test_a_file_without_a_gpu_is_not_kept(measured: Path) -> None:
    file = read_roofs(measured / "roofs.json")
    nameless = RoofsFile(file.measured, file.run_id, {}, file.roofs)
    assert roofs_cache.keep(nameless) == (None, "")


def test_the_doctor_knows_the_roofs_of_this_gpu(lab: Any, measured: Path) -> None:
    def check(driver: str) -> doctor.Check:
        (found,) = doctor._roofs(Gpus([H200], driver, "13.0"))
        return found

    assert (check("580.95").state, check("580.95").detail) == (
        "ok",
        "3 measured 2026-01-01T00:00:00Z",
    )
    assert (check("590.1").state, check("590.1").detail) == (
        "warning",
        "those of 2026-01-01T00:00:00Z do not hold now: measured with driver 580.95, not 590.1",
    )
    assert doctor._roofs(Gpus()) == []
