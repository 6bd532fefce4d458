"""Turns a saved ncu output (CSV or text, any encoding, .xz too) into text, or says what it is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from nsight_prof.parsers.errors import ArtifactUnreadable, NoKernels, PermissionRefused
from nsight_prof.parsers.run.directory import plain_file
from nsight_prof.parsers.text import decode

_LFS = b"version https://git-lfs"
_EXPORT = "ncu --import FILE.ncu-rep --csv --page raw > FILE.csv"
# What tells an output of ncu beside characters of another code page.
_MARKS = ('"ID"', "==PROF==", "Metric Name")
_BANNER = re.compile(r"==(PROF|WARNING|ERROR)== (.*)")
# ==PROF== Profiling "kernel" - 3: 0%....50%....100% - 10 passes
_PROFILED = re.compile(r'Profiling "(?P<name>.*)" - (?P<id>\d+).*- (?P<passes>\d+) pass')


@dataclass
class Banner:
    """What ncu said beside the data: errors, warnings, passes by result id."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    passes: dict[int, int] = field(default_factory=dict)


def read_text(path: Path) -> str:
    """Return the text of a saved ncu output with `\\n` line ends and no byte order mark.

    Raises:
        ArtifactUnreadable: missing, a git LFS pointer, an .ncu-rep, or no text at all.
        NoKernels: empty.
    """
    try:
        with plain_file(path) as unpacked:
            data = unpacked.read_bytes()
    except OSError as error:
        raise ArtifactUnreadable(f"{path}: {error.strerror}", "check the path") from error
    if not data.strip():
        raise NoKernels(
            f"{path} is empty: ncu found no kernel that matched",
            "an import whose filter matches nothing exits 0 and prints nothing (ncu 2024.1.1); "
            "leave the kernel filter out, or look into ncu's own output for the reason",
        )
    if data.startswith(_LFS):
        raise ArtifactUnreadable(
            f"{path} is a git LFS pointer, not the file itself", "fetch the content: git lfs pull"
        )
    if data.startswith(b"NVR\0"):
        raise ArtifactUnreadable(f"{path} is an .ncu-rep under another name", "rename it")
    return _decode(data, path).replace("\r\n", "\n").replace("\r", "\n")


def _decode(data: bytes, path: Path) -> str:
    text = decode(data)
    if text is None or not ("�" not in text or any(mark in text for mark in _MARKS)):
        raise ArtifactUnreadable(f"{path} is binary, not a text output of ncu", _hint())
    return text


def _hint() -> str:
    return f"name an .ncu-rep, or export one: {_EXPORT}"


def read_banner(text: str) -> Banner:
    """Return what the `==PROF==`, `==WARNING==` and `==ERROR==` lines say."""
    banner = Banner()
    for match in _BANNER.finditer(text):
        kind, sentence = match.groups()
        if kind == "ERROR":
            banner.errors.append(sentence.strip())
        elif kind == "WARNING":
            banner.warnings.append(sentence.strip())
        elif profiled := _PROFILED.search(sentence):
            banner.passes[int(profiled["id"])] = int(profiled["passes"])
    return banner


def no_data(path: Path, banner: Banner) -> ArtifactUnreadable | PermissionRefused:
    """Return the error for an output of ncu that holds no result."""
    messages = "; ".join(banner.errors + banner.warnings)
    if "ERR_NVGPUCTRPERM" in messages:
        return PermissionRefused(
            f"{path}: ncu was refused access to the GPU performance counters (ERR_NVGPUCTRPERM)",
            "run as root, or let all users profile: NVreg_RestrictProfilingToAdminUsers=0 for the "
            "nvidia module, https://developer.nvidia.com/ERR_NVGPUCTRPERM",
        )
    if banner.errors:
        return ArtifactUnreadable(
            f"{path}: ncu failed: {messages}", "remove the cause, profile again"
        )
    if banner.passes:
        return ArtifactUnreadable(
            f"{path} is the log of a run that profiled {len(banner.passes)} kernels, without them",
            "name the .ncu-rep of that run, or its CSV",
        )
    if banner.warnings:
        return NoKernels(
            f"{path}: ncu profiled no kernel: {messages}",
            "check the kernel filter, and that the program launches kernels on this GPU",
        )
    return ArtifactUnreadable(
        f"{path} holds neither a CSV page nor a table of ncu",
        f"name an .ncu-rep, or export one: {_EXPORT}",
    )
