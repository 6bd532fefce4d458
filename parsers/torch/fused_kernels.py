"""The lines of a program that torch.compile fused into each kernel: table `fused_lines`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.cells import records, text
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.torch.items import LIBRARIES

FUSED_LINES, FUSED_KERNELS = "fused_lines", "fused_kernels.json"


def read_fused_lines(path: Path, kernels: pd.DataFrame) -> pd.DataFrame:
    """Return table `fused_lines`, from what `targets/under_torch_profiler.py` wrote.

    Of each stack it has the innermost frame of the program's own code, without one the innermost of
    all. `kernels` is the table of that name; kernels of one name have all lines of that name.

    Raises:
        ArtifactUnreadable: the file is not what that program writes.
    """
    try:
        stacks = json.loads(path.read_text(encoding="utf-8"))
        lines = {name: dict.fromkeys(map(_line, found)) for name, found in stacks.items()}
    except (OSError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise ArtifactUnreadable(
            f"{path} does not tell what was fused: {error}", "run the operators step again"
        ) from error
    rows = [
        {
            "kernel_id": kernel["kernel_id"],
            **dict(zip(("file", "line", "function", "source"), line, strict=True)),
        }
        for kernel in records(kernels)
        for line in lines.get(text(kernel["name"]), ())
    ]
    return tables.check(pd.DataFrame(rows), FUSED_LINES) if rows else tables.empty(FUSED_LINES)


def _line(stack: Any) -> tuple[str, int, str, str]:
    of_program = [frame for frame in stack if not LIBRARIES.match(str(frame[0]))]
    file, line, function, source = (of_program or stack)[-1]
    return str(file), int(line), str(function), str(source).strip()
