"""The reference pages of docs/ are those that the code gives, and leave nothing out."""

import importlib.util
import itertools
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from jsonschema import Draft202012Validator

from nsight_prof import Run
from nsight_prof.orchestrator.cli import COMMANDS, group, main
from nsight_prof.orchestrator.recipe.errors import all_keys
from nsight_prof.orchestrator.recipe.files import bundled
from nsight_prof.orchestrator.recipe.read import load_recipe
from nsight_prof.orchestrator.recipe.schema import Recipe
from nsight_prof.parsers.tables import tables
from scripts.pages import networks
from scripts.pages.noise_floor import BOARDS, ENGINES, STARTS
from tests import forked

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md",
         *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))))  # fmt: skip
OF_RECORDED_RUNS = ("networks.md", "noise-floor.md")
FOLDERS = ("nsight_prof", "orchestrator", "parsers", "reports", "targets", "scripts", "tests")


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
    code = f"""import docs, sys
for name in {OF_RECORDED_RUNS}:
    del docs.PAGES[name]
sys.exit(docs.main(["--check"]))
"""
    done = forked.run(["-c", code], {**os.environ, "PYTHONPATH": "."}, root / "scripts")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.every_run
def test_the_pages_of_recorded_runs_are_up_to_date(
    docs: ModuleType,
    root: Path,
    recorded_folder: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Their tables are those that other tests have made.
    for name in (networks.SWEEP, networks.STAIRCASE, *networks.TRUTHS, *BOARDS, *STARTS):
        link = tmp_path / "captures" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(recorded_folder(name))
    for name in ENGINES:
        (tmp_path / "captures" / name).symlink_to(root / "captures" / name)
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    monkeypatch.setattr(networks, "CAPTURES", tmp_path / "captures")
    monkeypatch.setattr(docs, "PAGES", {name: docs.PAGES[name] for name in OF_RECORDED_RUNS})
    assert docs.stale() == {}


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


def test_the_gallery_shows_every_recorded_run(root: Path) -> None:
    text = page(root, "gallery.md")
    for recorded in sorted((root / "captures").glob("h200-*")):
        assert f"`captures/{recorded.name}`" in text, "make it again: scripts/example"


def test_the_page_about_the_api_names_all_of_it(root: Path) -> None:
    text = page(root, "api.md")
    for name in tables():
        assert f"| [`{name}`](tables.md#{name}) |" in text
    for name, value in vars(Run).items():
        if isinstance(value, (property, cached_property)) and name not in tables():
            assert f"| `{name}` |" in text
    assert (root / "docs" / "load_run.py").read_text(encoding="utf-8").rstrip() in text


@pytest.mark.parametrize("recorded", ["known-gemm", "top-kernels", "roofline"])
def test_the_example_of_the_api_runs(
    root: Path, tmp_path: Path, recorded_folder: Callable[[str], Path], recorded: str
) -> None:
    name = f"h200-{recorded}"
    # load_run makes tables where there are none, as for the smallest.
    without = recorded == "known-gemm"
    shutil.copytree(
        root / "captures" / name if without else recorded_folder(name), tmp_path / "run"
    )
    done = forked.run([str(root / "docs" / "load_run.py"), str(tmp_path / "run")])
    assert done.returncode == 0, done.stderr
    assert "NVIDIA H200" in done.stdout
    assert "nan" not in done.stdout
    assert not done.stderr


@pytest.mark.parametrize("recorded", ["top-kernels", "known-gemm"])
def test_the_cells_of_the_page_about_notebooks_run(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recorded_folder: Callable[[str], Path],
    recorded: str,
) -> None:
    shutil.copytree(recorded_folder(f"h200-{recorded}"), tmp_path / "runs" / "mine")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    cells = re.findall(r"^```python\n(.*?)^```$", page(root, "notebooks.md"), re.M | re.S)
    for cell in cells:
        exec(compile(cell, "docs/notebooks.md", "exec"), namespace)
    assert (tmp_path / "roofline-tensor.svg").read_text("utf-8").startswith("<?xml")
    assert not namespace["gains"].empty
    described = set(
        re.findall(
            r"`(\w+)`",
            " ".join(
                line.split("|")[1]
                for line in page(root, "notebooks.md").splitlines()
                if "| `" in line
            ),
        )
    )
    assert described == set(namespace["run"].findings.columns)


def test_every_environment_variable_of_ours_is_documented(root: Path) -> None:
    text = page(root, "cli.md")
    for folder in FOLDERS:
        for path in (root / folder).rglob("*"):
            if path.suffix in (".py", "") and path.is_file() and "cache" not in str(path):
                for name in re.findall(r"\bPROF_[A-Z_]+", path.read_text(encoding="utf-8")):
                    assert f"| `{name}` |" in text, f"{name} in {path}"


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(root: Path, name: str) -> None:
    path = root / name
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if link.startswith("http"):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@cache
def anchors(page: Path) -> set[str]:
    """The places that a link may name: ids, and headings as GitHub writes them."""
    text = page.read_text(encoding="utf-8")
    found = set(re.findall(r'id="([^"]+)"', text))
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        found.add(re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-"))
    return found


def test_every_recipe_and_capture_that_a_page_names_is_there(root: Path) -> None:
    for name in PAGES:
        text = (root / name).read_text(encoding="utf-8")
        for recipe in re.findall(r"recipes/([a-z-]+)\.yaml", text):
            assert (root / "recipes" / f"{recipe}.yaml").is_file(), (name, recipe)
        for recipe in re.findall(r"captures/h200-([a-z-]+)", text):
            assert (root / "recipes" / f"{recipe}.yaml").is_file(), (name, recipe)


def test_the_recipes_of_the_page_about_vllm_are_recipes(root: Path, tmp_path: Path) -> None:
    found = re.findall(r"^```yaml\n(.*?)^```$", page(root, "vllm.md"), re.MULTILINE | re.DOTALL)
    assert len(found) == 2
    for text in found:
        (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
        assert load_recipe(tmp_path / "mine.yaml").target.python


def test_the_commands_of_the_page_about_vllm_fit_its_recipes(root: Path) -> None:
    text = page(root, "vllm.md")
    commands = re.findall(r"^prof run .*$", text, re.MULTILINE)
    commands += [f"prof run vllm-kernels {told}" for told in re.findall(r"`(--set [^`…]+)`", text)]
    assert len(commands) > 5
    for command in commands:
        words = shlex.split(command, comments=True)
        overrides = [word for word in words[3:] if word != "--set"]
        assert load_recipe(Path(words[2]).stem, overrides).target.file


def test_every_command_of_a_page_is_one(root: Path) -> None:
    found = 0
    for name in PAGES:
        text = (root / name).read_text(encoding="utf-8")
        for block in re.findall(r"^```(?:\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            for line in re.findall(r"^(?:.*(?:&&|\$\() ?)?(prof [a-z].*)$", block, re.MULTILINE):
                words = shlex.shlex(line, posix=True, punctuation_chars=True)
                words.whitespace_split = True
                told = itertools.takewhile(lambda word: word[0] not in "&|<>)", words)
                assert parsed(list(told)[1:]), (name, line)
                found += 1
    assert found > 100


def parsed(words: list[str]) -> bool:
    """Whether a command line is one of prof's; of a bundled recipe also what --set says."""
    command: click.Command | None = group
    while isinstance(command, click.Group) and words:
        command, words = command.get_command(click.Context(command), words[0]), words[1:]
    if command is None:
        return False
    given = command.make_context("prof", words).params if words else {}
    if Path(given.get("recipe") or "").stem in {recipe.stem for recipe in bundled()}:
        load_recipe(Path(given["recipe"]).stem, given["overrides"])
    return True


def test_the_commands_of_the_page_about_llm_perf_opt_are_commands(root: Path) -> None:
    text = page(root, "llm-perf-opt.md")
    found = re.findall(r"^prof .*$", text, re.MULTILINE)
    found += re.findall(r"`(prof [a-z][^`…]*)`", text)
    assert len(found) > 15
    for line in found:
        name, *words = shlex.split(line, comments=True)[1:]
        command = group.get_command(click.Context(group), name)
        assert command is not None, line
        context = command.make_context(name, words) if words else None
        if context is not None and name == "run":
            given = context.params
            recipe = load_recipe(Path(given["recipe"]).stem, given["overrides"])
            assert recipe.target.file, line
    for option in re.findall(r"`--set ('[^']+'|[^` ]+)", text):
        if (value := shlex.split(option)[0]) and "/" not in value and "model=" not in value:
            assert load_recipe("inference", ["dataset.root=pages", value]).target.file, option


def test_the_target_of_the_contributors_guide_runs(
    root: Path, tmp_path: Path, bench_schema: Draft202012Validator
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "saxpy.py").write_text(source, encoding="utf-8")
    (recipe,) = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "saxpy.yaml").write_text(recipe, encoding="utf-8")
    # Both modes in one process: to import torch takes longest.
    modes = ("--case-time=0.01", "--count")
    code = f"""import runpy, sys
for mode in {modes}:
    sys.argv = ["saxpy.py", "--device=cpu", mode]
    try:
        runpy.run_path("saxpy.py", run_name="__main__")
    except SystemExit as end:
        assert not end.code
"""
    done = forked.run(["-c", code], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["record"] for record in told] == ["conditions", "case", "case"] * len(modes)
    for record in told:
        bench_schema.validate(record)
    assert {r["status"] for r in told if r["record"] == "case"} <= {"ok", "counted"}
    assert main(["recipe", "check", str(tmp_path / "saxpy.yaml")]) == 0
