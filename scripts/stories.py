#!/usr/bin/env python3
"""Writes docs/stories.md: what prof says of public programs, and what its first repair gained.

scripts/stories.py            makes the page from captures/stories, without a GPU
scripts/stories.py --check    fails where the page is not what it would be
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from nsight_prof.parsers.build.load import load_run  # noqa: E402
from nsight_prof.parsers.cells import number  # noqa: E402
from nsight_prof.parsers.run.run import Run  # noqa: E402
from nsight_prof.reports.analysis.profiled import kernel_time  # noqa: E402
from nsight_prof.reports.analysis.run_time import run_time  # noqa: E402
from nsight_prof.reports.findings.model import Finding  # noqa: E402
from nsight_prof.reports.page.formats import NA, escape, seconds, share  # noqa: E402
from nsight_prof.reports.page.writer import Writer  # noqa: E402
from nsight_prof.reports.profile.views import report_view  # noqa: E402
from nsight_prof.reports.summary.plan import make_plan  # noqa: E402
from nsight_prof.reports.verdicts.ranking import findings  # noqa: E402
from tests.recorded import with_tables  # noqa: E402

CAPTURES, PAGE = ROOT / "captures" / "stories", ROOT / "docs" / "stories.md"
FIRST = 3
"""Findings that a story shows."""
HEAD = """<!-- Written by scripts/stories.py from recorded runs; do not edit. -->

# Stories: public programs

