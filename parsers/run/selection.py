"""The selection: which kernels the counters step profiles, and which launch of each."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import ConfigDict, Field, TypeAdapter

from nsight_prof.parsers import safe_yaml
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.reading import reason
from nsight_prof.parsers.run.sentences import Sentence, stored
from nsight_prof.parsers.whole_file import write_atomic

FORMAT_VERSION = 2
TYPICAL_WITHIN = 0.05
"""Relative difference up to which a launch is as long as a typical one of its kernel."""


@dataclass
class SelectedKernel:
    """One kernel to profile.

    `launch` is the 0-based launch nearest the median duration, or, where its launches do different
    work, nearest the length that most of its time goes to. `deviation` is its duration over that
    length, minus 1; None where it is not known. `deciles_ns` are the first and ninth decile of the
    durations where the launches do different work. `traced`: the trace has launches of the kernel,
    or has no single launches.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    kernel_id: str
    short_name: str
    name: str
    mangled_name: str
    grid: str
    block: str
    share: float
    launch: Annotated[int, Field(ge=0)]
    dtype: str = ""
    deviation: float | None = None
    deciles_ns: tuple[float, float] | None = None
    traced: bool = True

    @property
    def is_mixed(self) -> bool:
        """Whether its launches do different work, so that one does not stand for all."""
        return self.deciles_ns is not None

    @property
    def is_untypical(self) -> bool:
        """Whether the profiled launch takes another time than a typical one."""
        return self.deviation is not None and abs(self.deviation) > TYPICAL_WITHIN

    def warnings(self) -> list[str]:
        """Say where the profiled launch does not stand for the kernel."""
        name, found = f"{self.short_name} ({self.kernel_id})", []
        if not self.traced:
            found.append(stored("{name}: the trace has no launch of it", name=name))
        if self.is_untypical and self.deviation is not None:
            typical = stored("most of its time") if self.is_mixed else stored("its median")
            by = abs(self.deviation)
            than = stored("{by:.0%} longer than {typical}", by=by, typical=typical)
            if self.deviation < 0:
                than = stored("{by:.0%} shorter than {typical}", by=by, typical=typical)
            found.append(
                stored(
                    "{name}: profiled at launch {launch}, {than}",
                    name=name,
                    launch=self.launch,
                    than=than,
                )
            )
        if self.deciles_ns is not None:
            low, high = (ns / 1e3 for ns in self.deciles_ns)
            found.append(
                stored(
                    "{name}: its launches take {low:.0f} to {high:.0f} us (first to ninth "
                    "decile), so the one that is profiled does not stand for all",
                    name=name,
                    low=low,
                    high=high,
                )
            )
        return found

    @property
    def only_demangled(self) -> bool:
        """Whether the mangled name, by which ncu is asked, is not known."""
        return only_demangled(self.name, self.mangled_name)


@dataclass
class Selection:
    """Kernels for one ncu run.

    ncu counts launches of each kernel apart (`--filter-mode per-launch-config`), with one skip and
    one count for all: `skip` and `count` are the window that holds a representative launch of each.
    `left_out` rows are {short_name, kernels, share, reason}, and `notes` are about the selection as
    a whole.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    kernels: list[SelectedKernel] = field(default_factory=list)
    skip: Annotated[int, Field(ge=0)] = 0
    count: Annotated[int, Field(ge=1)] = 1
    share: float | None = None
    left_out: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    format_version: int = FORMAT_VERSION

    def warnings(self) -> list[str]:
        """Return the notes, and where a profiled launch does not stand for its kernel."""
        return [*self.notes, *(words for kernel in self.kernels for words in kernel.warnings())]


def only_demangled(name: str, mangled_name: str) -> bool:
    """Return whether a mangled name only repeats the demangled one, as of a kernel summary."""
    return mangled_name == name and not re.fullmatch(r"[\w$.]+", name)


class _Dumper(yaml.SafeDumper):
    """Writes sentences as their words."""


_Dumper.add_representer(Sentence, yaml.SafeDumper.represent_str)


def write_selection(path: Path, selection: Selection) -> None:
    """Write a selection as YAML."""
    text = yaml.dump(
        asdict(selection), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100
    )
    write_atomic(path, text)


def read_selection(path: Path) -> Selection:
    """Read a selection written by `write_selection` or by hand.

    Raises:
        ArtifactUnreadable: not a selection file.
    """
    try:
        _, data = safe_yaml.read(path)
        if not isinstance(data, dict) or "kernels" not in data:
            raise ValueError("it has no key kernels")
        selection = _selections().validate_python(data)
        return selection if selection.format_version > 1 else _upgraded(selection)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ArtifactUnreadable(
            f"{path} is not a kernel selection: {reason(error)}",
            "make one with: prof top-kernels TRACE -k 20 -o top-kernels.yaml",
        ) from error


@cache
def _selections() -> TypeAdapter[Selection]:
    return TypeAdapter(Selection)


_NOTE_OF_KERNEL = re.compile(
    r".* \((?P<kernel>k[0-9a-f]+)\): (?:"
    r"profiled at launch \d+, (?P<part>\d+)% (?P<how>longer|shorter) than .*"
    r"|its launches take (?P<low>\d+) to (?P<high>\d+) us .*"
    r"|(?P<untraced>the trace has no launch of it))"
)
"""What files of version 1 have among their notes instead of in their kernels."""


def _upgraded(selection: Selection) -> Selection:
    """Return a selection of version 1 with its notes about kernels in their fields."""
    kernels = {kernel.kernel_id: kernel for kernel in selection.kernels}
    notes = []
    for note in selection.notes:
        found = _NOTE_OF_KERNEL.fullmatch(note)
        if found is None or found["kernel"] not in kernels:
            notes.append(note)
            continue
        kernel = kernels[found["kernel"]]
        if found["untraced"]:
            kernel = replace(kernel, traced=False)
        elif found["low"]:
            kernel = replace(
                kernel, deciles_ns=(1e3 * float(found["low"]), 1e3 * float(found["high"]))
            )
        else:
            sign = 1 if found["how"] == "longer" else -1
            kernel = replace(kernel, deviation=sign * float(found["part"]) / 100)
        kernels[kernel.kernel_id] = kernel
    return replace(selection, kernels=list(kernels.values()), notes=notes)
