"""Turns existing Nsight files of any version into a run directory that `prof report` renders."""

from __future__ import annotations

import glob
import hashlib
import os
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from nsight_prof.orchestrator.imports.inputs import Given, Inputs, find_inputs, skipped
from nsight_prof.orchestrator.imports.nodes import find_inputs_on
from nsight_prof.orchestrator.imports.ranks import Filled, Member, identity_of, import_ranks
from nsight_prof.orchestrator.imports.recognize import Kind
from nsight_prof.orchestrator.system.discover import Tool, find_ncu
from nsight_prof.orchestrator.system.export import export_csv, export_sqlite
from nsight_prof.orchestrator.system.recorded_environment import copy_export
from nsight_prof.orchestrator.system.stopping import stoppable
from nsight_prof.orchestrator.system.version import prof_version
from nsight_prof.orchestrator.workers.mapping import mapped
from nsight_prof.orchestrator.workers.on_ray import RayExecutor
from nsight_prof.parsers.errors import (
    ArtifactUnreadable,
    NoKernels,
    ProfError,
    StepFailed,
    ToolMissing,
    UsageError,
)
from nsight_prof.parsers.join.ncu_files import NcuFile, added, join_files, listed
from nsight_prof.parsers.ncu import NcuCapture
from nsight_prof.parsers.patterns import compile_pattern
from nsight_prof.parsers.run.artifacts import describe
from nsight_prof.parsers.run.directory import (
    MANIFEST,
    RANKS,
    STEPS,
    Artifact,
    Manifest,
    RunDir,
    StepRecord,
    StepState,
    counters_stem,
    decompress,
    read_manifest,
    write_manifest,
)
from nsight_prof.parsers.run.sentences import stored
from nsight_prof.parsers.whole_file import whole_file

LEFT = {"lost+found"}  # what an empty disk holds
TRACE_FOLDER, COUNTERS_FOLDER = f"{STEPS}/1-trace", f"{STEPS}/3-counters"
OPERATORS_FOLDER = f"{STEPS}/4-operators"
ARTIFACTS = {
    Kind.SQLITE: "trace.sqlite",
    Kind.NSYS_REPORT: "trace.nsys-rep",
    Kind.KERN_SUM: "kern_sum.csv",
    Kind.NCU_REPORT: "counters.ncu-rep",
    Kind.NCU_TEXT: "counters.csv",
}
COUNTERS_STEM = "counters"
_PART, _PARTS = 1 << 16, 1 << 10
"""Bytes of each part of a long trace, and parts, by which a resumed import knows it again."""
EXPORTED = {"trace": ".sqlite", "counters": ".csv"}
"""Suffix of what a tool makes beside the copy of its report."""

RECIPE = {
    "question": "Which kernels take the GPU time in these Nsight files, and what bounds each?"
}


Say = Callable[[str], None]