Public programs as they are published, then two recipes of prof: what prof says of them, what was
done, and what that gained without a profiler. The runs lie in `captures/stories`; `prof report`
makes their whole reports. [All of them](#predicted-and-measured) in one table."""
FACTORS = (1.3, 1.5)
RECORDED = (
    ("before.txt", "steps/0-untraced/stderr.log"),
    ("steps/1-trace/stdout.log", "steps/1-trace/stderr.log"),
    ("steps/1-trace/lines/stdout.log",),
)
"""Where a program may have printed its time: alone, under nsys, and in the run of launch_lines."""
COSTS = """## What recording costs

The time of a step as the program itself prints it: alone, under nsys in the run that times are
taken from, with samples of Python stacks at 1 kHz (`trace.python_sampling`) where they were asked
for, and in the further run of `trace.launch_lines`, in which each launch of a Python program waits
for its kernel: no time is taken from that one.

| program | alone | samples of stacks | under nsys | in the run of `launch_lines` |
| --- | ---: | --- | ---: | ---: |
"""


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or check it; exit code 1 where it is not up to date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args(arguments)
    listed = yaml.safe_load((CAPTURES / "stories.yaml").read_text(encoding="utf-8"))["stories"]
    told = [_story(story) for story in listed]
    parts = [HEAD, *(story.text for story in told), _summary(told), _costs(listed)]
    text = "\n\n".join(parts) + "\n"
    if not asked.check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text:
        print(f"error: {PAGE} is not up to date\n\nhint: scripts/stories.py", file=sys.stderr)
        return 1
    return 0


@dataclass(frozen=True)
class Told:
    """A story as markdown, with the predicted and the measured gain, as parts of the time.

    `traced` is the gain measured with both programs under nsys, as the predicted one is.
    """

    title: str
    text: str
    predicted: float
    measured: float | None
    traced: float | None


def _story(story: Mapping[str, Any]) -> Told:
    with tempfile.TemporaryDirectory() as folder:
        with_tables(f"stories/{story['name']}", Path(folder) / "run")
        run = load_run(Path(folder) / "run")
        found = [finding for finding in findings(run) if finding.rank is not None]
        gpu = str(run.gpus["name"].iloc[0])
        whole = number(run_time(run).whole_ns) if story.get("of_wall") else kernel_time(run)
        predicted = _planned_ns(run, story["findings"]) / whole
        before, after = (_ms(story, f"{when}.txt") for when in ("before", "after"))
        measured, spread = _gain(before, after), ""
        if "pairs" in story:
            before, after, measured, spread = _pairs(story)
        traced = _gain(*(_ms(story, f"traced-{when}.txt") for when in ("before", "after")))
        parts = (
            f"## {story['title']}",
            f"[{story['title']}]({story['source']}){_version(story)}, on one {gpu}: "
            f"{story['about']}.\n\n```bash\n{story['command']}\n```",
            "What is said first:",
            "\n".join(_said(finding, whole) for finding in found[:FIRST]),
            _gained(story, predicted, before, after, measured, spread),
            *([story["why"]] if "why" in story else []),
        )
        return Told(story["title"], "\n\n".join(parts), predicted, measured, traced)


def _planned_ns(run: Run, rules: Sequence[str]) -> float:
    """Return what the plan's steps save that findings of these rules ask for, none of it twice."""
    view = report_view(run)
    asked = {finding.anchor for finding in view.findings if finding.rule in rules}
    return sum(number(step.saves.value) for step in make_plan(view).steps if step.anchor in asked)


def _pairs(story: Mapping[str, Any]) -> tuple[float, float, float, str]:
    """Return the medians before and after of times that were taken in turns, the median gain of
    the pairs, and between which gains these lie."""
    lines = (CAPTURES / story["name"] / "pairs.jsonl").read_text("utf-8").splitlines()
    times = {row["variant"]: row["ms"] for row in map(json.loads, lines)}
    before, after = (times[variant] for variant in story["pairs"])
    gains = [1 - late / early for early, late in zip(before, after, strict=True)]
    spread = f" ({share(min(gains))} to {share(max(gains))}, {len(gains)} pairs)"
    return *map(statistics.median, (before, after)), statistics.median(gains), spread


def _gain(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else 1 - after / before


def _version(story: Mapping[str, Any]) -> str:
    return f" at commit `{story['commit'][:10]}`" if "commit" in story else ""


def _said(finding: Finding, whole: float) -> str:
    write = Writer()
    action = write.text(finding.action) if finding.action else ""
    return (
        f"{finding.rank}. **{escape(write.text(finding.title))}** "
        f"({share(finding.gain_ns / whole)}). "
        f"{escape(write.text(finding.verdict))} {escape(action)}"
    )


def _gained(
    story: Mapping[str, Any],
    predicted: float,
    before: float | None,
    after: float | None,
    measured: float | None,
    spread: str,
) -> str:
    cells = (
        share(predicted),
        NA if before is None else seconds(before / 1e3),
        NA if after is None else seconds(after / 1e3),
        NA if measured is None else share(measured) + spread,
    )
    missing = (
        "" if after is not None else " What it gains was not measured: no GPU was left for it."
    )
    of_time = "wall time" if story.get("of_wall") else "GPU time"
    return (
        f"Done: {story['done']}.{missing}\n\n"
        f"| predicted gain, of the {of_time} | {story['of']} before | after | measured gain |\n"
        "| ---: | ---: | ---: | ---: |\n"
        f"| {' | '.join(cells)} |"
    )


def _summary(told: Sequence[Told]) -> str:
    """Return the table of predicted and measured gains, and how many are within the factors."""
    known = [
        (story, story.predicted / story.measured)
        for story in told
        if story.measured and story.predicted
    ]
    rows = [
        f"| {story.title} | {share(story.predicted)} | {_beside(story.predicted, story.measured)} "
        f"| {_beside(story.predicted, story.traced)} |"
        for story in told
    ]
    within = " and ".join(
        f"{sum(1 / factor <= ratio <= factor for _, ratio in known)} of {len(known)} within a "
        f"factor of {factor}"
        for factor in FACTORS
    )
    return (
        "## Predicted and measured\n\nThe gain that prof predicts of what was done, beside the "
        f"measured one: {within}. The predicted gain is of the time under nsys, which lengthens "
        "what the host does: at equal conditions it stands beside the gain that was measured with "
        "both programs under nsys.\n\n| program | predicted | measured | ratio | measured under "
        "nsys | ratio |\n| --- | ---: | ---: | ---: | ---: | ---: |\n" + "\n".join(rows)
    )


def _beside(predicted: float, measured: float | None) -> str:
    """Return a measured gain and the ratio to it as cells; no ratio where nothing is predicted."""
    if measured is None:
        return f"{NA} | {NA}"
    return f"{share(measured)} | {f'{predicted / measured:.2f}' if predicted else NA}"


def _costs(listed: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of what the programs say of their own time while they are recorded."""
    rows = []
    for story in listed:
        manifest = json.loads((CAPTURES / story["name"] / "manifest.json").read_text("utf-8"))
        sampled = "yes" if manifest["recipe"]["trace"].get("python_sampling") else "no"
        found = [[_ms(story, name, must=False) for name in names] for names in RECORDED]
        times = [next((ms for ms in each if ms is not None), None) for each in found]
        first, *others = [math.nan if time is None else time for time in times]
        cells = [f"{seconds(time / 1e3)} ({share(time / first - 1)})" if time > 0 else NA
                 for time in others]  # fmt: skip
        if first > 0 and cells != [NA, NA]:
            rows.append(f"| {story['title']} | {seconds(first / 1e3)} | {sampled} "
                        f"| {' | '.join(cells)} |")  # fmt: skip
    return COSTS + "\n".join(rows)


def _ms(story: Mapping[str, Any], name: str, *, must: bool = True) -> float | None:
    """Return the time in ms that the program printed of itself; None where it was not run so."""
    path = CAPTURES / story["name"] / name
    if not path.is_file() or "time" not in story:
        return None
    found = re.search(story["time"], path.read_text(encoding="utf-8"))
    if found is None and not must:  # a target prints its time to stderr
        return None
    if found is None:
        raise SystemExit(f"error: {path} holds no time\n\nhint: {story['time']} is sought")
    weights: Sequence[float] = story.get("weights", [1])
    total = sum(w * float(time) for w, time in zip(weights, found.groups(), strict=True))
    return total * (1e3 if story.get("unit") == "s" else 1)


if __name__ == "__main__":
    sys.exit(main())
