#!/usr/bin/env python3
"""Writes docs/stories.md: what prof says of public programs, and what its first repair gained.

scripts/stories.py            makes the page from captures/stories, without a GPU
scripts/stories.py --check    fails where the page is not what it would be
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nsight_prof.parsers.run.run import Run  # noqa: E402
from nsight_prof.reports.analysis.profiled import kernel_time  # noqa: E402
from nsight_prof.reports.findings.model import Finding  # noqa: E402
from nsight_prof.reports.page.formats import NA, escape, seconds, share  # noqa: E402
from nsight_prof.reports.page.writer import Writer  # noqa: E402
from nsight_prof.reports.verdicts.ranking import findings  # noqa: E402
from tests.recorded import with_tables  # noqa: E402

CAPTURES, PAGE = ROOT / "captures" / "stories", ROOT / "docs" / "stories.md"
FIRST = 3
"""Findings that a story shows."""
HEAD = """<!-- Written by scripts/stories.py from recorded runs; do not edit. -->

# Stories: public programs

Programs that nobody of this project wrote, as they are published: what prof says of them, what was
done, and what that gained without a profiler. The runs lie in `captures/stories`; `prof report`
makes their whole reports. Gains that are predicted are parts of the GPU time."""


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or check it; exit code 1 where it is not up to date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args(arguments)
    listed = yaml.safe_load((CAPTURES / "stories.yaml").read_text(encoding="utf-8"))["stories"]
    text = "\n\n".join([HEAD, *(part for story in listed for part in _story(story))]) + "\n"
    if not asked.check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
        print(f"error: {PAGE} is not up to date\n\nhint: scripts/stories.py", file=sys.stderr)
        return 1
    return 0


def _story(story: Mapping[str, Any]) -> Iterator[str]:
    name = story["name"]
    with tempfile.TemporaryDirectory() as folder:
        run = with_tables(f"stories/{name}", Path(folder) / "run")
        told = [finding for finding in findings(run) if finding.rank is not None]
        gpu = str(run.gpus["name"].iloc[0])
        yield f"## {story['title']}"
        yield (
            f"[{story['title']}]({story['source']}) at commit `{story['commit'][:10]}`, on one "
            f"{gpu}: {story['about']}.\n\n```bash\n{story['command']}\n```"
        )
        yield "What is said first:"
        yield "\n".join(_said(run, finding) for finding in told[:FIRST])
        yield _gained(story, run, told)


def _said(run: Run, finding: Finding) -> str:
    write = Writer()
    action = write.text(finding.action) if finding.action else ""
    return (
        f"{finding.rank}. **{escape(write.text(finding.title))}** ({_part(run, [finding])}). "
        f"{escape(write.text(finding.verdict))} {escape(action)}"
    )


def _part(run: Run, found: list[Finding]) -> str:
    return share(sum(finding.gain_ns for finding in found) / kernel_time(run))


def _gained(story: Mapping[str, Any], run: Run, told: list[Finding]) -> str:
    about = [finding for finding in told if finding.rule in story["findings"]]
    times = {when: _ms(story, when) for when in ("before", "after")}
    before, after = times["before"], times["after"]
    cells = (
        _part(run, about),
        NA if before is None else seconds(before / 1e3),
        NA if after is None else seconds(after / 1e3),
        NA if before is None or after is None else share(1 - after / before),
    )
    missing = (
        "" if after is not None else " What it gains was not measured: no GPU was left for it."
    )
    return (
        f"Done: {story['done']}.{missing}\n\n"
        f"| predicted gain | {story['of']} before | after | measured gain |\n"
        "| ---: | ---: | ---: | ---: |\n"
        f"| {' | '.join(cells)} |"
    )


def _ms(story: Mapping[str, Any], when: str) -> float | None:
    """Return the time that the program printed of itself; None where it was not run so."""
    path = CAPTURES / story["name"] / f"{when}.txt"
    if not path.is_file():
        return None
    found = re.search(story["time"], path.read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit(f"error: {path} holds no time\n\nhint: {story['time']} is sought")
    return float(found[1])


if __name__ == "__main__":
    sys.exit(main())
