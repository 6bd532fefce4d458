"""Gives a run the measured roofs that its report uses, and keeps those that it measured itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from nsight_prof.orchestrator.roofs import cache as roofs_cache
from nsight_prof.orchestrator.run.bench_records import measures_roofs
from nsight_prof.orchestrator.run.work import Work
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.roofs.comm import COMM_ROOFS_FILE, read_comm_roofs
from nsight_prof.parsers.roofs.file import (
    ROOFS_FILE,
    Fit,
    RoofsFile,
    gpu_facts,
    matches,
    read_roofs,
    write_roofs,
)
from nsight_prof.parsers.run.directory import Manifest, RunDir, read_manifest, write_manifest
from nsight_prof.parsers.run.sentences import stored
from nsight_prof.parsers.whole_file import write_atomic

# How sentences about the roofs begin, so that they can be replaced.
ABOUT = stored("measured roofs")
MEASURE_LINKS = "prof run comm-roofs"


def attach(work: Work, manifest: Manifest) -> None:
    """Put roofs.json into a run before its report is made, and say in the manifest whose they are.

    A replay takes those of the recorded run; a run that measures roofs makes its own; any other
    takes those of its GPU from the cache, unless `work.roofs` is false.
    """
    path = work.run.path / ROOFS_FILE
    if work.replay is not None:
        for name in (ROOFS_FILE, COMM_ROOFS_FILE):
            if (source := work.replay.path / name).is_file():
                _copy(work.replay.inside(source), work.run.path / name)
        return
    if measures_roofs(work.run):
        return
    path.unlink(missing_ok=True)
    if work.roofs:
        _say(manifest, _from_cache(manifest, path))


def keep(work: Work, manifest: Manifest) -> str:
    """Keep the roofs that the run measured; return a sentence where they are not kept, else ""."""
    path = work.run.path / ROOFS_FILE
    if work.replay is not None or not path.is_file() or not measures_roofs(work.run):
        return ""
    file = read_roofs(path)
    return roofs_cache.keep(file)[1] if file.run_id == manifest.run_id else ""


def attach_comm_roofs(run: RunDir, given: Path) -> bool:
    """Hold the collectives of a run or a job against measured bandwidths of links.

    `given` is their file or a run that has it. Returns whether there is one.

    Raises:
        UsageError: they are of another kind of GPU.
        ArtifactUnreadable: the file is damaged.
    """
    path = given / COMM_ROOFS_FILE if given.is_dir() else given
    file = read_comm_roofs(path) if path.name == COMM_ROOFS_FILE else None
    if file is None:
        return False
    name = _gpu_of(read_manifest(run))["name"]
    if name and file.gpu and name != file.gpu:
        raise UsageError(
            f"the communication roofs of {given} are those of {file.gpu}, and the run is of {name}",
            f"measure the links of these GPUs: {MEASURE_LINKS}",
        )
    if path.resolve() != (run.path / COMM_ROOFS_FILE).resolve():
        _copy(path, run.path / COMM_ROOFS_FILE)
    return True


def has_gpu_roofs(given: Path) -> bool:
    """Tell whether a path is meant to name roofs of a GPU, not of links alone."""
    if given.is_dir():
        return (given / ROOFS_FILE).is_file() or not (given / COMM_ROOFS_FILE).is_file()
    return given.name != COMM_ROOFS_FILE


def attach_given(run: RunDir, given: Path) -> None:
    """Give a finished run other roofs: `given` is a file of roofs or a run that has one.

    Raises:
        UsageError: the run measured its own roofs, or those given are of another kind of GPU.
        ArtifactUnreadable: `given` is no file of roofs.
    """
    if measures_roofs(run):
        raise UsageError(
            f"{run.path} measured its own roofs, and its report is about them",
            "leave --roofs out",
        )
    file = read_roofs(given_file(given))
    manifest = read_manifest(run)
    facts = _gpu_of(manifest)
    match = matches(file, facts)
    if facts["name"] and file.gpu["name"] and facts["name"] != file.gpu["name"]:
        raise UsageError(
            f"the roofs of {given} are those of {file.gpu['name']}, and the run is of "
            f"{facts['name']}",
            f"measure that GPU: {roofs_cache.MEASURE}",
        )
    write_roofs(run.path / ROOFS_FILE, replace(file, given=True))
    _say(manifest, _whose(file, "" if match.fit == Fit.EXACT else match.reason))
    write_manifest(run, manifest)


def given_file(given: Path) -> Path:
    """Return the file of roofs that a path names: itself, or roofs.json of a run directory.

    Raises:
        UsageError: there is none.
    """
    path = given / ROOFS_FILE if given.is_dir() else given
    if path.is_file():
        return path
    missing = f"{given} has no measured roofs: there is no {path}"
    raise UsageError(
        missing if given.is_dir() else f"there is no file of measured roofs {given}",
        f"measure them: {roofs_cache.MEASURE}; prof roofs list shows what is there",
    )


def _from_cache(manifest: Manifest, path: Path) -> str:
    """Copy the roofs of the run's GPU to `path`; return what the reader should know of them."""
    facts = _gpu_of(manifest)
    if not facts["name"]:
        return ""
    found, others = roofs_cache.find(facts)
    if found is not None:
        _copy(found.path, path)
        return _whose(found.roofs, "" if found.match.fit == Fit.EXACT else found.match.reason)
    if not others:
        return ""
    newest = others[0]
    return stored(
        "{about} of a {name} exist (run {run_id}) and are not used: {reason}; measure again: "
        "{measure}",
        about=ABOUT,
        name=facts["name"],
        run_id=newest.roofs.run_id,
        reason=newest.match.reason,
        measure=roofs_cache.MEASURE,
    )


def _whose(file: RoofsFile, reason: str) -> str:
    caveat = f"; {reason}" if reason else ", this very GPU"
    return stored(
        "{about} are those of run {run_id}, {measured}{caveat}",
        about=ABOUT,
        run_id=file.run_id,
        measured=file.measured,
        caveat=caveat,
    )


def _say(manifest: Manifest, sentence: str) -> None:
    others = [assumption for assumption in manifest.assumptions if not assumption.startswith(ABOUT)]
    manifest.assumptions = [*others, sentence] if sentence else others


def _gpu_of(manifest: Manifest) -> dict[str, Any]:
    """Return the facts of the run's first GPU, as roofs are of one GPU; None is unknown."""
    gpu = manifest.gpus[0] if manifest.gpus else {}
    return gpu_facts(gpu, manifest.software.get("driver"))


def _copy(source: Path, target: Path) -> None:
    write_atomic(target, source.read_text(encoding="utf-8"))
