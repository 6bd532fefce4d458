"""Finds the Nsight files that `prof import` was asked for: files, folders and patterns."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nsight_prof.orchestrator.imports.recognize import COUNTERS, TRACES, Kind, recognize
from nsight_prof.orchestrator.workers.on_ray import Node
from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.join.ncu_files import listed
from nsight_prof.parsers.run.directory import MANIFEST, RANKS, STEPS, VARIANTS
from nsight_prof.parsers.run.sentences import stored

MOST_FILES = 20_000
"""Files of a folder that are looked at: a whole disk was not meant."""
MOST_NAMES = 8
SUFFIXES = (".nsys-rep", ".qdrep", ".qdstrm", ".sqlite", ".ncu-rep")
"""Files whose names say that they are of Nsight: each that cannot be read is named with its why."""


@dataclass(frozen=True)
class Given:
    """One file to import: what it is, and what the user calls it.

    `name` is the file's name, with as many of its folders as tell it from the others.
    `in_folder`: it was found in a folder, so that prof may skip it where it cannot be read.
    `node` is the node of a cluster that alone has it, None where all have.
    """

    path: Path
    kind: Kind
    name: str
    in_folder: bool = False
    node: Node | None = None


@dataclass(frozen=True)
class Inputs:
    """What was found; `notes` say what was passed over, and why.

    `operators` is a trace of the torch profiler beside one of nsys; alone it is a trace itself.
    """

    traces: tuple[Given, ...]
    counters: tuple[Given, ...]
    notes: tuple[str, ...]
    operators: Given | None = None


def find_inputs(asked: Sequence[Path]) -> Inputs:
    """Return the files that are meant by paths of files and folders, and by patterns.

    A file that is named is imported or refused. Of a folder, and all folders in it, the files that
    prof reads are taken; the others are in the notes.

    Raises:
        UsageError: a pattern that no file fits, a folder without end, or a run directory.
        ArtifactUnreadable: a named file that prof does not read, or a folder without any file that
            it reads.
    """
    paths, notes = _paths(asked)
    names = shown_names([path for path, _ in paths])
    given = []
    for (path, in_folder), name in zip(paths, names, strict=True):
        try:
            given.append(Given(path, recognize(path), name, in_folder))
        except ArtifactUnreadable as error:
            if not in_folder:
                raise
            notes.append((name, error.message.replace(str(path), name)))
    if not given:
        listing = ", ".join(str(path) for path in asked)
        raise ArtifactUnreadable(
            f"{listing} holds no file that prof reads",
            "it takes .nsys-rep, .sqlite, .ncu-rep, the CSV and text that nsys stats and ncu "
            "print, and traces of torch.profiler",
        )
    return _chosen(given, notes)


def shown_names(paths: Sequence[Path]) -> list[str]:
    """Return the files' names; where two are alike, all with as many folders as tell them apart."""
    split_paths = [Path(os.path.abspath(path)).parts for path in paths]
    for depth in range(1, max(map(len, split_paths), default=1)):
        names = [str(Path(*folders[-depth:])) for folders in split_paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def skipped(name: str, reason: str) -> str:
    """Say that a file of a folder was left out."""
    return f"Skipped: {reason}." if reason.startswith(name) else f"Skipped {name}: {reason}."


def stem(path: Path) -> str:
    """Return the name of a file without its suffixes: a report and its export have the same."""
    return path.name.removesuffix(".xz").rpartition(".")[0]


def _paths(asked: Sequence[Path]) -> tuple[list[tuple[Path, bool]], list[tuple[str, str]]]:
    """Return each file once, and whether it was found in a folder."""
    found: dict[str, tuple[Path, bool]] = {}
    notes: list[tuple[str, str]] = []
    for path, in_folder in _expanded(asked):
        real = os.path.realpath(path)
        if real in found:
            notes.append(
                (
                    str(path.name),
                    stored("{name} was given twice, and is taken once", name=path.name),
                )
            )
        found.setdefault(real, (path, in_folder))
    return list(found.values()), notes


def _expanded(asked: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    for path in asked:
        if path.is_dir():
            yield from ((inside, True) for inside in _inside(path))
        elif not path.exists() and glob.has_magic(str(path)):
            yield from _matches(str(path))
        else:
            yield path, False


def _matches(pattern: str) -> Iterator[tuple[Path, bool]]:
    """Return the files that fit a pattern which the shell left to us, in natural order."""
    found = sorted(map(Path, glob.iglob(pattern, recursive=True)), key=natural)
    if not found:
        raise UsageError(f"no file fits {pattern}", "check the folder, and quote the pattern")
    for path in found:
        if path.is_dir():
            yield from ((inside, True) for inside in _inside(path))
        else:
            yield path, False


def _inside(folder: Path) -> list[Path]:
    """Return the plain files of a folder and of those in it, but for hidden ones and runs of prof.

    Links to folders are not followed.
    """
    if _is_run(folder):
        raise UsageError(f"{folder} is a run directory of prof", f"prof report {folder}")
    found: list[Path] = []
    for directory, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if f[0] != "." and not _is_run(Path(directory, f))]
        paths = (Path(directory, name) for name in files if name[0] != ".")
        found += [path for path in paths if path.is_file()]
        if len(found) > MOST_FILES:
            raise UsageError(
                f"{folder} holds more than {MOST_FILES:,} files", "name the folder of the reports"
            )
    return sorted(found, key=natural)


def _is_run(folder: Path) -> bool:
    inside = (STEPS, RANKS, VARIANTS)
    return (folder / MANIFEST).is_file() and any((folder / name).is_dir() for name in inside)


def natural(path: Path) -> list[tuple[int, str]]:
    """Return a key that sorts rank2 before rank10."""
    tokens = re.split(r"(\d+)", str(path))
    return [(int(token), "") if token.isdigit() else (0, token) for token in tokens]


def _chosen(given: Sequence[Given], passed: Iterable[tuple[str, str]]) -> Inputs:
    """Split traces from counters; an export beside its own report is one trace."""
    traces = [item for item in given if item.kind in TRACES]
    exports = {(i.path.parent, stem(i.path)) for i in traces if i.kind is Kind.SQLITE}
    traces = [
        item
        for item in traces
        if item.kind is not Kind.NSYS_REPORT or (item.path.parent, stem(item.path)) not in exports
    ]
    notes = _notes(passed)
    summaries = [item.name for item in traces if item.kind is Kind.KERN_SUM]
    if summaries and len(summaries) < len(traces):
        traces = [item for item in traces if item.kind is not Kind.KERN_SUM]
        notes.append(
            stored(
                "Not used: {summaries}: the trace has every launch that a kernel summary adds up.",
                summaries=listed(summaries, MOST_NAMES),
            )
        )
    counters = tuple(item for item in given if item.kind in COUNTERS)
    of_torch = [item for item in traces if item.kind is Kind.TORCH]
    if of_torch and len(of_torch) < len(traces):
        if len(traces) > 2 or len(of_torch) > 1:
            raise UsageError(
                f"{len(of_torch)} traces of the torch profiler and {len(traces) - len(of_torch)} "
                "of nsys were given, and which belong together is not known",
                "import one of each, of the same program, into a run of their own",
            )
        traces.remove(of_torch[0])
        return Inputs(tuple(traces), counters, tuple(notes), of_torch[0])
    return Inputs(tuple(traces), counters, tuple(notes))


def _notes(passed: Iterable[tuple[str, str]]) -> list[str]:
    """Name the files that were passed over: those of Nsight with their reason, others together."""
    skipped_files = list(passed)
    reported = [
        reason
        for name, reason in skipped_files
        if name.endswith(SUFFIXES) or "given twice" in reason
    ]
    others = [name for name, reason in skipped_files if reason not in reported]
    notes = [skipped(name, reason) for name, reason in skipped_files if reason in reported]
    if others:
        notes.append(
            stored(
                "Passed over, as nothing that prof reads: {others}.",
                others=listed(others, MOST_NAMES),
            )
        )
    return notes
