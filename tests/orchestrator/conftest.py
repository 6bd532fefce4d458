"""A machine of fakes: fake nsys and ncu on PATH, one H200, a target that a test chooses."""

import ast
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.orchestrator.recipe.read import recipe_from_dict
from nsight_prof.orchestrator.run import machine, prepare, runner
from nsight_prof.orchestrator.system import discover, environment
from nsight_prof.orchestrator.system.environment import Gpus
from nsight_prof.orchestrator.tools import shim
from nsight_prof.parsers.run.directory import RunDir, read_manifest

FAKES = Path(__file__).resolve().parent.parent / "fakes"
H200 = {"device": 0, "name": "NVIDIA H200", "compute_capability": "9.0", "uuid": "GPU-0"}


class Watcher:
    """Records what a run says; `stop_at` is a step at whose start Ctrl-C is pressed."""

    def __init__(self, stop_at: Any = "") -> None:
        self.stop_at = stop_at
        self.states: list[tuple[str, str]] = []
        self.warnings: list[str] = []
        self.variants: list[str] = []
        self.waited_for: list[str] = []
        self.parts: list[str] = []
        self.details: list[str] = []

    def variant(self, name: str, index: Any, total: Any) -> None:
        self.variants.append(name)

    def started(self, step: Any, waits_for: Any) -> None:
        self.waited_for.append(waits_for)

    def doing(self, step: Any, part: str, detail: str) -> None:
        if part and part not in self.parts:
            self.parts.append(part)
        self.details.append(f"{step}: {detail}")

    def waits(self, step: Any, seconds: Any) -> None:
        if step == self.stop_at:
            raise KeyboardInterrupt

    def finished(self, step: Any, state: Any, note: Any) -> None:
        self.states.append((step, str(state)))

    def warning(self, sentence: Any) -> None:
        self.warnings.append(sentence)


class Lab:
    """One test's machine: its folder, its fakes and what they were called with."""

    def __init__(self, folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.log = folder / "calls.txt"
        self.out = folder / "out"

    def fake(self, **variables: Any) -> None:
        """Set FAKE_… variables."""
        for name, value in variables.items():
            self.monkeypatch.setenv(name, value)

    def calls(self, tool: Any = None, without: Any = "--version") -> Any:
        """Return the argvs of the fakes that did work: no questions, no probe."""
        lines = self.log.read_text().splitlines() if self.log.is_file() else []
        found = [ast.literal_eval(line) for line in lines]
        quiet = ("--version", "--help", "--import", "export")
        return [
            argv
            for argv in found
            if not any(word in quiet or "tiny_kernel" in word for word in argv)
            and tool in (None, argv[0])
        ]

    def recipe(self, script: Any = "print('target ran')", **changes: Any) -> Any:
        """Return a recipe that runs `script`, with dotted keys changed: counters__enabled=False."""
        target = self.folder / "target.py"
        target.write_text(script)
        data: dict[str, Any] = {"name": "lab", "target": {"file": str(target)}}
        for key, value in changes.items():
            *path, last = key.split("__")
            place = data
            for name in path:
                place = place.setdefault(name, {})
            place[last] = value
        return recipe_from_dict(data, "lab")

    def run(self, recipe: Any = None, **options: Any) -> Any:
        """Run a recipe into the lab's folder and return the outcome."""
        if "resume" not in options:
            options.setdefault("out", self.out)
        return runner.run_recipe(recipe or self.recipe(), runner.RunOptions(**options))

    @property
    def manifest(self) -> Any:
        """The manifest of the run in the lab's folder."""
        return read_manifest(RunDir(self.out))

    def state(self, step: Any) -> Any:
        """State of a step."""
        return str(self.manifest.step(step).state)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine with fake tools, a GPU and nothing installed otherwise."""
    monkeypatch.chdir(tmp_path)
    path = f"{FAKES}:{Path(sys.executable).parent}:/usr/bin:/bin"
    for name in list(os.environ):
        if name.startswith("FAKE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "calls.txt"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "has_gpu", lambda: True)
    monkeypatch.setattr(machine, "read_gpus", lambda: Gpus([H200], "580.95", "13.0"))
    monkeypatch.setattr(machine, "read_interpreter", lambda python, variables, cwd: {})
    # What asks CUDA, nvidia-smi and git in processes has tests of its own.
    monkeypatch.setattr(prepare, "visible_gpus", lambda variables: [])
    monkeypatch.setattr(environment, "read_git", lambda cwd: {})
    monkeypatch.setattr(environment, "DRIVER_PARAMETERS", tmp_path / "no-params")
    monkeypatch.setattr(discover, "NSYS_PLACES", ())
    monkeypatch.setattr(discover, "NCU_PLACES", ())
    monkeypatch.setattr(shim, "BUNDLES", ())
    monkeypatch.setattr(runner, "make_report", _report)
    return Lab(tmp_path, monkeypatch)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Returns a function (text, name) that writes a recipe and returns its path."""

    def write_file(text: str, name: str = "mine.yaml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


@pytest.fixture
def watcher() -> Any:
    """A class of watchers."""
    return Watcher


def _report(run: Any) -> Any:
    """Stand in for tables and report, which have tests of their own."""
    run.report.mkdir(exist_ok=True)
    path = run.report / "report.md"
    path.write_text("# report\n")
    return [], path
