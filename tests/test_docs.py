"""The reference pages of docs/ are those that the code gives, and leave nothing out."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from orchestrator.cli import COMMANDS
from orchestrator.recipe_errors import all_keys
from orchestrator.recipe_files import bundled
from orchestrator.recipe_schema import Recipe
from parsers.tables import tables

FOLDERS = ("orchestrator", "parsers", "reports", "targets", "scripts", "tests")


@pytest.fixture(scope="module")
def docs(root: Path) -> ModuleType:
    """The generator, loaded from its file: scripts are no package."""
    specification = importlib.util.spec_from_file_location("docs", root / "scripts" / "docs.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["docs"] = module
    specification.loader.exec_module(module)
    return module


def page(root: Path, name: str) -> str:
    return (root / "docs" / name).read_text(encoding="utf-8")


def test_the_pages_are_up_to_date(root: Path) -> None:
    # In a process of its own: click keeps the help option of the first use of a command, and other
    # tests use commands without their group.
    command = [sys.executable, str(root / "scripts" / "docs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_check_says_which_page_is_stale(
    docs: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(docs, "DOCS", tmp_path)
    monkeypatch.setattr(docs, "PAGES", {"tables.md": docs.render_tables})
    assert docs.main(["--check"]) == 1
    assert "out of date: tables.md" in capsys.readouterr().out
    assert docs.main([]) == 0
    assert docs.main(["--check"]) == 0


def test_every_command_is_documented(root: Path) -> None:
    text = page(root, "cli.md")
    for name in COMMANDS:
        assert f"## prof {name}\n" in text


def test_every_recipe_key_and_every_bundled_recipe_is_documented(root: Path) -> None:
    text = page(root, "recipes.md")
    for path in all_keys(Recipe):
        assert f"| `{'.'.join(path)}` |" in text
    for recipe in bundled():
        assert f"({Path('../recipes') / recipe.name})" in text


def test_every_column_of_every_table_is_documented(root: Path) -> None:
    text = page(root, "tables.md")
    for table, columns in tables().items():
        assert f"## {table}\n" in text
        for column in columns:
            assert f"| `{column.name}` |" in text


def test_every_environment_variable_of_ours_is_documented(root: Path) -> None:
    text = page(root, "cli.md")
    for folder in FOLDERS:
        for path in (root / folder).rglob("*"):
            if path.suffix in (".py", "") and path.is_file() and "cache" not in str(path):
                for name in re.findall(r"\bPROF_[A-Z_]+", path.read_text(encoding="utf-8")):
                    assert f"| `{name}` |" in text, f"{name} in {path}"
