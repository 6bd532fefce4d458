"""Keeps measured roofs for later runs, by GPU, driver, clocks and power limit, and finds them."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsight_prof.orchestrator.tools.shim import cache_folder
from nsight_prof.parsers.errors import ProfError
from nsight_prof.parsers.roofs.file import (
    GPU_KEYS,
    Fit,
    Match,
    RoofsFile,
    gpu_facts,
    matches,
    read_roofs,
    write_roofs,
)

MEASURE = "prof run roofline"
# The chip's name comes from the counters, without which the GPU is the same all the same.
KEYED_BY = tuple(key for key in GPU_KEYS if key not in ("chip", "sm_count"))


@dataclass(frozen=True)
class Cached:
    """A file of roofs, where it lies, and how far they hold for the GPU that was asked for."""

    path: Path
    roofs: RoofsFile
    match: Match = Match(Fit.EXACT)


def folder() -> Path:
    """Return the folder of the cache: $XDG_CACHE_HOME/prof/roofs or ~/.cache/prof/roofs."""
    return cache_folder(os.environ) / "roofs"


def file_of(gpu: Mapping[str, Any]) -> Path:
    """Return the file in which roofs of this very GPU, driver, clocks and power limit are kept."""
    facts = gpu_facts(gpu)
    identity = [facts[key] for key in KEYED_BY]
    text = json.dumps([float(v) if isinstance(v, int) else v for v in identity])
    words = f"{facts['name'] or 'gpu'} {facts['driver'] or ''}".lower()
    slug = re.sub(r"[^a-z0-9.]+", "-", words).strip("-")
    return folder() / f"{slug}-{hashlib.sha256(text.encode()).hexdigest()[:10]}.json"


def cached() -> tuple[list[Cached], list[str]]:
    """Return all files of the cache, the newest measurement first, and why others are not read."""
    found, unreadable = [], []
    for path in sorted(folder().glob("*.json")):
        try:
            found.append(Cached(path, read_roofs(path)))
        except ProfError as error:
            unreadable.append(error.message)
    return sorted(found, key=lambda entry: entry.roofs.measured, reverse=True), unreadable


def find(gpu: Mapping[str, Any]) -> tuple[Cached | None, list[Cached]]:
    """Return the roofs to use for a GPU (as `gpu_facts` gives it), and those that fit it not.

    Those of the very GPU stand before those of another one of its kind; then the newest. The
    others are of a GPU of the same name, under another driver, clock or power limit.
    """
    files = [Cached(entry.path, entry.roofs, matches(entry.roofs, gpu)) for entry in cached()[0]]
    for fit in (Fit.EXACT, Fit.SAME_KIND):
        for entry in files:
            if entry.match.fit == fit:
                return entry, []
    return None, [entry for entry in files if entry.roofs.gpu["name"] == gpu_facts(gpu)["name"]]


def keep(file: RoofsFile) -> tuple[Path | None, str]:
    """Keep the roofs that a run measured; return where, or None and a sentence why not.

    Roofs are not replaced by fewer of them: a run of a few cases leaves those of a whole one.
    """
    if not file.gpu.get("name") or not len(file.roofs):
        return None, ""
    path = file_of(file.gpu)
    lost = _roofs_of(path) - _names(file)
    if lost:
        return None, (
            f"the roofs are not kept for later runs, because {path} has roofs that this run did "
            f"not measure ({', '.join(sorted(lost)[:3])}…); remove that file to keep these"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_roofs(path, file)
    return path, ""


def _roofs_of(path: Path) -> set[str]:
    try:
        return _names(read_roofs(path)) if path.is_file() else set()
    except ProfError:
        return set()


def _names(file: RoofsFile) -> set[str]:
    keys: Iterable[Any] = file.roofs[["level_or_pipe", "dtype", "kind"]].fillna("").to_numpy()
    return {" ".join(str(word) for word in key if word) for key in keys}
