"""Cases of a run directory that somebody sent: tables, manifests, selections, files of roofs."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow.parquet as parquet
import yaml

from nsight_prof.orchestrator.cli import main as prof
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.roofs.file import read_roofs
from nsight_prof.parsers.run.directory import RunDir, read_manifest
from scripts.fuzzing.case import Case, Inputs, as_command, same
from scripts.fuzzing.mutations import NUMBERS, WORDS, mutate_bytes, mutate_plain


def _linked(source: Path, target: Path) -> None:
    """Copy a run by links: what a case changes it writes anew."""
    shutil.copytree(source, target, copy_function=os.link)


def _write(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def parquet_case(inputs: Inputs, folder: Path, rng: random.Random) -> Case:
    """A table of a run directory that somebody sent."""
    run = folder / "run"
    _linked(inputs.run, run)
    path = (
        run
        / "tables"
        / f"{rng.choice(['launches', 'kernels', 'stages', 'counters', 'metrics'])}.parquet"
    )
    if rng.random() < 0.5:
        _write(path, mutate_bytes(path.read_bytes(), rng))
    else:
        frame = pd.read_parquet(path)
        column = rng.choice(list(frame.columns))
        match rng.randrange(5):
            case 0:
                frame = frame.drop(columns=column)
            case 1:
                frame = frame.rename(columns={column: "x"})
            case 2:
                frame[column] = [rng.choice((*NUMBERS[:8], 0.5)) for _ in range(len(frame))]
            case 3:
                frame[column] = [rng.choice(WORDS).replace("\ud83d", "") for _ in range(len(frame))]
            case _:
                frame[column] = None
        path.unlink()
        frame.to_parquet(path)
    argv = ["export", str(run), "--format", "csv", "--table", path.stem, "-o", str(folder / "out")]
    if path.stem == "launches" and rng.random() < 0.5:
        argv = ["export", str(run), "--format", "perfetto", "-o", str(folder / "timeline.json")]
    elif rng.random() < 0.5:
        wanted = lambda: getattr(load_run(run), path.stem)  # noqa: E731
        return Case(["load", str(path)], lambda: None, lambda _: as_command(wanted))
    return Case(argv, lambda: _check_parquet(path, Path(argv[-1])))


def _check_parquet(path: Path, out: Path) -> None:
    if out.suffix == ".json":
        json.loads(out.read_text("utf-8"))
        return
    written = out / f"{path.stem}.csv"
    same("rows", len(pd.read_csv(written)), parquet.read_metadata(path).num_rows)


def manifest_case(inputs: Inputs, folder: Path, rng: random.Random) -> Case:
    """A manifest, a selection or a file of roofs of a run directory that somebody sent."""
    run = folder / "run"
    _linked(inputs.run, run)
    name = rng.choice(
        ("manifest.json", "manifest.json", "steps/2-select/selection.yaml", "roofs.json")
    )
    path = run / name
    if rng.random() < 0.3:
        _write(path, mutate_bytes(path.read_bytes(), rng))
    else:
        read = json.loads if path.suffix == ".json" else yaml.safe_load
        data = mutate_plain(read(path.read_text("utf-8")), rng)
        with contextlib.suppress(ValueError, RecursionError):
            text = json.dumps(data, ensure_ascii=rng.random() < 0.5)
            _write(path, text.encode("utf-8", "surrogatepass"))
    call: Callable[[list[str]], int] = prof
    argv = ["export", str(run), "--format", "csv", "--table", "stages", "-o", str(folder / "out")]
    if name == "roofs.json":
        call = lambda _: as_command(lambda: read_roofs(path))  # noqa: E731
    elif name != "manifest.json":
        call = lambda _: as_command(lambda: load_run(run).selection)  # noqa: E731
    return Case(argv, lambda: _check_manifest(run), call)


def _check_manifest(run: Path) -> None:
    manifest = read_manifest(RunDir(run))
    data = json.loads((run / "manifest.json").read_text("utf-8"))
    same("run_id", manifest.run_id, data["run_id"])
    names = [step["name"] for step in data.get("steps", [])]
    same("steps", [step.name for step in manifest.steps], names)
