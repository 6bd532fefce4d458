"""The version of prof, installed or run from a checkout."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

DISTRIBUTION = "nsight-prof"


@cache
def prof_version() -> str:
    """Return the version of the installed distribution, or that of the checkout."""
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    if project.is_file():
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])
    return metadata.version(DISTRIBUTION)
