"""The version of prof, installed or run from a checkout."""

from __future__ import annotations

from functools import cache
from pathlib import Path

DISTRIBUTION = "nsight-prof"


@cache
def prof_version() -> str:
    """Return the version of the installed distribution, or that of the checkout."""
    project = Path(__file__).resolve().parents[2] / "pyproject.toml"
    # What reads either takes a while to import.
    if project.is_file():
        import tomllib

        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])
    from importlib import metadata

    return metadata.version(DISTRIBUTION)
