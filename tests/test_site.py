"""The site of docs/ can be built, where mkdocs is installed; its pages are there in any case."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml


def test_the_pages_of_the_site_are_there(root: Path) -> None:
    found = yaml.safe_load((root / "mkdocs.yml").read_text())["nav"]

    def pages(part: Any) -> list[str]:
        if isinstance(part, str):
            return [part]
        parts = part.values() if isinstance(part, dict) else part
        return [page for inner in parts for page in pages(inner)]

    names = pages(found)
    assert len(names) > 20
    assert [name for name in names if not (root / "docs" / name).is_file()] == []


def test_the_site_builds_without_the_network(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="pip install '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    assert "Coming from llm-perf-opt" in (tmp_path / "llm-perf-opt.html").read_text()
