"""No version with a known advisory satisfies what the package asks for."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

SAFE = {
    "aiohttp": "3.13.4",
    "jinja2": "3.1.6",  # CVE-2025-27516: the sandbox could be left
    "setuptools": "78.1.1",  # CVE-2025-47273: paths that climb out
    "torch": "2.10",
}
"""The oldest version without an advisory that was known when this was written."""


@pytest.mark.parametrize("name", SAFE)
def test_the_floor_is_no_version_with_an_advisory(root: Path, name: str) -> None:
    facts = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    asked = [
        *facts["build-system"]["requires"],
        *facts["project"]["dependencies"],
        *(one for group in facts["project"]["optional-dependencies"].values() for one in group),
    ]
    floors = [
        clause.version
        for text in asked
        if (requirement := Requirement(text)).name == name
        for clause in requirement.specifier
        if clause.operator == ">="
    ]
    assert floors
    assert set(floors) == {SAFE[name]}
