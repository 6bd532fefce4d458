"""Reads predictions/*.json: what a model answered to each request, with the pages that it drew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from nsight_prof.parsers.cells import Row
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.run.directory import RunDir, plain_file, read_manifest

FOLDER, PICTURES = "predictions", "visualizations"
LONGEST = 200
"""Characters of an answer that the table keeps."""


def read_predictions(run: RunDir, source: str) -> list[Row]:
    """Return the rows of table `predictions` of a step, sorted by the names of their files.

    Raises:
        ArtifactUnreadable: a file cannot be read or holds something else.
    """
    record = read_manifest(run).step(source)
    if record is None or not record.directory:
        return []
    return list(_rows(run, run.step(record), source))


def _rows(run: RunDir, step: Path, source: str) -> Iterator[Row]:
    for path in sorted((step / FOLDER).glob("*.json*")):
        name = path.name.removesuffix(".xz").removesuffix(".json")
        found = _read(run.inside(path))
        picture = step / PICTURES / f"{name}.png"
        boxes = found.get("boxes")
        yield {
            "source": source,
            "request": str(found.get("request", name)),
            "answer": _answer(found)[:LONGEST],
            "tokens": len(found["tokens"]) if isinstance(found.get("tokens"), list) else pd.NA,
            "boxes": len(boxes) if isinstance(boxes, list) else pd.NA,
            "file": str(path.relative_to(run.path)),
            "picture": str(picture.relative_to(run.path)) if picture.is_file() else "",
        }


def _read(path: Path) -> dict[str, Any]:
    try:
        with plain_file(path) as unpacked:
            found = json.loads(unpacked.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
        reason = "it holds no object"
    except (OSError, ValueError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
    raise ArtifactUnreadable(f"{path} cannot be read: {reason}", "run the step again")


def _answer(found: dict[str, Any]) -> str:
    """Return the text of an answer, or the class that is the most probable one; "" without."""
    classes = found.get("classes")
    if isinstance(classes, dict) and classes:
        return str(next(iter(classes)))
    return str(found.get("text") or "")
