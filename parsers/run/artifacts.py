"""What the files of a finished step were when it ended, and which of them are so no longer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.run.directory import Artifact, RunDir, StepState, read_manifest
from nsight_prof.parsers.run.sentences import stored

# Nothing reads them again; people delete them to save space.
UNREAD = (".log", ".nsys-rep", ".qdstrm", "command.json")
PACKED = ".xz"


def describe(folder: Path, known: Mapping[str, Artifact] | None = None) -> dict[str, Artifact]:
    """Return file -> its size and the hash of its content, of all that a report may read.

    `known` are files that whoever wrote them has hashed.
    """
    found = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and not path.name.endswith(UNREAD)
    }
    known = known or {}
    return {
        name: known.get(name) or Artifact(path.stat().st_size, _hash(path))
        for name, path in found.items()
    }


def differences(folder: Path, files: Mapping[str, Artifact]) -> Iterator[str]:
    """Say of each file that is gone, or not as it was, in what.

    One that was packed since is taken to be the same.
    """
    for name, was in files.items():
        path = folder / name
        if path.with_name(path.name + PACKED).is_file() and not path.exists():
            continue
        if not path.resolve().is_relative_to(folder.resolve()):
            yield stored("{name} is not in the folder of the step", name=name)
        elif not path.is_file():
            yield f"{name} is gone"
        elif path.stat().st_size != was.bytes:
            yield stored(
                "{name} has {st_size:,} bytes and had {bytes:,}",
                name=name,
                st_size=path.stat().st_size,
                bytes=was.bytes,
            )
        elif _hash(path) != was.sha256:
            yield stored("{name} has other content", name=name)


def check_artifacts(run: RunDir) -> None:
    """Refuse a run whose captures are not those that its steps left.

    Raises:
        ArtifactUnreadable: a file is gone or was changed; it is named.
    """
    manifest = read_manifest(run)
    again = (
        "import them again: prof import FILES --out DIR"
        if manifest.imported
        else f"do the step again: prof run RECIPE --resume {run.path}"
    )
    for record in manifest.steps:
        if record.state != StepState.DONE or not record.directory:
            continue
        changed = list(differences(run.step(record), record.files))
        if changed:
            raise ArtifactUnreadable(
                f"{run.step(record)} is not what the {record.name} step left: {'; '.join(changed)}",
                f"put the files back, or {again}; tables and report were left as they are",
            )


def _hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
