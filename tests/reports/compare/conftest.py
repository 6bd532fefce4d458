"""Runs for comparisons: recorded launches as they are, or changed on purpose."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.names.kernel_names import classify, kernel_id
from nsight_prof.parsers.run.directory import Manifest, RunDir, write_manifest
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.compare.sides import Side


@dataclass(frozen=True)
class Launch:
    """One kernel launch: stage, demangled name, launch shape and duration in ns."""

    stage: str
    name: str
    grid: str
    duration: float
    block: str = "128x1x1"

    @property
    def category(self) -> str:
        return classify(self.name).category

    def lasting(self, duration: float) -> "Launch":
        return replace(self, duration=duration)


MANIFEST: dict[str, Any] = {
    "gpus": [{"device": 0, "name": "NVIDIA H200", "uuid": "GPU-1", "mig": False}],
    "software": {"driver": "580.1", "torch": "2.11"},
    "tools": {"nsys": "2025.3"},
}


def write_run(
    folder: Path, launches: Iterable[Launch], recipe: dict[str, Any] | None = None, **manifest: Any
) -> Path:
    """Write a run directory whose tables hold `launches`, one after the other."""
    frame = pd.DataFrame([vars(launch) for launch in launches])
    frame["kernel_id"] = [
        kernel_id(n, g, b)
        for n, g, b in zip(frame["name"], frame["grid"], frame["block"], strict=True)
    ]
    given = {"target": {"file": "block.py", "args": {}}, "name": "block"} | (recipe or {})
    facts = MANIFEST | manifest
    folder.mkdir(parents=True)
    run = RunDir(folder)
    write_manifest(run, Manifest(folder.name, "2026-11-21T08:00:00Z", given, **facts))
    for table, rows in (
        ("launches", _launches(frame)),
        ("kernels", _kernels(frame)),
        ("stages", _stages(frame)),
    ):
        columns = [c.name for c in tables.tables()[table]]
        tables.write(rows.reindex(columns=columns), table, run.tables, csv=False)
    return folder


def _launches(frame: pd.DataFrame) -> pd.DataFrame:
    made = frame[["kernel_id", "grid", "block", "stage"]].copy()
    made["duration_ns"] = frame["duration"].round().astype(int)
    made["start_ns"] = (made["duration_ns"] + 1000).cumsum()
    made["index"] = made.groupby("kernel_id").cumcount()
    return made.assign(device=0, pid=1, stream=7)


def _kernels(frame: pd.DataFrame) -> pd.DataFrame:
    grouped = frame.groupby("kernel_id", sort=False)
    made = grouped.first().reset_index()
    known = [classify(name) for name in made["name"]]
    made["short_name"] = [k.short_name for k in known]
    made["library"] = [k.library for k in known]
    made["category"] = [k.category for k in known]
    durations = grouped["duration"]
    made["calls"] = durations.size().to_numpy()
    made["total_ns"] = durations.sum().round().astype(int).to_numpy()
    made["std_ns"] = durations.std().to_numpy()
    return made.sort_values("total_ns", ascending=False)


def _stages(frame: pd.DataFrame) -> pd.DataFrame:
    rows = [("(all)", frame), *frame[frame["stage"] != ""].groupby("stage", sort=False)]
    return pd.DataFrame(
        [
            {"stage": name, "instances": 1, "wall_ns": part["duration"].sum() * 1.2,
             "kernel_ns": round(part["duration"].sum()), "idle_ns": part["duration"].sum() * 0.2,
             "launches": len(part)}
            for name, part in rows
        ]
    )  # fmt: skip


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Side]:
    """Builder of a side: `make_run("A", launches, repeats=[launches, …], recipe={…})`."""
    made: list[Path] = []

    def one(launches: Iterable[Launch], **options: Any) -> Run:
        made.append(tmp_path / f"run{len(made)}")
        return load_run(write_run(made[-1], launches, **options))

    def make(
        label: str, launches: Iterable[Launch], repeats: Iterable[Any] = (), **options: Any
    ) -> Side:
        return Side(label, one(launches, **options), tuple(one(r, **options) for r in repeats))

    return make


@pytest.fixture(scope="session")
def recorded_run(recorded_folder: Callable[[str], Path]) -> Path:
    """The recorded eager decoder block, with its tables."""
    return recorded_folder("h200-top-kernels")


@pytest.fixture(scope="session")
def recorded(recorded_run: Path) -> list[Launch]:
    """Its 1,340 launches in order."""
    run = load_run(recorded_run)
    joined = run.launches.sort_values("start_ns").merge(
        run.kernels[["kernel_id", "name"]], on="kernel_id"
    )
    columns = ("stage", "name", "grid", "duration_ns", "block")
    return [Launch(str(s), str(n), str(g), float(d), str(b))
            for s, n, g, d, b in joined[list(columns)].itertuples(index=False)]  # fmt: skip
