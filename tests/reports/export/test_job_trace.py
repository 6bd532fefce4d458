"""One timeline of several ranks: by one clock, each on tracks of its own."""

import json
import re
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from nsight_prof.orchestrator.cli import main
from nsight_prof.parsers import tables
from nsight_prof.parsers.run.directory import RunDir


@pytest.fixture(scope="module")
def job(root: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """The recorded job of two ranks, each on a GPU of its own."""
    folder = tmp_path_factory.mktemp("job") / "job"
    shutil.copytree(root / "tests/fixtures/ranks/job", folder)
    return RunDir(folder)


def export(job: RunDir, ranks: str, path: Path) -> list[dict[str, Any]]:
    assert main(["export", str(job.path), "--ranks", ranks, "-o", str(path), "--quiet"]) == 0
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return found


@pytest.fixture(scope="module")
def events(job: RunDir, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return export(job, "0,1", tmp_path_factory.mktemp("timeline") / "t.json")


def processes(events: list[dict[str, Any]]) -> dict[int, str]:
    names = [e for e in events if e["ph"] == "M" and e["name"] == "process_name"]
    return {e["pid"]: e["args"]["name"] for e in names}


def test_each_rank_has_processes_and_gpus_of_its_own(events: list[dict[str, Any]]) -> None:
    assert sorted(processes(events).values()) == [
        "rank 0, GPU 0: NVIDIA H100 80GB HBM3",
        "rank 0, process",
        "rank 1, GPU 1: NVIDIA H100 80GB HBM3",
        "rank 1, process",
    ]


def test_ids_are_of_one_arrow_and_one_range_alone(events: list[dict[str, Any]]) -> None:
    for phase in "sfbe":
        ids = [e["id"] for e in events if e["ph"] == phase]
        assert len(ids) == len(set(ids))


def test_it_fits_the_format(events: list[dict[str, Any]], root: Path) -> None:
    schema = json.loads((root / "tests/fixtures/trace_event.schema.json").read_text())
    # One of those that differ in nothing but positive numbers, whose one bound is held here.
    assert max(max(event["pid"], event["tid"]) for event in events) < 2**32
    positive = re.compile(r"\b[1-9][\d.]*(?:e[+-]\d+)?\b|\b0\.\d*[1-9]\d*\b")
    kinds = {positive.sub("1", json.dumps(event)): event for event in events}
    assert len(kinds) > 100
    Draft7Validator(schema).validate({"traceEvents": list(kinds.values())})


def test_the_last_all_reduces_of_1_kb_end_together(
    job: RunDir, events: list[dict[str, Any]]
) -> None:
    names = processes(events)
    ends = defaultdict(list)
    for event in events:
        is_kernel = event["ph"] == "X" and event.get("cat") == "kernel"
        if is_kernel and "AllReduce_Sum_bf16" in event["args"]["kernel"]:
            ends[names[event["pid"]]].append((event["ts"] + event["dur"], event["args"]["grid"]))
    # NCCL gives messages of 1 kB one block: eight of them, four on each communicator.
    small = [[end for end, grid in sorted(of_gpu) if grid == "1x1x1"] for of_gpu in ends.values()]
    apart = [abs(a - b) for a, b in zip(*small, strict=True)]
    times = tables.read(job.tables, "rank_times")
    # The captures began 97.8 ms apart.
    assert abs(times["clock_offset_ns"][1]) > 90e6
    assert sorted(apart)[len(apart) // 2] < 2


def test_ranks_that_nothing_aligns_are_left_out_and_named(
    job: RunDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(job.path), "--ranks", "1,7", "-o", str(tmp_path / "t.json")]) == 2
    assert "has no rank 7" in capsys.readouterr().err
    assert main(["export", str(job.path), "--ranks", "one", "-o", str(tmp_path / "t.json")]) == 2
    assert "--ranks one names no ranks" in capsys.readouterr().err
    alone = tmp_path / "job"
    shutil.copytree(job.path, alone)
    shutil.rmtree(alone / "ranks/0001")
    manifest = json.loads((alone / "manifest.json").read_text())
    manifest["ranks"] = manifest["ranks"][:1]
    (alone / "manifest.json").write_text(json.dumps(manifest))
    assert main(["export", str(alone), "--ranks", "0", "-o", str(tmp_path / "t.json")]) == 2
    assert "no collective aligns the clocks" in capsys.readouterr().err
