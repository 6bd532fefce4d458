"""Finds nsys and ncu on this machine and asks each once for its version and its options."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nsight_prof.orchestrator.process import ask
from nsight_prof.orchestrator.tools import ncu, nsys, shim
from nsight_prof.parsers.errors import ToolMissing

# Newest first by name: /opt/nvidia/nsight-systems/2025.3.1/bin/nsys.
NSYS_PLACES = ("/opt/nvidia/nsight-systems*/*/bin/nsys", "/usr/local/cuda*/bin/nsys")
NCU_PLACES = (
    "/opt/nvidia/nsight-compute/*/ncu",
    "/usr/local/cuda*/bin/ncu",
    "/usr/local/cuda*/nsight-compute*/ncu",
)


@dataclass(frozen=True)
class Tool:
    """An installed tool: `program` is what to start, `note` says where it was found if unusual."""

    name: str
    program: str
    version: str
    features: frozenset[str]
    note: str = ""


def find_nsys(environment: Mapping[str, str]) -> Tool:
    """Return nsys: from PATH, the usual folders, or Nsight Compute's folder through a shim.

    Raises:
        ToolMissing: there is none, or the only one cannot be made to work.
    """
    inside = [str(bundle.nsys) for bundle in shim.find_bundles(shim.BUNDLES)]
    for program in [*_places("nsys", NSYS_PLACES, environment), *inside]:
        bundle = shim.bundle_of(program)
        note = ""
        if bundle is not None and shim.missing(bundle, environment):
            program = str(shim.build_shim(bundle, environment))
            note = f"in {bundle.root}, used through links in {shim.cache_folder(environment)}"
        tool = _probe("nsys", program, note)
        if tool is not None:
            return tool
    raise ToolMissing(
        "nsys (Nsight Systems) is not on PATH, nor in the usual folders, nor in Nsight Compute's",
        "install it: https://developer.nvidia.com/nsight-systems, or apt-get install "
        "nsight-systems-cli from NVIDIA's repository; a recorded run needs none: --replay RUN",
    )


def find_ncu(environment: Mapping[str, str]) -> Tool:
    """Return ncu from PATH or the usual folders.

    Raises:
        ToolMissing: there is none.
    """
    for program in _places("ncu", NCU_PLACES, environment):
        tool = _probe("ncu", program)
        if tool is not None:
            return tool
    raise ToolMissing(
        "ncu (Nsight Compute) is not on PATH, nor in the usual folders",
        "install the CUDA toolkit or https://developer.nvidia.com/nsight-compute; without it: "
        "--set counters.enabled=false gives the trace only",
    )


def _probe(name: str, program: str, note: str = "") -> Tool | None:
    """Return the tool that answers at `program`, or None where none does."""
    version, options = _answers(name, program, Path(program).stat().st_mtime_ns)
    parser = nsys if name == "nsys" else ncu
    number = parser.parse_version(version)
    return Tool(name, program, number, parser.parse_features(options), note) if number else None


@cache
def _answers(name: str, program: str, _changed_ns: int) -> tuple[str, str]:
    """Ask a tool for its version and its options, once in a process: a sweep asks often."""
    version = ask([program, "--version"])
    commands: list[list[str]] = [["profile"], ["export"]] if name == "nsys" else [[]]
    options = [ask([program, *command, "--help"]) for command in commands]
    told = "\n".join(answer.stdout + answer.stderr for answer in options)
    return version.stdout + version.stderr, told


def _places(name: str, patterns: tuple[str, ...], environment: Mapping[str, str]) -> list[str]:
    on_path = shutil.which(name, path=environment.get("PATH", os.defpath))
    usual = [path for pattern in patterns for path in sorted(glob.glob(pattern), reverse=True)]
    places = ([on_path] if on_path else []) + usual
    return [place for place in dict.fromkeys(places) if Path(place).is_file()]
