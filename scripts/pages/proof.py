"""Holds the findings to programs whose defect is known: is it named, gone when repaired, priced?

Each program has a repaired twin that does the same work (targets/defects). A stage of the run is
one of the two; findings are made of each stage alone, as though it were a program of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nsight_prof.parsers.cells import number
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.run.directory import plain_file
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.analysis.stages import wall_time
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.verdicts.ranking import OVERVIEW, findings
from scripts.pages.stage_run import StageRun, stage_runs

FACTOR = 1.5
"""An estimate is right where it is within this factor of what was measured, up or down."""
SIDES = ("defect", "twin")
STEPS = ("untraced", "trace")
"""Steps whose program timed itself, the better clock first: a profiler lengthens launches."""
PROFILED = (*STEPS, "counters")
"""All steps that run the programs: a verdict on a pair needs it in each of them."""
CLOCKS = {"kernel": "gpu_s", "wall": "wall_s"}


@dataclass(frozen=True)
class Planted:
    """A defect that is known, as the program that has it says.

    `defect` and `twin` are sentences of what the two do, `expects` keys of findings, any of which
    names it, `measure` "kernel" (the time of the kernels counts) or "wall" (that of the program),
    `seconds` the time of one run of each side by its own clock.
    """

    name: str
    title: str
    defect: str
    twin: str
    expects: tuple[str, ...]
    measure: str
    seconds: dict[str, float]

    @property
    def gain(self) -> float:
        """Part of the time that the repair saved, as measured."""
        return 1 - self.seconds["twin"] / self.seconds["defect"]

    def named_by(self, finding: Finding) -> bool:
        """Tell whether a finding names this defect."""
        return bool({finding.rule, finding.key} & set(self.expects))


@dataclass(frozen=True)
class Verdict:
    """What the findings made of a defect: `found` in its own stage, `left` in the twin's.

    Both lists are ranked, without those about the whole program. `estimate` is the part of the
    stage's time that the findings of the planted cause would save; NaN where there is none.
    """

    planted: Planted
    found: tuple[Finding, ...]
    left: tuple[Finding, ...]
    estimate: float

    @property
    def top(self) -> Finding | None:
        """The first finding of the defect's stage."""
        return self.found[0] if self.found else None

    @property
    def named(self) -> bool:
        """Whether the planted cause is the first finding."""
        return self.top is not None and self.planted.named_by(self.top)

    @property
    def gone(self) -> bool:
        """Whether no finding of the twin names the planted cause."""
        return not any(self.planted.named_by(finding) for finding in self.left)

    @property
    def ratio(self) -> float:
        """Estimated over measured gain; NaN where either is unknown or nothing was gained."""
        return self.estimate / self.planted.gain if self.planted.gain > 0 else math.nan

    @property
    def priced(self) -> bool:
        """Whether the estimate is within FACTOR of what was measured."""
        return 1 / FACTOR <= self.ratio <= FACTOR


@dataclass(frozen=True)
class Score:
    """How many of `programs` defects are named, gone in the twin, and rightly priced."""

    programs: int
    named: int
    gone: int
    priced: int


def score(judged: Sequence[Verdict]) -> Score:
    """Count the verdicts."""
    return Score(
        programs=len(judged),
        named=sum(one.named for one in judged),
        gone=sum(one.gone for one in judged),
        priced=sum(one.priced for one in judged),
    )


def planted(run: Run) -> tuple[list[Planted], str]:
    """Return the defects that a run of targets/defects planted, and the step that timed them.

    Pairs that `left_out` names are not among them.

    Raises:
        ArtifactUnreadable: the run is not one of these, or its output was lost.
    """
    outputs = _outputs(run)
    step = _first(run, outputs)
    missing = _missing(outputs)
    return [_planted(row) for row in outputs[step]["pairs"] if row["name"] not in missing], step


def left_out(run: Run) -> dict[str, str]:
    """Return why a pair is not judged, by its name: its programs failed, or did not agree.

    One step is enough: what failed under a profiler alone has times, but no trace or no counters.
    The reason then names the step.

    Raises:
        ArtifactUnreadable: as `planted`.
    """
    outputs = _outputs(run)
    _first(run, outputs)
    return _missing(outputs)


def _outputs(run: Run) -> dict[str, dict[str, Any]]:
    """Return what targets/defects/run.py printed, by step."""
    found = {}
    for step in PROFILED:
        path = run.directory.artifact(step, "stdout.log")
        if path is None:
            continue
        with plain_file(path) as plain:
            lines = plain.read_text(encoding="utf-8", errors="replace").splitlines()
        for line in lines:
            if (record := _record(line)) is not None:
                found[step] = record
                break
    return found


def _first(run: Run, outputs: dict[str, dict[str, Any]]) -> str:
    for step in STEPS:
        if step in outputs:
            return step
    raise ArtifactUnreadable(
        f"{run.path} holds no output of targets/defects/run.py",
        "record it: prof run recipes/planted-defects.yaml",
    )


def _missing(outputs: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the reason of each pair that is not in all of the outputs."""
    ran = {step: {str(row["name"]) for row in found["pairs"]} for step, found in outputs.items()}
    failed = {
        step: {str(row["name"]): str(row["reason"]) for row in found.get("failed", [])}
        for step, found in outputs.items()
    }
    known = dict.fromkeys(name for names in (*ran.values(), *failed.values()) for name in names)
    reasons = {}
    for name in known:
        without = [step for step in outputs if name not in ran[step]]
        if not without:
            continue
        reason = failed[without[0]].get(name, "the program's output does not have it")
        everywhere = len(without) == len(outputs)
        reasons[name] = reason if everywhere else f"in step {' and '.join(without)}: {reason}"
    return reasons


def verdicts(run: Run, step: int = 1) -> list[Verdict]:
    """Return a verdict on each planted defect, or each `step`-th, in the order in which they ran.

    Raises:
        ArtifactUnreadable: the run has no planted defects, or its trace cannot be read.
    """
    known = planted(run)[0][::step]
    names = [f"{side}/{one.name}" for one in known for side in SIDES]
    stages = dict(_judged(stage_runs(run, names)))
    return [
        Verdict(
            one,
            found=stages[f"defect/{one.name}"].findings,
            left=stages[f"twin/{one.name}"].findings,
            estimate=_estimate(one, stages[f"defect/{one.name}"]),
        )
        for one in known
    ]


@dataclass(frozen=True)
class _Stage:
    """Findings of a stage, ranked, and its time in ns by each measure."""

    findings: tuple[Finding, ...]
    time_ns: dict[str, float]


def _judged(stages: Iterable[tuple[str, StageRun]]) -> Iterator[tuple[str, _Stage]]:
    for name, stage in stages:
        ranked = tuple(one for one in findings(stage) if one.key not in OVERVIEW)
        yield name, _Stage(ranked, {"kernel": kernel_time(stage), "wall": wall_time(stage)[0]})


def _estimate(one: Planted, stage: _Stage) -> float:
    """Return the part of the time that all findings of the planted cause would save."""
    gains = [number(finding.gain_ns) for finding in stage.findings if one.named_by(finding)]
    known = [gain for gain in gains if not math.isnan(gain)]
    return min(1.0, sum(known) / stage.time_ns[one.measure]) if known else math.nan


def _record(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("target") == "defects" else None


def _planted(row: dict[str, Any]) -> Planted:
    clock = CLOCKS[row["measure"]]
    return Planted(
        **{key: str(row[key]) for key in ("name", "title", "defect", "twin", "measure")},
        expects=tuple(row["expects"]),
        seconds={side: float(row["times"][side][clock]) for side in SIDES},
    )
