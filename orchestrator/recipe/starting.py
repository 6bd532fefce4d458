"""Writes the first recipe of a program, from what stands in its source."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import yaml

# torch, and NVTX ranges by torch.cuda.nvtx or the package nvtx, whose name is a literal.
TORCH = re.compile(r"^\s*(?:import|from)\s+torch\b", re.MULTILINE)
RANGE = re.compile(r"""(?:range_push|push_range|annotate|nvtx\.range)\(\s*["']([^"'{}\n]+)["']""")
PROFILER = re.compile(r"cudaProfilerStart|profiler\.start\(\)|cudart\(\)")
INTERPRETER = re.compile(r"python[\d.]*")
LONGEST = 1 << 20  # characters of a source that are looked at

CALLED = """\
# Between cudaProfilerStart and Stop, which the program calls.
capture: profiler-api
"""
WHOLE = """\
# The whole program. After a warm-up alone: profiler-api, where it calls cudaProfilerStart and Stop,
# or {nvtx: NAME}, the first range of this name.
capture: all
"""


def program_of(command: Sequence[str]) -> Path:
    """Return the file of a command that is its program: behind an interpreter the script."""
    words = [word for word in command[1:] if not word.startswith("-")]
    interpreted = INTERPRETER.fullmatch(Path(command[0]).name) and words
    return Path(words[0] if interpreted else command[0])


def first_recipe(command: Sequence[str]) -> str:
    """Return a recipe for a program as commented YAML.

    Args:
        command: the program and its arguments: `train.py --batch 8`, `python train.py` or
            `./app 4096`. Of a Python file the source says whether it uses torch, calls the CUDA
            profiler API and which NVTX ranges it has.
    """
    path = program_of(command)
    is_python = path.suffix == ".py"
    source = path.read_text("utf-8", errors="replace")[:LONGEST] if is_python else ""
    words = ["python", *command] if Path(command[0]).suffix == ".py" else list(command)
    command_line = shlex.join(command)
    lines = [
        f"# {path.stem}: which kernels of {' '.join(command_line.split())} take the GPU time?",
        "#",
        "# All keys with their meaning: prof recipe schema. What it resolves to, and where each",
        "# value comes from: prof recipe show THIS_FILE --resolved",
        "",
        "question: Which kernels take the GPU time of the program, and what bounds each?",
        "",
        "target:",
        f"  command: {_flow(words)}",
        "  # python: /path/to/venv/bin/python    # the interpreter that has the program's packages",
        "",
    ]
    lines += (CALLED if PROFILER.search(source) else WHOLE).split("\n")
    lines += _stages(source)
    lines += [
        "select:",
        "  top_k: 10         # kernels that get hardware counters",
        "",
        "counters:",
        "  # Shorter under ncu, which runs each counted kernel several times: args: {steps: 2}",
        "  timeout: 1h",
    ]
    if TORCH.search(source):
        lines += [
            "",
            "# The operators of torch behind the kernels, with their shapes: one more run.",
            "operators:",
            "  enabled: true",
            "# Once more: what they compute again, what is zero, and what nobody reads.",
            "values:",
            "  enabled: true",
        ]
    return "\n".join(lines) + "\n"


def _stages(source: str) -> list[str]:
    names = list(dict.fromkeys(RANGE.findall(source)))
    if not names:
        return ["# NVTX ranges that are stages of the report; without, the outermost ones.",
                "# stages: [^forward$, ^backward$]", ""]  # fmt: skip
    regexes = [f"^{re.escape(name)}$" for name in names]
    return ["# NVTX ranges of the program; the outermost one counts.",
            f"stages: {_flow(regexes)}", ""]  # fmt: skip


def _flow(values: list[str]) -> str:
    """Return a list as YAML in one line."""
    return yaml.safe_dump(values, default_flow_style=True, allow_unicode=True, width=10_000).strip()
