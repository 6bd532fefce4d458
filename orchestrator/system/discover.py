"""Finds nsys and ncu on this machine and asks each once for its version and its options."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from nsight_prof.orchestrator.system.process import Answer, ask
from nsight_prof.orchestrator.tools import ncu, nsys, shim
from nsight_prof.parsers.errors import ToolMissing

# Newest first by name: /opt/nvidia/nsight-systems/2025.3.1/bin/nsys.
NSYS_PLACES = ("/opt/nvidia/nsight-systems*/*/bin/nsys", "/usr/local/cuda*/bin/nsys")
# ncu 2025.3.1 and nsys 2025.3.1 answer within a second, from a cold network drive within ten.
ANSWER_SECONDS = 20.0
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
    broken: list[str] = []
    inside = [str(bundle.nsys) for bundle in shim.find_bundles(shim.BUNDLES)]
    for program in [*_places("nsys", NSYS_PLACES, environment), *inside]:
        bundle = shim.bundle_of(program)
        note = ""
        if bundle is not None and shim.missing(bundle, environment):
            program = str(shim.build_shim(bundle, environment))
            note = f"in {bundle.root}, used through links in {shim.cache_folder(environment)}"
        tool = _probe("nsys", program, broken, note)
        if tool is not None:
            return tool
    if broken:
        raise _broken("nsys", broken)
    raise ToolMissing(
        "nsys (Nsight Systems) is not on PATH, nor in the usual folders, nor in Nsight Compute's",
        "install it: https://developer.nvidia.com/nsight-systems, or apt-get install "
        "nsight-systems-cli from NVIDIA's repository; a recorded run needs none: --replay RUN",
    )


def find_ncu(environment: Mapping[str, str]) -> Tool:
    """Return ncu from PATH or the usual folders.

    Raises:
        ToolMissing: there is none, or none that answers.
    """
    broken: list[str] = []
    for program in _places("ncu", NCU_PLACES, environment):
        tool = _probe("ncu", program, broken)
        if tool is not None:
            return tool
    if broken:
        raise _broken("ncu", broken)
    raise ToolMissing(
        "ncu (Nsight Compute) is not on PATH, nor in the usual folders",
        "install the CUDA toolkit or https://developer.nvidia.com/nsight-compute; without it: "
        "--set counters.enabled=false gives the trace only",
    )


def _probe(name: str, program: str, broken: list[str], note: str = "") -> Tool | None:
    """Return the tool that answers at `program`; where none does, add to `broken` what happened."""
    version, options = _answers(name, program, Path(program).stat().st_mtime_ns)
    parser = nsys if name == "nsys" else ncu
    number = parser.parse_version(version.stdout + version.stderr)
    features = parser.parse_features(options.stdout + options.stderr)
    if number and features:
        return Tool(name, program, number, features, note)
    question, answer = ("profile --help", options) if number else ("--version", version)
    question = "--help" if number and name == "ncu" else question
    broken.append(f"`{program} {question}` {answer.trouble or f'says nothing that {name} says'}")
    return None


def _broken(name: str, broken: list[str]) -> ToolMissing:
    return ToolMissing(
        f"{name} is here and does not work: {'; '.join(broken)}",
        "start it by hand to see why, install it again, or put one that works first on PATH; a "
        "recorded run needs none: --replay RUN",
    )


@cache
def _answers(name: str, program: str, _changed_ns: int) -> tuple[Answer, Answer]:
    """Ask a tool for its version and its options, once in a process: a sweep asks often.

    One that gives no version is asked no more: each question may cost the whole time.
    """
    version = ask([program, "--version"], timeout_s=ANSWER_SECONDS)
    if version.exit_code is None:
        return version, version
    words: list[list[str]] = [["profile"], ["export"]] if name == "nsys" else [[]]
    asked = [ask([program, *command, "--help"], timeout_s=ANSWER_SECONDS) for command in words]
    output = "\n".join(answer.stdout + answer.stderr for answer in asked)
    return version, replace(asked[0], stdout=output)


def _places(name: str, patterns: tuple[str, ...], environment: Mapping[str, str]) -> list[str]:
    on_path = shutil.which(name, path=environment.get("PATH", os.defpath))
    usual = [path for pattern in patterns for path in sorted(glob.glob(pattern), reverse=True)]
    places = ([on_path] if on_path else []) + usual
    return [candidate for candidate in dict.fromkeys(places) if Path(candidate).is_file()]
