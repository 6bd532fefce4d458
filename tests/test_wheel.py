"""The wheel has one import package, with all that its folders hold, apart from any others."""

import ast
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path

import pytest

PACKAGE = "nsight_prof"
FOLDERS = ("orchestrator", "parsers", "recipes", "reports", "targets", "templates")
NOT_INSTALLED = (f"{PACKAGE}/targets/defects/", f"{PACKAGE}/recipes/planted-defects")
"""What holds the rules of findings to programs with known defects."""
BUILD = "from setuptools import build_meta; build_meta.build_wheel('wheel')"
CACHES = shutil.ignore_patterns("__pycache__")


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built from a copy: a build leaves folders in its sources."""
    source = tmp_path_factory.mktemp("source")
    for folder in (PACKAGE, *FOLDERS):
        shutil.copytree(root / folder, source / folder, ignore=CACHES, symlinks=True)
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
        f"{PACKAGE}/{path.relative_to(source).as_posix()}"
        for folder in FOLDERS
        for path in (source / folder).rglob("*")
        if path.is_file()
    }
    ours = {path for path in ours if not path.startswith(NOT_INSTALLED)}
    ours |= {f"{PACKAGE}/{path.name}" for path in (source / PACKAGE).glob("*.py")}
    assert f"{PACKAGE}/targets/serving/configs/qwen2.5-7b/config.json" in ours
    assert held == ours, "a new folder? `packages` and `package-data` of pyproject.toml"


# A path of the checkout; of those of docs/ it must be said that they are in the repository.
TOPS = r"(captures|recipes|scripts|docs|tests|shared|templates|targets)/"
CHECKOUT = re.compile(rf"(?<![\w/.-]){TOPS}[\w.*…<>-]+( of prof| in prof's\s+repository)?")


def said(name: str, text: str) -> Iterator[str]:
    """Give the texts of a file that its users may come to read: no comments and no docstrings.

    The docstrings of commands are their help; of recipes and templates all may be read.
    """
    if not name.endswith(".py"):
        yield text
        return
    if not re.search(TOPS, text):  # as of nearly all files: to parse them takes seconds
        return
    nodes = [*ast.walk(ast.parse(text))]
    own = f"{PACKAGE}/orchestrator/"
    is_help = name.startswith((f"{own}commands/", f"{own}cli.py"))
    alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        text_of = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text_of, str) and (is_help or id(node) not in alone):
            yield text_of


def test_paths_in_hints_and_help_are_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
        shown = re.compile(r".*\.(py|j2)|.*/recipes/.*\.yaml")
        texts = {name: archive.read(name).decode() for name in held if shown.fullmatch(name)}
    found, wrong = 0, []
    for name, text in texts.items():
        for path in (match for part in said(name, text) for match in CHECKOUT.finditer(part)):
            found += 1
            words, where = path[0].removesuffix(path[2] or "").rstrip("."), path[2]
            known = where is not None if path[1] == "docs" else f"{PACKAGE}/{words}" in held
            wrong += [] if known else [f"{name}: {path[0]}"]
    assert found > 50  # the recipes alone say how they are run
    assert wrong == []


@pytest.fixture(scope="module")
def installed(root: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python in whose environment the wheel stands beside a user's modules of our folders' names.

    The requirements of the wheel are those of the running tests: they follow in the search path.
    """
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False)
    (site,) = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    take_compiled(root, site / PACKAGE)
    for folder in FOLDERS:
        (site / f"{folder}.py").write_text(f"raise RuntimeError('{folder} of the user')\n")
    requirements = [path for path in sys.path if path.endswith("site-packages")]
    (site / "requirements.pth").write_text("\n".join(requirements))
    return home / "bin" / "python"


def take_compiled(root: Path, package: Path) -> None:
    """Give the modules of a package what is compiled of the same ones in the checkout.

    To compile them all takes 3 s. Python takes what it finds where size and time are the same.
    """
    for module in package.rglob("*.py"):
        source = (root if module.parent != package else root / PACKAGE) / module.relative_to(
            package
        )
        compiled = Path(cache_from_source(source))
        if compiled.is_file():
            shutil.copystat(source, module)
            there = Path(cache_from_source(module))
            there.parent.mkdir(exist_ok=True)
            shutil.copy(compiled, there)


def run(python: Path, cwd: Path, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(cwd)}
    done = subprocess.run(
        [python, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_modules_of_the_user_with_the_names_of_our_folders_stay_apart(
    installed: Path, root: Path, tmp_path: Path
) -> None:
    for folder in FOLDERS:
        (tmp_path / f"{folder}.py").write_text("raise RuntimeError('in the current folder')\n")
    where = run(installed, tmp_path, "-c", f"import {PACKAGE}; print({PACKAGE}.__file__)")
    assert Path(where.strip()).is_relative_to(installed.parents[1])
    capture = str(root / "captures" / "h200-known-gemm")
    run(installed, tmp_path, "-m", PACKAGE, "run", "known-gemm", "--replay", capture, "--out", "r")
    code = f"from {PACKAGE} import load_run; print(len(load_run('r').kernels))"
    assert int(run(installed, tmp_path, "-c", code)) > 0
    target = installed.parents[1].glob(f"lib/python*/site-packages/{PACKAGE}/targets/gemm.py")
    assert "--dtype" in run(installed, tmp_path, str(next(target)), "--help")
