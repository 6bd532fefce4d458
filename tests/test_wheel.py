"""The wheel holds all that the packages hold: modules, kernels, templates, recipes and the rest."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

FOLDERS = {
    "orchestrator": "orchestrator",
    "parsers": "parsers",
    "recipes": "orchestrator/recipes",
    "reports": "reports",
    "targets": "targets",
    "templates": "reports/templates",
}
"""Folders of the checkout, and where they stand in the wheel."""
BUILD = "from setuptools import build_meta; build_meta.build_wheel('wheel')"
CACHES = shutil.ignore_patterns("__pycache__")


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built from a copy: a build leaves folders in its sources."""
    source = tmp_path_factory.mktemp("source")
    for folder in FOLDERS:
        shutil.copytree(root / folder, source / folder, ignore=CACHES)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, source)
    done = subprocess.run(
        [sys.executable, "-c", BUILD], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = (source / "wheel").glob("*.whl")
    return found


def test_every_file_of_the_packages_is_in_the_wheel(wheel: Path) -> None:
    source = wheel.parents[1]
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    ours = {
        f"{place}/{path.relative_to(source / folder).as_posix()}"
        for folder, place in FOLDERS.items()
        for path in (source / folder).rglob("*")
        if path.is_file()
    }
    assert "targets/serving/configs/qwen2.5-7b/config.json" in ours
    assert held == ours