@dataclass
class _Import:
    """What one import keeps in mind: `copies` of the user's files, and `notes` for the reader.

    `executor` imports the ranks of a job, None for this process.
    """

    recipe: dict[str, Any]
    say: Say
    executor: Executor | None = None
    copies: list[tuple[Path, Given]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def note(self, sentence: str) -> None:
        """Keep a sentence for the report, and tell it now."""
        self.notes.append(sentence)
        self.say(sentence)

    def in_words_of_the_user(self, message: str) -> str:
        """Name the files of the user in a message about their copies, which are gone by then."""
        for copy, given in self.copies:
            message = message.replace(str(copy), str(given.path))
        return message

    def skip(self, given: Given, error: ProfError) -> None:
        """Leave out a file of a folder that cannot be read, and say so; a named one is refused."""
        if not given.in_folder:
            raise error
        message = self.in_words_of_the_user(error.message).replace(str(given.path), given.name)
        self.note(skipped(given.name, message))


def import_files(
    files: Sequence[Path],
    out: Path,
    stages: Sequence[str] = (),
    say: Say = lambda _: None,
    executor: Executor | None = None,
    *,
    resume: bool = False,
) -> RunDir:
    """Make the run directory `out` from files, folders and patterns (see `find_inputs`).

    One trace, counters in any number of files, or both become one run; several traces become a job
    with a run for each rank. `stages` are regexes of NVTX range names, as in a recipe. `say` gets
    what each file adds and what is left out. `executor` imports the ranks of a job; those of a
    cluster also find the files, which may lie on its nodes alone.
    `resume`: an import into `out` was cut off, and the ranks that it left whole are taken over
    where they are of the same content.

    The originals stay as they are. In the copy of an SQLite export the environments that nsys
    recorded are deleted; of an .nsys-rep, which holds them too, only the export is kept. The
    manifest keeps the files' names, with folders only where two are alike.

    Raises:
        UsageError: `out` is there already, or the files do not belong together; or nothing is there
            to resume.
        ArtifactUnreadable: a file that prof cannot read, or that holds no kernel.
        ToolMissing: an .nsys-rep, and no nsys to export it.
    """
    for stage in stages:
        _check_regex(stage)
    if isinstance(executor, RayExecutor):
        inputs = find_inputs_on(executor, files)
    else:
        inputs = find_inputs(files)
    _check_together(inputs)
    if out.is_symlink() and not out.exists():
        raise UsageError(f"{out} is a link to nothing", "give a folder that is new or empty")
    if out.exists() and (not out.is_dir() or {path.name for path in out.iterdir()} - LEFT):
        raise UsageError(f"{out} is there already", "give a folder that is new or empty")
    work = _Import({**RECIPE, "name": out.name, "stages": list(stages)}, say, executor)
    with stoppable(), _in_place_when_whole(out, resume, several=len(inputs.traces) > 1) as partial:
        try:
            _fill_all(RunDir(partial), inputs, work)
        except ProfError as error:
            error.message, error.hint = (
                work.in_words_of_the_user(text) for text in (error.message, error.hint)
            )
            error.args = (error.message,)
            raise
    return RunDir(out)


def import_report(report: Path, out: Path, recipe: dict[str, Any]) -> Manifest:
    """Make the run directory `out`, which is new, from one .nsys-rep, or the export of one.

    Raises as `import_files`.
    """
    kind = Kind.SQLITE if report.suffix == ".sqlite" else Kind.NSYS_REPORT
    given = Given(report, kind, report.name)
    return _fill(RunDir(out), given, (), _Import({**RECIPE, **recipe}, lambda _: None))


@contextmanager
def _in_place_when_whole(out: Path, resume: bool, several: bool) -> Iterator[Path]:
    """Give a folder to fill; what it holds at the end, and without an error, is then in `out`.

    A folder that is there stays the same folder: it may be a mount point, or what a link names.
    With `resume` the folder is the newest that was left by an import that was killed, or by one of
    `several` traces which a lost worker ended.
    """
    existed = out.is_dir()
    folder = out if existed else out.parent
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = [path for path in folder.glob(f".{glob.escape(out.name)}.*") if path.is_dir()]
    if resume and not unfinished:
        raise UsageError(f"no import into {out} was cut off", "leave out --resume")
    if resume:
        partial = max(unfinished, key=lambda path: path.stat().st_mtime_ns)
    else:
        partial = folder / f".{out.name}.{secrets.token_hex(4)}"
        partial.mkdir()
    keep = False
    try:
        yield partial
        if existed:
            # The manifest last: a folder without one is no run.
            for path in sorted(partial.iterdir(), key=lambda path: path.name == MANIFEST):
                os.replace(path, out / path.name)
        else:
            os.replace(partial, out)
    except StepFailed:
        keep = several
        raise
    finally:
        if not keep:
            shutil.rmtree(partial, ignore_errors=True)


def _check_regex(stage: str) -> None:
    try:
        compile_pattern(stage)
    except ValueError as error:
        raise UsageError(
            f"the stage {stage} is {error}",
            "quote special characters with a backslash: 'step\\[0\\]'",
        ) from error


def _check_together(inputs: Inputs) -> None:
    """Refuse several kernel summaries, and counters beside the traces of several ranks."""
    traces = inputs.traces
    if len(traces) > 1 and traces[0].kind is Kind.KERN_SUM:
        names = listed([f"{item.name} ({item.kind})" for item in traces])
        raise UsageError(
            f"{len(traces)} traces were given: {names}",
            "a kernel summary does not tell when a kernel ran: import each into runs of their own, "
            "or give the .nsys-rep or .sqlite files of the ranks",
        )
    if len(traces) > 1 and inputs.counters:
        raise UsageError(
            f"{len(traces)} traces and counters were given, and of which rank "
            f"{listed([item.name for item in inputs.counters])} is, is not known",
            f"import it with the trace of its rank: prof import {traces[0].path} "
            f"{inputs.counters[0].path} --out DIR",
        )


def _fill_all(run: RunDir, inputs: Inputs, work: _Import) -> None:
    for sentence in inputs.notes:
        work.note(sentence)
    if len(inputs.traces) > 1:
        _fill_job(run, inputs.traces, work)
    else:
        _fill(run, next(iter(inputs.traces), None), inputs.counters, work, inputs.operators)


@dataclass
class _Filled:
    """What became of a rank: its run or why there is none, what to say, and its copies."""

    run: Filled | ProfError
    sentences: list[str]
    copies: list[tuple[Path, Given]]


def _fill_rank(recipe: dict[str, Any], member: Member) -> _Filled:
    """Make the run directory of one rank, if it is not there; may run on another machine.

    It gets its name when it is whole: whoever does it again does not meet what is left of it.
    """
    run, trace, rank = member
    if _is_there(run, trace):
        return _Filled((read_manifest(run), identity_of(run)), [], [])
    if not run.path.parent.is_dir():
        raise StepFailed(
            f"{run.path.parent} is not there on {socket.gethostname()}",
            "give --out in a folder that all nodes share",
        )
    partial = RunDir(run.path.with_name(f"{run.path.name}.{secrets.token_hex(4)}"))
    partial.path.mkdir()
    sentences: list[str] = []
    work = _Import({**recipe, "name": f"{recipe['name']}, rank {rank}"}, sentences.append)
    try:
        manifest = _fill(partial, trace, (), work)
        if manifest.step("trace") is None:
            raise NoKernels(f"{trace.name} holds no kernel", "give the traces of ranks with a GPU")
        identity = identity_of(partial)
        shutil.rmtree(run.path, ignore_errors=True)
        os.replace(partial.path, run.path)
    except ProfError as error:
        return _Filled(error, sentences, work.copies)
    finally:
        shutil.rmtree(partial.path, ignore_errors=True)
    return _Filled((manifest, identity), sentences, work.copies)


def _is_there(run: RunDir, trace: Given) -> bool:
    """Tell whether an import that was cut off has made this rank, of a trace of this content."""
    if not run.manifest_path.is_file():
        return False
    with suppress(ProfError, OSError):
        return read_manifest(run).steps[0].inputs.get("sample") == _sample(trace.path)
    return False


def _filled(work: _Import, members: Sequence[Member]) -> Iterator[Filled | ProfError]:
    """Yield what becomes of each rank; a cluster reads a trace where it lies."""
    cluster = work.executor if isinstance(work.executor, RayExecutor) else None

    def submit(fill: Callable[[Member], _Filled], member: Member) -> Future[_Filled]:
        assert cluster is not None  # only a cluster is asked for a node
        return cluster.submit_to(member[1].node, fill, member)

    fill = partial(_fill_rank, work.recipe)
    for done in mapped(fill, members, work.executor, submit if cluster else None, _bytes):
        work.copies += done.copies
        for sentence in done.sentences:
            work.say(sentence)
        yield done.run
    for node in cluster.lost() if cluster else ():
        work.note(stored("The node {node} was lost; its ranks were imported on others.", node=node))


def _bytes(member: Member) -> int:
    """Return the size of a trace; 0 where another node alone has it."""
    with suppress(OSError):
        return member[1].path.stat().st_size
    return 0


def _fill_job(job: RunDir, traces: Sequence[Given], work: _Import) -> None:
    """Make a run directory of each trace below that of the job."""
    folder = job.path / RANKS
    folder.mkdir(exist_ok=True)
    ranks = import_ranks(job, traces, partial(_filled, work), work.skip)
    known = {job.rank(record.rank).path for record in ranks.records}
    for path in {*folder.iterdir()} - known:  # what workers that were killed have left
        shutil.rmtree(path)
    for sentence in ranks.notes:
        work.note(sentence)
    manifest = _manifest(work, [record.file for record in ranks.records])
    manifest.ranks, manifest.rank_basis = ranks.records, ranks.basis
    manifest.created = min((m.created for m in ranks.members if m.created), default="")
    for member in ranks.members:
        manifest.tools |= member.tools
        manifest.gpus += [gpu for gpu in member.gpus if gpu not in manifest.gpus]
    write_manifest(job, manifest)
    for record in ranks.records:
        work.say(f"rank {record.rank}: {record.file}")
    work.say(f"The numbers of the ranks are from {ranks.basis}.")


def _manifest(work: _Import, names: Sequence[str]) -> Manifest:
    return Manifest(
        run_id=work.recipe["name"],
        created="",  # when it was measured, which only a trace tells
        recipe=work.recipe,
        prof_version=prof_version(),
        imported=list(names),
        assumptions=[
            stored("The files were imported: how they were captured is not known."),
            *work.notes,
        ],
    )


def _fill(
    run: RunDir,
    trace: Given | None,
    counters: Sequence[Given],
    work: _Import,
    operators: Given | None = None,
) -> Manifest:
    manifest = _manifest(work, [])
    if trace is not None and trace.kind is Kind.TORCH:
        _take_torch(run, manifest, trace, work)
    elif trace is not None:
        try:
            manifest.steps.append(_take(run, "trace", TRACE_FOLDER, trace, work))
            _add_trace_facts(manifest, run, trace.kind)
            manifest.imported.append(trace.name)
        except ProfError as error:
            if not counters:
                raise
            _leave_out(run, manifest, trace, work, error)
    if operators is not None:
        manifest.steps.append(_take_operators(run, operators, work))
        manifest.imported.append(operators.name)
    if counters:
        _take_counters(run, manifest, counters, work)
    for record in manifest.steps:
        record.files = describe(run.step(record), record.files)
    try:
        _finish(run, manifest, work)
    except ArtifactUnreadable as error:
        if trace is None or manifest.step("counters") is None:
            raise
        _leave_out(run, manifest, trace, work, error)
        _finish(run, manifest, work)
    return manifest


def _finish(run: RunDir, manifest: Manifest, work: _Import) -> None:
    """Write the manifest and the tables; a trace of which there can be none is refused."""
    from nsight_prof.parsers.build.refresh import make_tables

    manifest.assumptions += [note for note in work.notes if note not in manifest.assumptions]
    write_manifest(run, manifest)
    make_tables(run, refuse=True)


def _leave_out(
    run: RunDir, manifest: Manifest, trace: Given, work: _Import, error: ProfError
) -> None:
    """Take a trace that cannot be read out of a run that has counters, too."""
    work.skip(trace, error)
    manifest.steps = [record for record in manifest.steps if record.name != "trace"]
    manifest.imported = [name for name in manifest.imported if name != trace.name]
    shutil.rmtree(run.path / TRACE_FOLDER)


def _take_operators(run: RunDir, given: Given, work: _Import) -> StepRecord:
    """Copy a trace of the torch profiler, packed as it is, to where the operators step has it."""
    from nsight_prof.parsers.torch.trace import open_torch_trace

    folder = run.path / OPERATORS_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    packed = given.path.suffix if given.path.suffix in (".gz", ".xz") else ""
    target = folder / f"operators.json{packed}"
    work.copies.append((target, given))
    shutil.copyfile(given.path, target)
    open_torch_trace(target)  # refused now, not in the report
    return _record("operators", OPERATORS_FOLDER, target, given)


def _take_torch(run: RunDir, manifest: Manifest, given: Given, work: _Import) -> None:
    """Make the operators of a trace of the torch profiler, and its launches where it has some."""
    from nsight_prof.parsers.torch.export import TOOL, write_export

    operators = _take_operators(run, given, work)
    folder = run.path / TRACE_FOLDER
    folder.mkdir(parents=True)
    (source,) = (run.path / OPERATORS_FOLDER).iterdir()
    written = write_export(source, folder / ARTIFACTS[Kind.SQLITE])
    manifest.imported.append(given.name)
    manifest.software |= written.versions
    manifest.assumptions.append(
        stored(
            "The trace is one of the {tool}: times of the host hold its own cost, some "
            "microseconds for each operator, and so does idle time of the GPU.",
            tool=TOOL,
        )
    )
    if written.kernels:
        record = _record("trace", TRACE_FOLDER, folder / ARTIFACTS[Kind.SQLITE], given)
        manifest.steps.append(record)
        _add_trace_facts(manifest, run, Kind.SQLITE)
        del manifest.tools["nsys"]
    else:
        shutil.rmtree(folder)
        manifest.assumptions.append(
            stored("The {tool} saw no kernel: the operators' times are the host's.", tool=TOOL)
        )
    manifest.steps.append(operators)


def _take_counters(
    run: RunDir, manifest: Manifest, counters: Sequence[Given], work: _Import
) -> None:
    """Copy the files of ncu into one step, and read each once."""
    taken: dict[str, NcuFile] = {}
    refused: ProfError | None = None
    for given in counters:
        stem = COUNTERS_STEM if len(counters) == 1 else counters_stem(len(taken))
        try:
            record = _take(run, "counters", COUNTERS_FOLDER, given, work, stem)
            digest = record.inputs["sha256"]
            if digest in taken:
                work.note(
                    stored(
                        "{name} is the same file as {earlier}: taken once.",
                        name=given.name,
                        earlier=taken[digest].name,
                    )
                )
                _drop(run, stem)
                continue
            taken[digest] = NcuFile(given.name, _read_counters(run, stem, given.kind))
        except ProfError as error:
            work.skip(given, error)
            refused = error
            _drop(run, stem)
    if not taken:
        if refused is not None and not manifest.steps:
            raise refused
        return
    files = list(taken.values())
    manifest.imported += [file.name for file in files]
    if versions := {file.capture.version for file in files} - {""}:
        manifest.tools["ncu"] = ", ".join(sorted(versions))
    if len(counters) > 1:
        digest = hashlib.sha256("".join(taken).encode()).hexdigest()
        record.id, record.inputs = digest[:16], {"files": str(len(files)), "sha256": digest}
        manifest.counter_files = [file.name for file in files]
        for sentence in added(join_files(files).files):
            work.say(sentence)
    manifest.steps.append(record)


def _drop(run: RunDir, stem: str) -> None:
    for path in (run.path / COUNTERS_FOLDER).glob(f"{stem}.*"):
        path.unlink()


def _take(
    run: RunDir, step: str, directory: str, given: Given, work: _Import, stem: str = ""
) -> StepRecord:
    """Copy a file into its step, unpacked and under the name that the readers look for."""
    folder = run.path / directory
    folder.mkdir(parents=True, exist_ok=True)
    artifact = folder / ARTIFACTS[given.kind]
    target = artifact.with_name(f"{stem or artifact.stem}{artifact.suffix}")
    export = target.with_suffix(EXPORTED[step])
    work.copies += [(target, given), (export, given)]
    source = target
    if given.path.suffix == ".xz":
        decompress(given.path, target)
    elif given.kind is Kind.SQLITE:
        source = given.path  # of which the rows alone are copied
    else:
        shutil.copyfile(given.path, target)
    if given.kind is Kind.SQLITE:
        with whole_file(target) as copy:
            copy_export(source, copy)
    record = _record(step, directory, target, given)
    if given.kind is Kind.NSYS_REPORT:
        export_sqlite(target, export, given.path)
        # It holds the environments of all processes that nsys saw, where nobody can delete them.
        target.unlink()
    return record


def _record(step: str, directory: str, file: Path, given: Given) -> StepRecord:
    """Return the record of a step that holds `file`, what is kept of what was given."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return StepRecord(
        name=step,
        id=digest[:16],
        state=StepState.DONE,
        directory=directory,
        inputs={"file": given.name, "sha256": digest, "sample": _sample(given.path)},
        finished=_now(),
        files={file.name: Artifact(file.stat().st_size, digest)},
    )


def _sample(path: Path) -> str:
    """Return the hash of a file's size and of parts all over it; of a small one those are all.

    By it a resumed import knows a trace again: to hash all of a long one takes as long as to copy
    it. The first part of an SQLite file has a number that each change of the file counts up.
    """
    size = path.stat().st_size
    digest = hashlib.sha256(b"%d" % size)
    with path.open("rb", buffering=0) as stream:
        for at in range(0, size, max(_PART, size // _PARTS)):
            stream.seek(at)
            digest.update(stream.read(_PART))
    return digest.hexdigest()


def _add_trace_facts(manifest: Manifest, run: RunDir, kind: Kind) -> None:
    """Note what the head of a trace tells; what it holds is read for the tables."""
    folder = run.path / TRACE_FOLDER
    if kind is Kind.KERN_SUM:
        from nsight_prof.parsers.nsys.kern_sum_csv import read_kernel_summary

        manifest.assumptions.append(
            stored(
                "Of the trace only a summary of its kernels was read: launches, stages, copies and "
                "the GPU are not known."
            )
        )
        manifest.assumptions += read_kernel_summary(folder / ARTIFACTS[kind]).notes
        return
    from nsight_prof.parsers.nsys.trace import open_trace

    with open_trace(folder / ARTIFACTS[Kind.SQLITE]) as trace:
        manifest.tools["nsys"] = trace.product_version
        manifest.created = trace.recorded
        manifest.gpus = [_facts(row) for row in trace.gpus().to_dict("records")]


def _facts(row: dict[Any, Any]) -> dict[str, Any]:
    import pandas as pd

    return {str(key): value for key, value in row.items() if not pd.isna(value)}


def _read_counters(run: RunDir, stem: str, kind: Kind) -> NcuCapture:
    """Read counters once; without ncu_report this machine's ncu prints a report as CSV."""
    from nsight_prof.parsers.ncu import can_read_rep, read_ncu

    path = run.path / COUNTERS_FOLDER / f"{stem}{Path(ARTIFACTS[kind]).suffix}"
    if kind is Kind.NCU_REPORT and not can_read_rep():
        report, path = path, path.with_suffix(".csv")
        export_csv(_ncu(), report, path, os.environ)
    return read_ncu(path)


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
