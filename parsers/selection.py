"""The selection: which kernels the counters step profiles, and which launch of each."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.whole_file import write_atomic

FORMAT_VERSION = 1


@dataclass
class SelectedKernel:
    """One kernel to profile.

    `launch` is the 0-based launch nearest the median duration, or, where its launches do different
    work, nearest the length that most of its time goes to.
    """

    kernel_id: str
    short_name: str
    name: str
    mangled_name: str
    grid: str
    block: str
    share: float
    launch: int
    dtype: str = ""


@dataclass
class Selection:
    """Kernels for one ncu run.

    ncu counts launches of each kernel apart (`--filter-mode per-launch-config`), with one skip and
    one count for all: `skip` and `count` are the window that holds a representative launch of each.
    `left_out` rows are {short_name, kernels, share, reason}.
    """

    kernels: list[SelectedKernel] = field(default_factory=list)
    skip: int = 0
    count: int = 1
    share: float | None = None
    left_out: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    format_version: int = FORMAT_VERSION


def write_selection(path: Path, selection: Selection) -> None:
    """Write a selection as YAML."""
    text = yaml.safe_dump(asdict(selection), sort_keys=False, allow_unicode=True, width=100)
    write_atomic(path, text)


def read_selection(path: Path) -> Selection:
    """Read a selection written by `write_selection` or by hand.

    Raises:
        ArtifactUnreadable: not a selection file.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        kernels = [SelectedKernel(**item) for item in data.pop("kernels")]
        return Selection(kernels=kernels, **data)
    except (OSError, yaml.YAMLError, TypeError, KeyError, AttributeError) as error:
        raise ArtifactUnreadable(
            f"{path} is not a kernel selection: {error}",
            "make one with: prof top-kernels TRACE -k 20 -o top-kernels.yaml",
        ) from error
