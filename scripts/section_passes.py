"""Tells, with no GPU, what the sections of ncu's rules cost on a chip, in hardware passes.

    python scripts/section_passes.py GH100 /opt/nvidia/nsight-compute/2025.3.1/sections [DTYPE ...]

The folder is that of the .section files; for each section that counters.rules collects it prints
the passes of its own metrics, and those together with all of prof's metric sets. Metrics that ncu
makes itself, samples of the warps and counts of single instructions are no CUPTI metrics: they are
left out, and ncu needs some passes more for them. CUPTI's planner: scripts/metric_planner.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nsight_prof.orchestrator.tools.ncu import RULE_SECTIONS  # noqa: E402
from nsight_prof.parsers.metrics.catalogue import catalogue  # noqa: E402
from scripts.metric_planner import NCU_ONLY, LibraryMissing, Planner  # noqa: E402

_TOKEN = re.compile(r'#[^\n]*|"(?P<text>(?:[^"\\]|\\.)*)"|(?P<word>[{}]|[\w.+-]+)')
# A message of the section's text format: names with their values, in order.
Message = list[tuple[str, Any]]
NOT_PLANNED = ("breakdown:", "group:", "pmsampling:", *NCU_ONLY)


def parse(text: str) -> Message:
    """Return a .section file (protobuf text format) as nested lists of (name, value)."""
    found = (m["text"] if m["text"] is not None else m["word"] for m in _TOKEN.finditer(text))
    return list(_fields(iter([token for token in found if token is not None])))


def _fields(tokens: Iterator[str]) -> Iterator[tuple[str, Any]]:
    for name in tokens:
        if name == "}":
            return
        value = next(tokens)
        yield name, list(_fields(tokens)) if value == "{" else value


def metrics(section: Message, capability: int) -> list[str]:
    """Return the metrics of a section for a compute capability (90 is 9.0), each once."""
    return list(dict.fromkeys(_walk(section, capability)))


def _walk(message: Message, capability: int) -> Iterator[str]:
    for name, value in message:
        if not isinstance(value, list) or name == "Filter":
            continue
        if name == "SuffixTable":
            yield from _suffixed(value, capability)
        elif name == "Metrics" and any(key == "Name" for key, _ in value):
            yield from _chosen(value, capability)
        else:
            yield from _walk(value, capability)


def _chosen(metric: Message, capability: int) -> list[str]:
    """Return the name that a metric has on the chip: that of the last option that fits."""
    options = [metric, *(value for key, value in metric if key == "Options")]
    fitting = [_name(option) for option in options if _fits(option, capability)]
    return fitting[-1:]


def _suffixed(table: Message, capability: int) -> Iterator[str]:
    suffixes = [_name(v) for key, group in table if key == "Suffixes" for _, v in group]
    names = [v for key, group in table if key == "BaseNames" for _, v in group]
    for base in (_name(v) for v in names if _fits(v, capability)):
        yield from (f"{base}{suffix}" for suffix in suffixes)


def _name(message: Message) -> str:
    return next(str(value) for key, value in message if key == "Name")


def _fits(message: Message, capability: int) -> bool:
    return all(_allows(value, capability) for key, value in message if key == "Filter")


def _allows(bounds: Message, capability: int) -> bool:
    def number(key: str, default: int) -> int:
        named = [value for name, value in bounds if name == key]
        return int(named[0].removeprefix("CC_")) if named else default

    items = [value for name, value in bounds if name == "Items"]
    inside = number("MinArch", 0) <= capability <= number("MaxArch", capability)
    return inside and (not items or any(_allows(item, capability) for item in items))


def planned(planner: Planner, chip: str, names: Sequence[str]) -> list[str]:
    """Return those of `names` that CUPTI can collect on the chip."""
    known = planner.metrics(chip)
    named = [n for n in names if n.split(".")[0] in known and not n.startswith(NOT_PLANNED)]
    return [name for name in named if _can_plan(planner, chip, name)]


def _can_plan(planner: Planner, chip: str, name: str) -> bool:
    try:
        planner.passes(chip, [name])
    except ValueError:
        return False
    return True


def main(arguments: Sequence[str]) -> int:
    """Print the passes; exit code 2 for wrong arguments, 3 without CUPTI."""
    if len(arguments) < 2:
        print(__doc__)
        return 2
    chip, folder, *dtypes = arguments
    try:
        planner = Planner()
    except (LibraryMissing, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    sections = [parse(path.read_text("utf-8")) for path in sorted(Path(folder).glob("*.section"))]
    ours = planned(planner, chip, catalogue().tool_metrics(list(catalogue().sets), chip, dtypes))
    capability = CAPABILITIES[chip]
    every = list(ours)
    print(f"{'prof':32}{planner.passes(chip, ours):4}")
    for section in sections:
        identifier = next(str(value) for key, value in section if key == "Identifier")
        if identifier in RULE_SECTIONS:
            names = planned(planner, chip, metrics(section, capability))
            every += names
            together = planner.passes(chip, [*ours, *names])
            print(f"{identifier:32}{planner.passes(chip, names):4}{together:4} with prof's")
    print(f"{'all together':32}{planner.passes(chip, list(dict.fromkeys(every))):4}")
    return 0


CAPABILITIES = {"GV100": 70, "TU102": 75, "GA100": 80, "GA102": 86, "AD102": 89, "GH100": 90,
                "GB100": 100, "GB110": 103, "GB202": 120}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
