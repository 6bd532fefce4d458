"""Makes a run directory of operators that a foreign benchmark measured, for predictions."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from nsight_prof.orchestrator.system.run_lock import new_folder
from nsight_prof.orchestrator.system.version import prof_version
from nsight_prof.parsers import tables
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.predict.aiconfigurator import TABLE, read_aiconfigurator
from nsight_prof.parsers.run.artifacts import describe
from nsight_prof.parsers.run.directory import (
    MANIFEST,
    STEPS,
    Manifest,
    RunDir,
    StepRecord,
    StepState,
    write_manifest,
)

STEP = "imported-operators"
REPOSITORY = "https://github.com/ai-dynamo/aiconfigurator (Apache-2.0)"


def import_operators(given: Path, system: str, framework: str, version: str, out: Path) -> RunDir:
    """Make the run directory `out` from the tables of aiconfigurator (see `read_aiconfigurator`).

    Raises:
        UsageError: `out` is a run already, or there are no such tables.
        ArtifactUnreadable: a table cannot be used.
    """
    if (out / MANIFEST).exists():
        raise UsageError(f"{out} is a run already", "give a folder that is new or empty")
    found = read_aiconfigurator(given, system, framework, version)
    run = RunDir(new_folder(STEP, out, force=False))
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    record = StepRecord(STEP, STEP, StepState.DONE, f"{STEPS}/1-{STEP}", started=now, finished=now)
    tables.write(found.frame, TABLE, run.step(record), csv=False)
    record.files = describe(run.step(record))
    recipe = {
        "name": f"Operators of {framework} on {found.device}",
        "operators": {"system": found.system, "framework": framework, "from": REPOSITORY},
    }
    assumptions = [
        f"The operators were measured by others ({REPOSITORY}): how steady clocks and power were "
        "is not known.",
        *found.notes,
    ]
    manifest = Manifest(run_id=out.name, created=now, prof_version=prof_version(), recipe=recipe,
                        gpus=[{"name": found.device}], steps=[record],
                        imported=list(found.files), assumptions=assumptions)  # fmt: skip
    write_manifest(run, manifest)
    return run
