"""What a target needs before anything else: to find the package, and the modules of others.

Each of them starts with these lines, because it also runs as a file in an interpreter that has no
prof (`python targets/gemm.py`):

    if not __package__:  # run as a file
        runpy.run_path(str(Path(__file__).resolve().parent / "standalone.py"))
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

MISSING = 3
"""The exit code where something is not installed."""
DISTRIBUTIONS = {"yaml": "pyyaml"}
"""What is installed for a module, where it has another name."""


def find_package(file: Path) -> None:
    """Let `import nsight_prof.targets` find the folder of `file`, and nothing else beside it.

    The folder of the script leaves the search path: its modules must not hide those of others.
    """
    if "nsight_prof" not in sys.modules:
        sys.modules["nsight_prof"] = package = ModuleType("nsight_prof")
        package.__path__ = [str(file.parents[1])]
    sys.path[:] = [p for p in sys.path if not Path(p).resolve().is_relative_to(file.parent)]


def need(*modules: str) -> None:
    """End the program with `error: …` and `hint: …` where its interpreter lacks a module.

    Raises:
        SystemExit: with code 3.
    """
    for name in modules:
        if find_spec(name) is None:
            complain(
                f"the interpreter {sys.executable} has no module {name}",
                "name one that has it (in a recipe: target.python, or --set "
                f"target.python=/path/to/venv/bin/python), or: {sys.executable} -m pip install "
                f"{DISTRIBUTIONS.get(name, name)}",
            )
            raise SystemExit(MISSING)


def complain(message: str, hint: str) -> None:
    """Print an error and what to do about it to stderr, in the form that prof looks for."""
    print(f"error: {message}\n\nhint: {hint}", file=sys.stderr, flush=True)


if __name__ == "<run_path>":  # a target runs as a file
    find_package(Path(__file__).resolve())
