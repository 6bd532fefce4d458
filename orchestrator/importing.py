"""Turns existing Nsight files of any version into a run directory that `prof report` renders."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nsight_prof.orchestrator.discover import Tool, find_ncu
from nsight_prof.orchestrator.export import export_csv, export_sqlite
from nsight_prof.orchestrator.recognize import COUNTERS, TRACES, Kind, recognize
from nsight_prof.orchestrator.recorded_environment import drop_environments
from nsight_prof.orchestrator.stopping import stoppable
from nsight_prof.orchestrator.version import prof_version
from nsight_prof.parsers.artifacts import describe
from nsight_prof.parsers.errors import ProfError, ToolMissing, UsageError
from nsight_prof.parsers.nsys import HINT, WHAT
from nsight_prof.parsers.nsys.own_copy import keep_data
from nsight_prof.parsers.patterns import compile_pattern
from nsight_prof.parsers.reading import reading
from nsight_prof.parsers.run_dir import (
    MANIFEST,
    STEPS,
    Manifest,
    RunDir,
    StepRecord,
    StepState,
    decompress,
    write_manifest,
)

LEFT = {"lost+found"}  # what an empty disk holds
TRACE_FOLDER, COUNTERS_FOLDER = f"{STEPS}/1-trace", f"{STEPS}/3-counters"
ARTIFACTS = {
    Kind.SQLITE: "trace.sqlite",
    Kind.NSYS_REPORT: "trace.nsys-rep",
    Kind.KERN_SUM: "kern_sum.csv",
    Kind.NCU_REPORT: "counters.ncu-rep",
    Kind.NCU_TEXT: "counters.csv",
}


RECIPE = {
    "question": "Which kernels take the GPU time in these Nsight files, and what bounds each?"
}


@dataclass(frozen=True)
class Given:
    """One file to import, and what it is."""

    path: Path
    kind: Kind


def import_files(files: Sequence[Path], out: Path, stages: Sequence[str] = ()) -> RunDir:
    """Make the run directory `out` from one trace, one set of counters, or both.

    `stages` are regexes of NVTX range names, as in a recipe.

    The originals stay as they are. In the copy of an SQLite export the environments that nsys
    recorded are deleted; of an .nsys-rep, which holds them too, only the export is kept. The
    manifest keeps the files' names, never their folders.

    Raises:
        UsageError: `out` is there already, or several traces or several sets of counters.
        ArtifactUnreadable: a file that prof cannot read, or that holds no kernel.
        ToolMissing: an .nsys-rep, and no nsys to export it.
    """
    for stage in stages:
        _check_regex(stage)
    given = [Given(path, recognize(path)) for path in files]
    trace, counters = _one_of_each(given)
    if out.is_symlink() and not out.exists():
        raise UsageError(f"{out} is a link to nothing", "give a folder that is new or empty")
    if out.exists() and (not out.is_dir() or {path.name for path in out.iterdir()} - LEFT):
        raise UsageError(f"{out} is there already", "give a folder that is new or empty")
    recipe = {**RECIPE, "name": out.name, "stages": list(stages)}
    with stoppable(), _in_place_when_whole(out) as partial:
        try:
            _fill(RunDir(partial), trace, counters, recipe)
        except ProfError as error:
            error.message, error.hint = (
                _with_names(text, partial, (trace, counters))
                for text in (error.message, error.hint)
            )
            error.args = (error.message,)
            raise
    return RunDir(out)


@contextmanager
def _in_place_when_whole(out: Path) -> Iterator[Path]:
    """Give a folder to fill; what it holds at the end, and without an error, is then in `out`.

    A folder that is there stays the same folder: it may be a mount point, or what a link names.
    """
    existed = out.is_dir()
    place = out if existed else out.parent
    place.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=place))
    try:
        yield partial
        if existed:
            # The manifest last: a folder without one is no run.
            for path in sorted(partial.iterdir(), key=lambda path: path.name == MANIFEST):
                os.replace(path, out / path.name)
        else:
            partial.chmod(0o755)
            os.replace(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _with_names(message: str, partial: Path, given: Iterable[Given | None]) -> str:
    """Name the files of the user in words about their copies and exports, which are gone by now."""
    for item in given:
        if item is not None:
            folder = partial / (TRACE_FOLDER if item.kind in TRACES else COUNTERS_FOLDER)
            for artifact in ARTIFACTS.values():
                message = message.replace(str(folder / artifact), str(item.path))
    return message


def _check_regex(stage: str) -> None:
    try:
        compile_pattern(stage)
    except ValueError as error:
        raise UsageError(
            f"the stage {stage} is {error}",
            "quote special characters with a backslash: 'step\\[0\\]'",
        ) from error


def _one_of_each(given: Sequence[Given]) -> tuple[Given | None, Given | None]:
    """Return the trace and the counters; an export beside its own report is one trace."""
    traces = [item for item in given if item.kind in TRACES]
    exports = {_stem(item.path) for item in traces if item.kind is Kind.SQLITE}
    traces = [
        item
        for item in traces
        if not (item.kind is Kind.NSYS_REPORT and _stem(item.path) in exports)
    ]
    counters = [item for item in given if item.kind in COUNTERS]
    for found, what in ((traces, "traces"), (counters, "sets of counters")):
        if len(found) > 1:
            names = ", ".join(f"{item.path.name} ({item.kind})" for item in found)
            raise UsageError(
                f"{len(found)} {what} were given: {names}",
                "a run holds one trace (.nsys-rep, .sqlite or kernel summary) and one set of "
                "counters (.ncu-rep or .csv): import the others into runs of their own",
            )
    return next(iter(traces), None), next(iter(counters), None)


def _stem(path: Path) -> str:
    return path.name.removesuffix(".xz").rpartition(".")[0]


def _fill(run: RunDir, trace: Given | None, counters: Given | None, recipe: dict[str, Any]) -> None:
    manifest = Manifest(
        run_id=recipe["name"],
        created="",  # when it was measured, which only a trace tells
        recipe=recipe,
        prof_version=prof_version(),
        imported=[item.path.name for item in (trace, counters) if item is not None],
        assumptions=["The files were imported: how they were captured is not known."],
    )
    if trace is not None:
        manifest.steps.append(_take(run, "trace", TRACE_FOLDER, trace))
        _add_trace_facts(manifest, run, trace.kind)
    if counters is not None:
        manifest.steps.append(_take(run, "counters", COUNTERS_FOLDER, counters))
        manifest.tools |= _ncu_facts(run.path / COUNTERS_FOLDER, counters.kind)
    for record in manifest.steps:
        record.files = describe(run.step(record))
    write_manifest(run, manifest)


def _take(run: RunDir, step: str, directory: str, given: Given) -> StepRecord:
    """Copy a file into its step, unpacked and under the name that the readers look for."""
    folder = run.path / directory
    folder.mkdir(parents=True)
    target = folder / ARTIFACTS[given.kind]
    if given.path.suffix == ".xz":
        decompress(given.path, target)
    else:
        shutil.copyfile(given.path, target)
    with target.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if given.kind is Kind.SQLITE:
        keep_data(target)
        with reading(target, WHAT, HINT):
            drop_environments(target)
    if given.kind is Kind.NSYS_REPORT:
        export_sqlite(target, folder / ARTIFACTS[Kind.SQLITE])
        # It holds the environments of all processes that nsys saw, where nobody can delete them.
        target.unlink()
    return StepRecord(
        name=step,
        id=digest[:16],
        state=StepState.DONE,
        directory=directory,
        inputs={"file": given.path.name, "sha256": digest},
        finished=_now(),
    )


def _add_trace_facts(manifest: Manifest, run: RunDir, kind: Kind) -> None:
    """Read the trace once: a file that cannot be reported on is refused now, not later."""
    folder = run.path / TRACE_FOLDER
    if kind is Kind.KERN_SUM:
        from nsight_prof.parsers.nsys import read_kernel_summary

        manifest.assumptions.append(
            "The trace is a kernel summary: it has no launches, stages, copies or GPU facts."
        )
        manifest.assumptions += read_kernel_summary(folder / ARTIFACTS[kind]).notes
        return
    from nsight_prof.parsers.nsys import open_trace

    with open_trace(folder / ARTIFACTS[Kind.SQLITE]) as trace:
        trace.kernels()
        manifest.tools["nsys"] = trace.product_version
        manifest.created = trace.recorded
        manifest.gpus = [_facts(row) for row in trace.gpus().to_dict("records")]


def _facts(row: dict[Any, Any]) -> dict[str, Any]:
    import pandas as pd

    return {str(key): value for key, value in row.items() if not pd.isna(value)}


def _ncu_facts(folder: Path, kind: Kind) -> dict[str, str]:
    """Read the counters once; without ncu_report this machine's ncu prints a report as CSV."""
    from nsight_prof.parsers.ncu import can_read_rep, read_ncu

    path = folder / ARTIFACTS[kind]
    if kind is Kind.NCU_REPORT and not can_read_rep():
        path = folder / ARTIFACTS[Kind.NCU_TEXT]
        export_csv(_ncu(), folder / ARTIFACTS[kind], path, os.environ)
    version = read_ncu(path).version
    return {"ncu": version} if version else {}


def _ncu() -> Tool:
    try:
        return find_ncu(os.environ)
    except ToolMissing as error:
        raise ToolMissing(
            "an .ncu-rep is read by ncu_report or by ncu, and neither is here",
            "pip install ncu-report; or where ncu is: ncu --import FILE --csv --page raw "
            "--print-units base, and import that output",
        ) from error


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
