"""Run directories that predictions read and write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from nsight_prof.orchestrator.predict.sources import Source
from nsight_prof.orchestrator.predict.table_cache import cached
from nsight_prof.orchestrator.report.run_tables import are_of_now, ensure_tables
from nsight_prof.orchestrator.system.run_lock import new_folder
from nsight_prof.orchestrator.system.version import prof_version
from nsight_prof.parsers import tables
from nsight_prof.parsers.bench.records import SERVING
from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.predict.costs import Note
from nsight_prof.parsers.run.artifacts import check_artifacts, describe
from nsight_prof.parsers.run.directory import (
    STEPS,
    Manifest,
    RunDir,
    StepRecord,
    StepState,
    check_one_run,
    read_manifest,
    write_manifest,
)
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.predict.notes import sentences

STEP = "predict"
READ = (
    "gpus", "kernels", "launches", "engine_steps", "bench", "measured_roofs", "host_speed",
    "imported_operators", "serving_points", *SERVING.values(),
)  # fmt: skip
"""Tables that predictions read."""


def opened(path: Path) -> Source:
    """Return the run in `path`; where tables are not there, what predictions read is made.

    Raises:
        UsageError: it is no run, or was changed since.
    """
    check_one_run(path)
    run = RunDir(path)
    if not are_of_now(run, READ):
        check_artifacts(run)
        if (known := cached(run, partial(_known, run))) is not None:
            source = Source(path)
            vars(source).update(known)
            return source
        ensure_tables(path)
    return Source(path)


def _known(run: RunDir) -> dict[str, Any] | None:
    """Return what is worked out of a run before it is known what is predicted, by the names of
    `Source`; None as `_frames`."""
    frames = _frames(run)
    if frames is None:
        return None
    known: dict[str, Any] = {"frames": frames}
    with suppress(Exception):  # who asks for it hears why there is none
        known["trace"] = Source(run.path, frames).trace
    return known


def _frames(run: RunDir) -> dict[str, pd.DataFrame] | None:
    """Return the tables that predictions read, without the columns of counters.

    All tables of the run take several times as long. None: the run measured roofs, for which
    counters are needed, or has neither a trace nor a benchmark, or a trace that cannot be read.
    """
    # What reads them takes as long to import as a prediction.
    from nsight_prof.parsers.build.bench_tables import (
        complete_gpus,
        is_bench,
        measured_roofs,
        read_benched,
    )
    from nsight_prof.parsers.build.gaps import Gaps
    from nsight_prof.parsers.build.serving_tables import serving_frames
    from nsight_prof.parsers.build.telemetry_tables import host_speed_frame
    from nsight_prof.parsers.nsys.trace import open_trace

    manifest, path, gaps = read_manifest(run), run.artifact("trace", "trace.sqlite"), Gaps()
    if manifest.variants or (path is None and not is_bench(run)):
        return None
    frames = {name: tables.empty(name) for name in READ}
    if path is not None:
        try:
            with open_trace(path, manifest.recipe.get("stages") or ()) as trace:
                for name in ("gpus", "kernels", "launches", "engine_steps"):
                    frames[name] = getattr(trace, name)()
        except ArtifactUnreadable:
            return None
    if is_bench(run):
        benched = read_benched(run, None, "", gaps)
        frames["bench"] = benched.tables.bench
        if frames["bench"]["roof"].fillna("").ne("").any():
            return None
        frames["gpus"] = complete_gpus(frames["gpus"], benched.conditions)
    if measured := measured_roofs(run, None, frames["gpus"], tables.empty("metrics"), gaps):
        frames["measured_roofs"] = measured.roofs
    frames["host_speed"] = host_speed_frame(run, gaps)
    return frames | serving_frames(run, gaps)


def write_tables(
    name: str,
    out: Path | None,
    found: Mapping[str, pd.DataFrame],
    kind: str,
    recipe: dict[str, Any],
    notes: Sequence[Note],
) -> RunDir:
    """Write a run directory whose only step left tables.

    Args:
        name: of what was predicted.
        out: a new or an empty folder; None: named after `kind` and `name`.
        found: the tables.
        kind: "predict" or "validate".
        recipe: what was asked for, as a recipe has it.
        notes: what was assumed.

    Raises:
        UsageError: `out` is not empty.
    """
    if out is not None and (out / "manifest.json").exists():
        raise UsageError(f"{out} is a run already", "give a folder that is new or empty")
    stem = "".join(c if c.isalnum() or c in "-._" else "-" for c in name)
    run = RunDir(new_folder(f"{kind}-{stem}", out, force=False))
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    record = StepRecord(STEP, STEP, StepState.DONE, f"{STEPS}/1-{STEP}", started=now, finished=now)
    assumed = _notes(notes)
    for table, frame in {**found, "predicted_notes": assumed}.items():
        tables.write(frame, table, run.step(record), csv=False)
    record.files = describe(run.step(record))
    texts = [Writer().text(text) for text in sentences(assumed)]
    manifest = Manifest(run_id=run.path.name, created=now, prof_version=prof_version(),
                        recipe=recipe, steps=[record], assumptions=texts)  # fmt: skip
    write_manifest(run, manifest)
    return run


def _notes(notes: Sequence[Note]) -> pd.DataFrame:
    """Return table `predicted_notes`, each note once."""
    rows = [(item.key, json.dumps(dict(item.values))) for item in dict.fromkeys(notes)]
    columns = tables.empty("predicted_notes").columns
    return tables.check(pd.DataFrame(rows, columns=columns), "predicted_notes")
