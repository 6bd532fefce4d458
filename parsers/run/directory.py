"""The run directory: names of its files, its manifest, and how both are written atomically.

The saved run directory is the interface between capture and report. The orchestrator writes it;
the parsers and reports read it, on any machine.
"""

from __future__ import annotations

import json
import lzma
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter

from nsight_prof.parsers.errors import ArtifactUnreadable, SchemaTooNew, UsageError
from nsight_prof.parsers.reading import reading, reason
from nsight_prof.parsers.run.recorded_recipe import Recorded
from nsight_prof.parsers.run.sentences import Made, made_of
from nsight_prof.parsers.whole_file import write_atomic

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
UNPACKED, GROWTH = 256 << 20, 300
"""Bytes that any .xz file may unpack to, and how many times its size; exports shrink to 1/30."""
STEPS, TABLES, REPORT, VARIANTS, RANKS = "steps", "tables", "report", "variants", "ranks"


MOST_RANKS = 1_000_000


class StepState(StrEnum):
    """What is known of a step; `unsupported`: this machine cannot do it; the record says why."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True)
class Artifact:
    """A file that a step left: its size and the SHA-256 of its content."""

    bytes: int
    sha256: str


@dataclass
class StepRecord:
    """One step of a run as the manifest keeps it.

    `id` is the hash of all that matters for the step's result; a resumed run does the step again
    when it differs and says why in `rerun_reason`. Times are UTC, ISO 8601; `seconds` is wall time.
    `files` is what the step left: file -> what it was (parsers.artifacts); older versions of
    prof wrote none. A step that is done and has an `error` was done in part.
    """

    name: str
    id: str = ""
    state: StepState = StepState.PENDING
    directory: str = ""
    argv: list[str] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)
    rerun_reason: str = ""
    started: str = ""
    finished: str = ""
    seconds: float | None = None
    exit_code: int | None = None
    error: str = ""
    hint: str = ""
    warnings: list[str] = field(default_factory=list)
    files: dict[str, Artifact] = field(default_factory=dict)


@dataclass
class RankRecord:
    """One rank of a job, whose run directory is `RunDir.rank(rank)`.

    `file` is the trace as the user called it. `host` is empty and `started_ns` (the start of the
    capture, UTC) None where the trace does not tell. `role` is what a variable of the job calls its
    part in it. `reason` says why there is no trace of a rank that was to be traced.
    """

    rank: Annotated[int, Field(ge=0, lt=MOST_RANKS)]
    file: str = ""
    sha256: str = ""
    host: str = ""
    started_ns: int | None = None
    pids: list[int] = field(default_factory=list)
    gpu_uuids: list[str] = field(default_factory=list)
    local_rank: int | None = None
    reason: str = ""
    role: str = ""


@dataclass
class JobRecord:
    """What `prof rank` knows of the whole job.

    `id` is the same for all ranks of one job. `size` is the number of its ranks, `traced` those
    that were to be traced; None where the launcher does not tell. `launcher` is the variable that
    the ranks are from.
    """

    id: str
    size: int | None
    traced: list[int] | None
    launcher: str


@dataclass
class Manifest:
    """Everything about a run that is not in its raw captures.

    `created` is when it was measured, UTC in ISO 8601, also in a replay; empty where that is not
    known of imported files.
    `recipe` is the recipe as resolved (after `extends` and `--set`); `assumptions` are sentences
    for the report; `tools`, `gpus`, `software` describe the machine that captured, never the
    reader's. A job of several traces has `ranks`, and `rank_basis` says where their numbers are
    from; `job` is there where `prof rank` captured it. `counter_files` are the names of several
    files of ncu that were imported together, kept as `counters_stem(0)` and so on. `sentences` are
    what its own sentences with values are made of, by their words (parsers.run.sentences).
    """

    run_id: str
    created: str
    recipe: dict[str, Any]
    format_version: int = FORMAT_VERSION
    prof_version: str = ""
    assumptions: list[str] = field(default_factory=list)
    tools: dict[str, str] = field(default_factory=dict)
    gpus: list[dict[str, Any]] = field(default_factory=list)
    software: dict[str, str] = field(default_factory=dict)
    steps: list[StepRecord] = field(default_factory=list)
    variants: list[str] = field(default_factory=list)
    replayed_from: str = ""
    imported: list[str] = field(default_factory=list)
    ranks: list[RankRecord] = field(default_factory=list)
    rank_basis: str = ""
    counter_files: list[str] = field(default_factory=list)
    job: JobRecord | None = None
    sentences: dict[str, Made] = field(default_factory=dict)

    def step(self, name: str) -> StepRecord | None:
        """Return the record of the step called `name`, or None where the run has no such step."""
        return next((step for step in self.steps if step.name == name), None)


def counters_stem(number: int) -> str:
    """Return the name, without suffix, of one of several files of ncu in the counters step."""
    return f"counters-{number:04d}"


@dataclass(frozen=True)
class RunDir:
    """Names of everything inside one run directory."""

    path: Path

    @property
    def manifest_path(self) -> Path:
        """`manifest.json`."""
        return self.path / MANIFEST

    @property
    def tables(self) -> Path:
        """Folder of the tidy tables."""
        return self.path / TABLES

    @property
    def report(self) -> Path:
        """Folder of the rendered report."""
        return self.path / REPORT

    def step(self, record: StepRecord) -> Path:
        """Folder of a step's raw artifacts."""
        return self.path / record.directory

    def variant(self, name: str) -> RunDir:
        """Return the run of a variant of a sweep."""
        return RunDir(self.path / VARIANTS / name)

    def rank(self, number: int) -> RunDir:
        """Run directory of one rank of a job."""
        return RunDir(self.path / RANKS / f"{number:04d}")

    def artifact(self, step_name: str, *names: str) -> Path | None:
        """Return the first of `names` (or `name.xz`) that the step holds, or None."""
        manifest = read_manifest(self)
        record = manifest.step(step_name)
        if record is None or not record.directory:
            return None
        folder = self.step(record)
        for name in names:
            for candidate in (folder / name, folder / f"{name}.xz"):
                if candidate.is_file():
                    return self.inside(candidate)
        return None

    def inside(self, path: Path, folder: str = "") -> Path:
        """Return `path`, which must lie below the run (or a folder of it), links followed.

        Raises:
            ArtifactUnreadable: it leads out of there. Somebody who sends a run could else have
                files of its reader copied or replaced.
        """
        if _plainly_below(path, self.path / folder):
            return path
        try:
            resolved, within = path.resolve(), (self.path / folder).resolve()
            below = resolved != within and resolved.is_relative_to(within)
        except (OSError, RuntimeError, ValueError):  # a circle of links, a name with a NUL
            below = False
        if not below:
            raise ArtifactUnreadable(
                f"{path} does not lie inside of the run {self.path}",
                "do not use this run if somebody sent it to you; if it is yours, put the files "
                "themselves where the links are",
            )
        return path


