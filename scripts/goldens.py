"""Keeps every number of metrics.json of every recorded run, so that a change of code changes none.

    python scripts/goldens.py --check [NAME …]   render the runs, list the numbers that differ
    python scripts/goldens.py --write NAME …     keep the numbers that are rendered now

NAME is a folder of captures/ (h200-roofline, compare/eager); none: all. Exit code 1 where a number
is missing or differs by more than a relative 1e-9. A number that is new is no fault: keep it with
--write. The files are sorted lines `path number`, compressed: `xzcat tests/goldens/NAME.txt.xz`.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.pages.prof_here import pool, prof  # noqa: E402

if TYPE_CHECKING:
    from nsight_prof.reports.render.gallery import Picture
    from nsight_prof.reports.render.style import Style

CAPTURES, GOLDENS = ROOT / "captures", ROOT / "tests" / "goldens"
IDENTITIES = ("case_id", "kernel_id", "key", "stage", "name")
"""Keys of which the first that differs in all members of a list names a member in its path."""
RELATIVE = 1e-9
SHOWN = 20


def recorded() -> list[str]:
    """Return the names of the recorded runs, relative to captures/.

    Those below captures/prediction are held by docs/accuracy.md.
    """
    found = (path.parent.relative_to(CAPTURES) for path in CAPTURES.rglob("manifest.json"))
    return sorted(path.as_posix() for path in found if path.parts[0] != "prediction")


def numbers(data: Any) -> dict[str, float]:
    """Return the numbers of a JSON document by their paths; members of lists go by identity."""
    return dict(_walk(data, ""))


def _walk(value: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, member in value.items():
            yield from _walk(member, f"{path}/{key}")
    elif isinstance(value, list):
        for name, member in zip(_member_names(value), value, strict=True):
            yield from _walk(member, f"{path}/{name}")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, value


def _member_names(members: list[Any]) -> list[str]:
    for key in IDENTITIES:
        names = [str(m.get(key, "")) for m in members if isinstance(m, dict)]
        if all(names) and len(set(names)) == len(members):
            return names
    return [str(at) for at in range(len(members))]


def golden(name: str) -> Path:
    """Return the file that keeps the numbers of a recorded run."""
    return GOLDENS / f"{name.replace('/', '-')}.txt.xz"


def kept(name: str) -> dict[str, float]:
    """Return the numbers that are kept of a recorded run."""
    lines = lzma.decompress(golden(name).read_bytes()).decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines)
    return {path: float(number) for path, _, number in pairs}


def keep(name: str, found: dict[str, float]) -> None:
    """Keep the numbers of a recorded run with 11 digits, more than are compared."""
    lines = [f"{path} {number:.11g}\n" for path, number in sorted(found.items())]
    data = lzma.compress("".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME)
    GOLDENS.mkdir(exist_ok=True)
    golden(name).write_bytes(data)


def differences(name: str, found: dict[str, float]) -> list[str]:
    """Return a line for each number that is kept of a run and missing or other in `found`."""
    lines = []
    for path, number in kept(name).items():
        now = found.get(path)
        if now is None:
            lines.append(f"{path}: {number:.10g} -> missing")
        elif not math.isclose(number, now, rel_tol=RELATIVE):
            lines.append(f"{path}: {number:.10g} -> {now:.10g}")
    return lines


def rendered(name: str) -> dict[str, float]:
    """Render a copy of a recorded run, of which no picture is drawn; return its numbers."""
    from nsight_prof.reports.render import drawing

    def blank(picture: Picture, style: Style) -> drawing.Drawn:
        return drawing.Drawn(picture.name, {}, dict.fromkeys(style.all_languages, ""))

    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(drawing, "_drawn", blank),
        patch("nsight_prof.parsers.tables.write_csv"),
    ):
        run = shutil.copytree(CAPTURES / name, Path(folder) / "run")
        prof("report", run, "--format", "html")
        return numbers(json.loads((run / "report" / "metrics.json").read_text(encoding="utf-8")))


def _check(name: str, found: dict[str, float]) -> bool:
    if not golden(name).is_file():
        print(f"{name}: no numbers are kept (scripts/goldens.py --write {name})")
        return False
    lines = differences(name, found)
    new = len(found.keys() - kept(name).keys())
    print(f"{name}: {len(lines)} numbers differ, {new} are new, of {len(found)}")
    for line in lines[:SHOWN]:
        print(f"  {line}")
    if len(lines) > SHOWN:
        print(f"  … and {len(lines) - SHOWN} more")
    return not lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Check or keep the numbers of the runs that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", nargs="*", metavar="NAME")
    what.add_argument("--write", nargs="+", metavar="NAME")
    options = parser.parse_args(arguments)
    names = options.check or options.write or recorded()
    if unknown := set(names) - set(recorded()):
        there = ", ".join(recorded())
        parser.error(f"no such recorded run: {', '.join(sorted(unknown))}; there are {there}")
    with pool(2) as processes:
        pairs = zip(names, processes.map(rendered, names), strict=True)
        if options.write:
            for pair in pairs:
                keep(*pair)
            return 0
        return 0 if all([_check(*pair) for pair in pairs]) else 1


if __name__ == "__main__":
    sys.exit(main())