def _plainly_below(path: Path, folder: Path) -> bool:
    """Tell whether there is neither a link nor `..` from a folder to a path: no need to follow."""
    inner, depth = str(folder), len(folder.parts)
    if path.parts[:depth] != folder.parts:
        return False
    for name in path.parts[depth:]:
        inner = f"{inner}/{name}"
        if name == ".." or "\0" in name or os.path.islink(inner):
            return False
    return len(path.parts) > depth


def write_manifest(run: RunDir, manifest: Manifest) -> None:
    """Write the manifest atomically."""
    manifest.sentences |= made_of(_sentences(manifest))
    text = json.dumps(asdict(manifest), indent=1, sort_keys=False, ensure_ascii=False)
    write_atomic(run.manifest_path, text + "\n")


def _sentences(manifest: Manifest) -> Iterator[str]:
    yield from (*manifest.assumptions, manifest.rank_basis)
    for step in manifest.steps:
        yield from (*step.warnings, step.error, step.hint, step.rerun_reason)
    yield from (rank.reason for rank in manifest.ranks)


def refuse_bytes(path: Path) -> None:
    """Raise UsageError where the path of a run is not UTF-8, which pyarrow does not open."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the path {path} of the run is not UTF-8: no Parquet file can be written there",
            "give the folder, or the one above it that has such a name, a name in UTF-8",
        ) from error


def read_manifest(run: RunDir) -> Manifest:
    """Read the manifest of a run directory.

    Raises:
        UsageError: the folder is not a run directory, or its path is not UTF-8.
        ArtifactUnreadable: the manifest is damaged, or names what lies outside of the run.
        SchemaTooNew: a newer version of prof wrote it.
    """
    path = run.manifest_path
    refuse_bytes(run.path)
    if not os.path.isfile(path):
        raise UsageError(
            f"{run.path} is not a run directory: it has no {MANIFEST}",
            "name the folder that `prof run` or `prof import` made, for example runs/top-kernels-…",
        )
    hint = "restore the file, or import the raw captures again: prof import <files> --out DIR"
    with reading(path, "the manifest of a run", hint):
        text = path.read_bytes()
        version = _Version.model_validate_json(text, strict=True).format_version
        if version > FORMAT_VERSION:
            raise SchemaTooNew(
                f"{path} has format version {version}; this prof understands up to "
                f"{FORMAT_VERSION}",
                "upgrade prof, or render the report with the version that made the run",
            )
        manifest = _manifests().validate_json(text, strict=True)
        Recorded.model_validate({"recipe": manifest.recipe})
    _check_paths(run, manifest)
    return manifest


def _check_paths(run: RunDir, manifest: Manifest) -> None:
    """Refuse a run whose folders, or the paths in whose manifest, lead out of it."""
    for folder in (STEPS, TABLES, REPORT, VARIANTS, RANKS):
        run.inside(run.path / folder)
    for record in manifest.steps:
        if record.directory:
            run.inside(run.step(record))
    for name in manifest.variants:
        run.inside(run.path / VARIANTS / name, VARIANTS)
    for member in manifest.ranks:
        run.inside(run.rank(member.rank).path, RANKS)


@cache
def _manifests() -> TypeAdapter[Manifest]:
    return TypeAdapter(Manifest)


class _Version(BaseModel):
    format_version: int


def check_one_run(path: Path) -> None:
    """Refuse a job where one run is meant; what is no run directory at all is not looked at.

    Raises:
        UsageError: `path` holds a run for each of several ranks.
    """
    if not RunDir(path).manifest_path.is_file():
        return
    ranks = read_manifest(RunDir(path)).ranks
    if ranks:
        raise UsageError(
            f"{path} is a job of {len(ranks)} rank{'s' if len(ranks) != 1 else ''}, and one run is "
            "needed here",
            f"name the run of a rank: {RunDir(path).rank(ranks[0].rank).path}",
        )


@contextmanager
def plain_file(path: Path) -> Iterator[Path]:
    """Give a path to the uncompressed content of `path`; an .xz file is unpacked for the time."""
    if path.suffix != ".xz":
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="prof-") as folder:
        target = Path(folder) / path.stem
        decompress(path, target)
        yield target


def most_unpacked(packed: Path) -> int:
    """Return how many bytes a packed file may unpack to: of a bomb each byte becomes thousands."""
    return max(UNPACKED, GROWTH * packed.stat().st_size)


def decompress(source: Path, target: Path) -> None:
    """Unpack an .xz file.

    Raises:
        ArtifactUnreadable: it is truncated, no xz file, or of a size that no recording has.
    """
    limit = most_unpacked(source)
    try:
        with lzma.open(source) as packed, target.open("wb") as unpacked:
            while block := packed.read(1 << 20):
                if unpacked.tell() + len(block) > limit:
                    raise ArtifactUnreadable(
                        f"{source} unpacks to more than {limit >> 20} MiB, which no recording does",
                        f"where it is right all the same: xz -dk {source}, and give that file",
                    )
                unpacked.write(block)
    except (lzma.LZMAError, EOFError, MemoryError) as error:
        raise ArtifactUnreadable(
            f"{source} cannot be unpacked: {reason(error)}", "fetch the recorded run again"
        ) from error
