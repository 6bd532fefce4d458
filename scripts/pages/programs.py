"""Scores what prof said of the whole programs of tests/proof_programs, for docs/proof.md."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.packaged import LOADER
from nsight_prof.reports.page.formats import NA, escape, seconds, share, significant
from scripts.run_programs import (
    EIGHTEENTH,
    EIGHTH,
    FIFTEENTH,
    FOURTEENTH,
    FRESH,
    NINETEENTH,
    NINTH,
    OWN,
    PROGRAMS,
    SEVENTEENTH,
    SEVENTH,
    SIXTEENTH,
    THIRTEENTH,
    TWELFTH,
    TWENTIETH,
    listed_actions,
    source,
)  # fmt: skip

LOOKS = {
    "first_look.json": "Whole programs: first look",
    "second_look.json": "Whole programs: second look, in sample",
    "third_look.json": "Whole programs: third look, in sample, on another GPU",
    "fresh_look.json": "Whole programs, second set: first look",
    "third_set_look.json": "Whole programs, third set: first look",
    "fourth_set_look.json": "Whole programs, fourth set: first look",
    "fifth_set_look.json": "Whole programs, fifth set: first look",
    "sixth_set_look.json": "Whole programs, sixth set: first look",
    "seventh_set_look.json": "Whole programs, seventh set: first look",
    "eighth_set_look.json": "Whole programs, eighth set: first look",
    "ninth_set_look.json": "Whole programs, ninth set: first look",
    "tenth_set_look.json": "Whole programs, tenth set: first look",
    "eleventh_set_look.json": "Whole programs, eleventh set: first look",
    "twelfth_set_look.json": "Whole programs, twelfth set: first look",
    "thirteenth_set_look.json": "Whole programs, thirteenth set: first look",
    "fourteenth_set_look.json": "Whole programs, fourteenth set: first look",
    "fifteenth_set_look.json": "Whole programs, fifteenth set: first look",
    "sixteenth_set_look.json": "Whole programs, sixteenth set: first look",
    "seventeenth_set_look.json": "Whole programs, seventeenth set: first look",
    "eighteenth_set_look.json": "Whole programs, eighteenth set: first look",
    "nineteenth_set_look.json": "Whole programs, nineteenth set: first look",
    "twentieth_set_look.json": "Whole programs, twentieth set: first look",
    "public_look.json": "Kernels of llm.c: first look",
}
"""Recorded looks in the folder of the programs, and the headings of their sections."""
REMARKS = {
    SEVENTH: " They are those that were done when the GPU time ended: all have their cause on the "
    "host, so that the score says nothing of kernels, and no twin was profiled.",
    EIGHTH: " `adam_by_hand` and `option_paths` were judged by the rules of `a58ccfbcb8`, an hour "
    "older: their counters did not come back from the machine. Twins were profiled of nine.",
    NINTH: " `news_readers` and `cloth_springs` were judged by the rules of `a58ccfbcb8`, an hour "
    "older: their counters did not come back from the machine. Reports of `tide_gauges`, "
    "`beat_tracking` and `city_demand` were read before: one had shown a crash, and with its mend "
    "waits are priced by the trace alone again. A twin was profiled of one.",
    TWELFTH: " Counters of twelve slow programs were cut off after four minutes and taken again "
    "on the same machine. Of 30 programs two were dropped before, whose fix saved 6 %.",
    THIRTEENTH: " Six programs, whose counters were refused or cut off, were run again on another "
    "machine; those of `sea_ice` did not end in 120 s. Of 30 programs four were dropped before: "
    "one fix made its program slower, one saved nothing and one a tenth, and one program met an "
    "error of cuSOLVER.",
    FOURTEENTH: " Each cause is one that somebody met in public code and changed: an issue or a "
    "pull request stands above each program. Counters of `triton_tide_norms` failed. Of 30 "
    "programs four were dropped before: two fixes were slower on this GPU, and two programs had "
    "not ended after 120 s.",
    FIFTEENTH: " Causes are from issues and pull requests of public code. Six slow programs, which "
    "had not ended in 120 s while sixteen ran side by side, were run again on the same machine. "
    "Of 26 programs one was dropped before: it did not end in 150 s under prof. Twins were "
    "profiled of 22.",
    SIXTEENTH: " Causes are from issues and pull requests of public code. Programs were profiled "
    "before the rules were frozen, and none of their reports was opened before; these were made "
    "anew by the frozen rules. Counters of `argon_droplets` failed. Twins of 23 were profiled on "
    "another machine and judged by the same rules.",
    SEVENTEENTH: " Causes are from issues and pull requests of public code. Programs were profiled "
    "before the rules were frozen, and none of their reports was opened before; these were made "
    "anew by the frozen rules. Ten ran side by side on two GPUs, and some were cut off: there are "
    "no counters of `gravity_waves`, `opera_librettos`, `proverb_experts`, `triton_river_barges`, "
    "nor values of operators of `cactus_blooms`, `joke_tellers`, `parcel_notes`, `riddle_texts`, "
    "`spice_purchases`, `gravity_waves`, `opera_librettos` and `proverb_experts`. Twins of 20 "
    "were profiled a day later and judged by the same rules, with a crash of theirs mended (an "
    "operator whose inputs nobody compared).",
    EIGHTEENTH: " Causes are from issues and pull requests of public code. Programs were profiled "
    "before the rules were frozen, and none of their reports was opened before; these were made "
    "anew by the frozen rules. The GPU is another one than that of the sets before. "
    "Of 28 programs two were dropped, whose recordings did not come back whole from the machine. "
    "Twins were profiled of ten.",
    NINETEENTH: " Causes are from issues and pull requests of public code, read in excerpts. The "
    "rules were committed before any program ran. New: where a defect is spread over statements, "
    "its author listed two or three lines before it ran, any of which is right to name (27 of 28 "
    "programs); sets before have one. Twins were profiled of 21.",
    TWENTIETH: " Causes are from issues of public code, lines as in the nineteenth set. Of seven "
    "programs the machine's time ended before counters were done (five) or the trace was (two); of "
    "five more the step that reads values of operators is missing. No twin was profiled.",
}
"""What a reader of a set's scores must know of how its programs were chosen."""
PUBLIC = "public.yaml"
"""Programs that nobody here wrote."""
UNSURE = 0.15
"""Difference of the gains in one process and in two from which the measured gain is unsure."""
FAULT = 0.05
"""Part of its time below which a repair saved nothing worth a finding: the program is at fault."""
LARGE = 0.1
"""Gain from which a finding of a repaired program counts as a false one."""
MEASURED_BY = {"launch_bound": "graph", "slow_backend": "tf32", "tensor_idle": "tf32"}
"""Choices of `scripts/run_programs.py` that measure what findings promise."""
BORNE_OUT = 1.5
"""Factor by which a finding may promise more than was measured."""
ENOUGH = 8
"""Large gains from which on the first page says how far a rule can be trusted."""
OTHERS = 3
"""From so many first findings on that are of other causes, an accepted pattern is generous."""
PLACE = re.compile(r"([\w.]+\.(?:py|cu)):(\d+)(?: in [\w.<>]+)?")


@dataclass(frozen=True)
class Said:
    """A ranked finding of a report.

    `gain` is the part of the profiled time that it would save, `kernels` the names of kernels that
    stand in its words. `choice`: the report calls it no defect, but a choice of the owner.
    """

    title: str
    sentence: str
    action: str
    cause: str
    gain: float | None
    kernels: tuple[str, ...]
    choice: bool = False

    @property
    def words(self) -> str:
        """What is searched for the cause: names of files and functions are no words of prof."""
        return PLACE.sub(" ", " ".join((self.title, self.sentence, self.action)))

    @property
    def own_words(self) -> str:
        """The same without names of kernels, which may hold the cause by chance (fp64)."""
        words = self.words
        for name in self.kernels:
            words = re.sub(re.escape(name), " ", words, flags=re.IGNORECASE)
        return words

    @property
    def lines(self) -> list[int]:
        """Lines of the program that it names, in its order."""
        return [int(line) for _, line in PLACE.findall(self.sentence)]


@dataclass(frozen=True)
class Answer:
    """Ranked findings of a program and of its repaired twin, and their times.

    Times are without a profiler, both variants in one process, and under nsys, each in a fresh one.
    `repaired` and its time under nsys are None where the twin was not profiled. `choices` are times
    of the twin, without a profiler, with a choice of its owner: its steps as a CUDA graph, products
    in TF32; what it cannot do is not there. `actions` are parts of its time that the twin saved
    once what a finding says was done, by the rule of the finding.
    """

    slow_ms: float
    repaired_ms: float
    slow_nsys_ms: float
    repaired_nsys_ms: float | None
    slow: tuple[Said, ...]
    repaired: tuple[Said, ...] | None
    choices: Mapping[str, float] = field(default_factory=dict)
    actions: Mapping[str, float] = field(default_factory=dict)

    @property
    def gain(self) -> float:
        """Part of its time that the repair saved."""
        return 1 - self.repaired_ms / self.slow_ms

    @property
    def nsys_gain(self) -> float | None:
        """The same under nsys, each variant in a fresh process."""
        twin = self.repaired_nsys_ms
        return None if twin is None else 1 - twin / self.slow_nsys_ms


@dataclass(frozen=True)
class Look:
    """What the rules of a commit said of the programs of a set, by name.

    `traced_only` names slow programs that have a trace, but whose counters could not be read.
    """

    commit: str
    gpu: str
    date: str
    answers: Mapping[str, Answer]
    programs: str = OWN
    traced_only: tuple[str, ...] = ()

    @cached_property
    def generous(self) -> frozenset[str]:
        """Accepted patterns that fit the first findings of many programs with other causes.

        Each is sought in the findings of each program, and a page asks several times.
        """
        there = [one for one in planted(self.programs) if one["name"] in self.answers]
        slow = [(one["accepts"], self.answers[one["name"]].slow) for one in there]
        firsts = [(accepts, said[0].own_words) for accepts, said in slow if said]
        patterns = {pattern for one in planted(self.programs) for pattern in one["accepts"]}
        others = {
            pattern: sum(pattern not in own and fits([pattern], words) for own, words in firsts)
            for pattern in patterns
        }
        return frozenset(pattern for pattern, number in others.items() if number >= OTHERS)

    @cached_property
    def judged(self) -> list[Judged]:
        """Its programs, judged one by one, in the order of the set."""
        return [
            Judged(
                program,
                answer := self.answers[program["name"]],
                _rank(program["accepts"], [said.words for said in answer.slow]),
                self,
                line_at_fault(program),
            )
            for program in planted(self.programs)
            if program["name"] in self.answers
        ]


@dataclass(frozen=True)
class Judged:
    """How a report did on one program.

    `rank` is that of the first finding that names the cause, from 1 on. `line` is the line at
    fault, None where it is no single one.
    """

    program: Mapping[str, Any]
    answer: Answer
    rank: int | None
    look: Look
    line: int | None

    @cached_property
    def strict(self) -> int | None:
        """The same as `rank` without generous patterns and names of kernels."""
        accepted = [one for one in self.program["accepts"] if one not in self.look.generous]
        return _rank(accepted, [said.own_words for said in self.answer.slow])

    @property
    def first(self) -> Said | None:
        """The first finding."""
        return self.answer.slow[0] if self.answer.slow else None

    @property
    def line_named(self) -> bool:
        """Tell whether the first place that the first finding names is a line at fault."""
        return self.first is not None and any(at in self.lines for at in self.first.lines[:1])

    @property
    def lines(self) -> list[int]:
        """The lines at fault, any of which is right to name."""
        return lines_at_fault(self.program)

    @property
    def estimate(self) -> float | None:
        """Gain that the first finding which names the cause predicts."""
        return self.answer.slow[self.rank - 1].gain if self.rank else None

    @property
    def ratio(self) -> float | None:
        """Predicted gain over the measured one."""
        return None if self.estimate is None else self.estimate / self.answer.gain

    def within(self, factor: float) -> bool:
        """Tell whether the predicted gain is within a factor of the measured one."""
        return self.ratio is not None and 1 / factor <= self.ratio <= factor

    @property
    def false_findings(self) -> list[Said] | None:
        """Findings of the repaired twin that promise much; None where it was not profiled.

        Choices of the owner are none, nor is what a measurement of the twin bears out.
        """
        large = self.large_in_twin
        return None if large is None else [said for said in large if not self.borne_out(said)]

    @property
    def large_in_twin(self) -> list[Said] | None:
        """Findings of the repaired twin that promise much, but for choices of the owner."""
        if self.answer.repaired is None:
            return None
        return [s for s in self.answer.repaired if (s.gain or 0) > LARGE and not s.choice]

    def measured(self, said: Said) -> float | None:
        """Part of its time that the twin saved with what a finding says; None: not measured."""
        after = self.answer.choices.get(MEASURED_BY.get(said.cause, ""))
        chosen = None if after is None else 1 - after / self.answer.repaired_ms
        return self.answer.actions.get(said.cause, chosen)

    def borne_out(self, said: Said) -> bool:
        """Tell whether what a finding of the twin says to do gained, measured, what it promises."""
        measured = self.measured(said)
        return measured is not None and measured >= (said.gain or 0) / BORNE_OUT


def collect(folder: Path, commit: str, programs: str = OWN) -> Look:
    """Read the look at a set that `scripts/run_programs.py` or `run_llmc.py` left in a folder.

    Programs that lack a time or the trace of the slow variant are left out.
    """
    answers, metrics, traced_only = {}, {}, []
    for program in planted(programs):
        at = folder / program["name"]
        times, slow = at / "times.jsonl", at / "slow" / "report" / "metrics.json"
        if not (times.is_file() and slow.is_file()):
            continue
        rows = [json.loads(line) for line in times.read_text("utf-8").splitlines() if line]
        ms = {row["repaired"]: round(row["ms"], 4) for row in rows}
        metrics = json.loads(slow.read_text("utf-8"))
        twin = at / "repaired" / "report" / "metrics.json"
        repaired = json.loads(twin.read_text("utf-8")) if twin.is_file() else None
        if metrics["run_time"]["whole_ns"] is None:
            continue
        if repaired is not None and repaired["run_time"]["whole_ns"] is None:
            repaired = None
        answers[program["name"]] = Answer(
            slow_ms=ms[False],
            repaired_ms=ms[True],
            slow_nsys_ms=_whole_ms(metrics),
            repaired_nsys_ms=None if repaired is None else _whole_ms(repaired),
            slow=_said(metrics),
            repaired=None if repaired is None else _said(repaired, LARGE),
            choices=_choices(at / "choices.jsonl"),
            actions=_actions(at / "actions.jsonl"),
        )
        manifest = at / "slow" / "manifest.json"
        steps = json.loads(manifest.read_text("utf-8"))["steps"] if manifest.is_file() else []
        if any(step["name"] == "counters" and step["state"] == "failed" for step in steps):
            traced_only.append(program["name"])
    if not answers:
        raise ArtifactUnreadable(f"no program ran in {folder}", "scripts/run_programs.py DIR")
    recorded = metrics["run_time"]["gpu"], metrics["created"][:10]
    return Look(commit, *recorded, answers, programs, tuple(traced_only))


def with_measured_twins(look: Look, folder: Path) -> Look:
    """Return a look with the times of choices and actions that a folder has, else as it is."""
    answers = {
        name: replace(
            answer,
            choices=_choices(folder / name / "choices.jsonl") or answer.choices,
            actions=_actions(folder / name / "actions.jsonl") or answer.actions,
        )
        for name, answer in look.answers.items()
    }
    return replace(look, answers=answers)


def _choices(path: Path) -> dict[str, float]:
    """Return the times in ms of the choices that a twin was measured with."""
    return {row["choice"]: round(row["ms"], 4) for row in _rows(path)}


def _actions(path: Path) -> dict[str, float]:
    """Return parts of its time that a twin saved with what findings say, by rule."""
    return {
        cause: round(1 - row["done"]["ms"] / row["without"]["ms"], 4)
        for row in _rows(path)
        for cause in row["causes"]
    }


def _rows(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines]


def _whole_ms(metrics: Mapping[str, Any]) -> float:
    return round(float(metrics["run_time"]["whole_ns"]) / 1e6, 4)


def _said(metrics: Mapping[str, Any], least: float = 0.0) -> tuple[Said, ...]:
    """Return the ranked findings of a metrics.json with a gain over `least`."""
    whole = metrics["run_time"]["whole_ns"]
    names = {kernel["short_name"] for kernel in metrics["kernels"]}
    found = []
    for finding in sorted(filter(_ranked, metrics["findings"]), key=_ranked):
        texts = {key: finding[key] for key in ("title", "sentence", "action", "cause")}
        words = " ".join(texts.values()).casefold()
        gain = None if finding["gain_ns"] is None else round(finding["gain_ns"] / whole, 4)
        if (gain or 0) >= least:
            kernels = sorted(name for name in names if name.casefold() in words)
            chosen = finding.get("choice", False)
            found.append(Said(**texts, gain=gain, kernels=tuple(kernels), choice=chosen))
    return tuple(found)


def _ranked(finding: Mapping[str, Any]) -> int:
    """Return the rank of a finding of a metrics.json, 0 where it has none."""
    return finding["rank"] or 0


def write_look(file: Path, look: Look) -> None:
    """Write a look; `read_look` reads it."""
    file.write_text(json.dumps(asdict(look), indent=1) + "\n", encoding="utf-8")


def read_look(file: Path) -> Look:
    """Return a recorded look.

    Raises:
        ArtifactUnreadable: the file is not what `write_look` writes.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        answers = {name: _answer(**answer) for name, answer in found["answers"].items()}
        traced_only = tuple(found.get("traced_only", ()))
        return Look(**{**found, "answers": answers, "traced_only": traced_only})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactUnreadable(
            f"{file} is no look at the programs: {error}", "scripts/score_programs.py DIR --keep"
        ) from error


@cache
def recorded_look(name: str) -> Look:
    """Return a look that is recorded beside the programs, read and judged once."""
    return read_look(PROGRAMS / name)


def _answer(*, slow: Any, repaired: Any, **times: Any) -> Answer:
    return Answer(
        slow=_findings(slow), repaired=None if repaired is None else _findings(repaired), **times
    )


def _findings(rows: Sequence[Mapping[str, Any]]) -> tuple[Said, ...]:
    return tuple(Said(**{**row, "kernels": tuple(row["kernels"])}) for row in rows)


@cache
def planted(programs: str = OWN) -> Sequence[Mapping[str, Any]]:
    """Return the programs of a set."""
    text = (PROGRAMS / programs).read_text(encoding="utf-8")
    found: list[Mapping[str, Any]] = yaml.load(text, LOADER)["programs"]
    return found


def lines_at_fault(program: Mapping[str, Any]) -> list[int]:
    """Return lines, from 1 on, that hold a text of `at` (one, or a list) or that `line` says."""
    if "at" not in program:
        return [program["line"]] if program.get("line") is not None else []
    texts = [program["at"]] if isinstance(program["at"], str) else program["at"]
    lines = source(program).read_text(encoding="utf-8").splitlines()
    return [next(at for at, line in enumerate(lines, 1) if text in line) for text in texts]


def line_at_fault(program: Mapping[str, Any]) -> int | None:
    """Return the first of the lines at fault of a program, the one to edit, if any is known."""
    return next(iter(lines_at_fault(program)), None)


def fits(patterns: Iterable[str], words: str) -> bool:
    """Tell whether any of these patterns is found in the words, whatever its case."""
    return any(_compiled(pattern).search(words) for pattern in patterns)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern of which there are more than `re` keeps."""
    return re.compile(pattern, re.IGNORECASE)


def _rank(patterns: Sequence[str], words: Iterable[str]) -> int | None:
    return next((at for at, said in enumerate(words, 1) if fits(patterns, said)), None)


class Score(NamedTuple):
    """How many of the programs that a question asks of did right, and what share is asked for.

    `head`: the question in a word, where the first table of docs/proof.md has it.
    """

    question: str
    right: int
    of: int
    wanted: str = ""
    head: str = ""


def rows(judged: Sequence[Judged]) -> list[Score]:
    """Return the score of each question."""
    right = [one for one in judged if one.answer.gain >= FAULT]
    lines = [one for one in right if one.line is not None]
    named_lines = [one for one in lines if one.rank == 1]
    twins = [one.false_findings for one in judged if one.false_findings is not None]

    def count(questioned: Sequence[Judged], holds: Callable[[Judged], bool]) -> tuple[int, int]:
        return sum(map(holds, questioned)), len(questioned)

    return [
        Score("Does the first finding name the planted cause?",
              *count(right, lambda j: j.rank == 1), "90 %", "cause"),
        Score("The same, strictly: without generous words and names of kernels",
              *count(right, lambda j: j.strict == 1)),
        Score("Is it among the findings?", *count(right, lambda j: j.rank is not None)),
        Score("Is the line at fault the first place that the first finding names?",
              *count(lines, lambda j: j.line_named), "90 %", "line"),
        Score("The same, of those whose cause is named first",
              *count(named_lines, lambda j: j.line_named)),
        Score("Is it, where the line to edit alone is right, the first of those at fault?",
              *count(lines, lambda j: j.first is not None and j.first.lines[:1] == [j.line]),
              head="line to edit"),
        Score("Is it among the places that the first finding names?",
              *count(lines, lambda j: j.first is not None
                     and any(at in j.lines for at in j.first.lines))),
        Score("Is the predicted gain within a factor of 1.3 of the measured one?",
              *count(right, lambda j: j.within(1.3)), "75 %", "gain within 1.3"),
        Score("Within a factor of 1.5?", *count(right, lambda j: j.within(1.5)),
              "90 %", "gain within 1.5"),
        Score(f"Has the fixed twin no finding with a gain over {share(LARGE)}?",
              sum(not found for found in twins), len(twins), "100 %", "twins"),
    ]  # fmt: skip


@dataclass
class Promises:
    """What findings of a rule promised, in numbers of findings.

    `named` are the first of a program that name its cause, `fair` those of them whose gain is
    within BORNE_OUT of the measured one. Of gains over LARGE: `of_cause` in such findings, `beyond`
    those of them, and of findings beside the cause, that promise more than there was, `aside` all
    of the latter, and in repaired programs `in_twins` those that no measurement bears out and
    `gained` those that one does.
    """

    named: int = 0
    fair: int = 0
    of_cause: int = 0
    beyond: int = 0
    aside: int = 0
    in_twins: int = 0
    gained: int = 0

    @property
    def large(self) -> int:
        """All large gains that were promised."""
        return self.of_cause + self.aside + self.in_twins + self.gained

    @property
    def borne_out(self) -> float:
        """Part of them that was there, as far as it was measured."""
        return 1 - (self.beyond + self.in_twins) / self.large


def promises(judged: Iterable[Judged]) -> dict[str, Promises]:
    """Return what each rule promised, and how much of that was there.

    Beside the cause, what the repaired program takes can be gained at most.
    """
    found: dict[str, Promises] = {}
    for one in judged:
        for said in one.large_in_twin or ():
            rule = found.setdefault(said.cause, Promises())
            rule.gained += one.borne_out(said)
            rule.in_twins += not one.borne_out(said)
        for at, said in enumerate(one.answer.slow, 1):
            if one.answer.gain < FAULT:
                break
            rule = found.setdefault(said.cause, Promises())
            is_cause = fits(one.program["accepts"], said.words)
            if at == one.rank:
                rule.named += 1
                rule.fair += one.within(BORNE_OUT)
            if said.choice or not (said.gain or 0) > LARGE:
                continue
            most = BORNE_OUT * one.answer.gain if is_cause else 1 - one.answer.gain
            rule.of_cause += is_cause
            rule.aside += not is_cause
            rule.beyond += (said.gain or 0) > most
    return found


def trusted(found: Mapping[str, Promises]) -> str:
    """Say in a sentence which rules can be trusted, and which promise too much."""
    often = {rule: each for rule, each in found.items() if each.large >= ENOUGH}

    def named(holds: Callable[[float], bool]) -> str:
        return ", ".join(f"`{rule}`" for rule, each in often.items() if holds(each.borne_out))

    return (
        f"**Which rules to trust**, of those that promised a large gain {ENOUGH} times or more: "
        f"three of four were there, or more, of {named(lambda part: part >= 0.75)}; half of them, "
        f"or fewer, of {named(lambda part: part <= 0.5)} ([all "
        "rules](#how-far-each-rule-can-be-trusted))."
    )


def trust(judged: Iterable[Judged]) -> list[str]:
    """Return the part of the page on how far each rule can be trusted."""
    found = {rule: each for rule, each in promises(judged).items() if each.large}
    lines = [
        "| rule | names the cause | gain within 1.5 | large gains: of the cause | beside it | in "
        "fixed twins | there, as far as measured |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for rule, each in sorted(found.items(), key=lambda item: (-item[1].borne_out, -item[1].large)):
        in_twins = each.in_twins + each.gained
        cells = (each.named, each.fair, each.of_cause, each.aside, in_twins)
        lines.append(f"| `{rule}` | {' | '.join(map(str, cells))} | {share(each.borne_out)} |")
    return [
        "## How far each rule can be trusted",
        "All first looks together, by the rules of their days, which were changed after most of "
        f"them. Counted are findings: those that name the cause first; gains over {share(LARGE)} "
        "that are no choice of the owner; and of these the part that was there: of the cause up "
        f"to {BORNE_OUT} times what its fix saved, beside it up to what the fixed program "
        "takes, in a fixed program what a measurement bears out. A twin may well gain more by "
        "a further fix that nobody made: the last column says too little rather than too much.",
        "\n".join(lines),
    ]


def section(heading: str, look: Look) -> list[str]:
    """Return the parts of the page about one look, as markdown."""
    judged = look.judged
    return [
        f"## {heading}",
        _introduction(heading, look, judged),
        _scores(judged),
        _explained(look, judged),
        _table(judged),
        "Not right:",
        "\n".join(f"- {words}" for one in judged if (words := _miss(one))),
    ]


def _introduction(heading: str, look: Look, judged: Sequence[Judged]) -> str:
    number = len(planted(look.programs))
    missing = f"; {number - len(judged)} did not run" if number > len(judged) else ""
    if look.traced_only:
        names = ", ".join(f"`{name}`" for name in look.traced_only)
        missing += f"; of {len(look.traced_only)} the trace alone, without counters: {names}"
    by = (
        f"The rules of commit `{look.commit[:10]}` judged {len(judged)} of them, profiled on "
        f"{look.gpu} ({look.date}){missing}."
    )
    if look.programs == PUBLIC:
        return (
            f"{number} kernels of [llm.c](https://github.com/karpathy/llm.c), which nobody of this "
            "project wrote: versions that its authors call slow, beside faster ones of theirs. "
            "What their comments say of the difference was made the cause, and its words, before "
            "any of them was run under prof, by somebody who knows its rules "
            f"([public.yaml](../tests/proof_programs/public.yaml)). {by} No rule was changed for "
            "them. `scripts/run_llmc.py` runs them on a GPU."
        )
    if "in sample" in heading:
        return f"{by} Rules have been changed since the first look was seen: this is in sample."
    if look.programs == FRESH:
        return (
            f"{number} other programs of the same kind "
            f"([fresh.yaml](../tests/proof_programs/fresh.yaml)). {by} Their author had read no "
            "rule, but the scores of the first set; causes, words and lines were written down "
            "beforehand, and no rule was changed for them: this score is out of sample. "
            "`scripts/run_programs.py DIR --set fresh.yaml` runs them."
        )
    if look.programs != OWN:
        return (
            f"{number} more programs of the same kind "
            f"([{look.programs}](../tests/proof_programs/{look.programs})). {by} Their author had "
            "read neither a rule nor a score of the earlier sets; causes, words and lines were "
            "written down beforehand, and no rule was changed for them: this score is out of "
            f"sample. `scripts/run_programs.py DIR --set {look.programs}` runs them."
            + REMARKS.get(look.programs, "")
        )
    return (
        f"{number} whole programs in torch, Triton and CUDA C++ have one planted cause each, with "
        "words that name it and its line, written down beforehand, and a fixed twin "
        f"([programs.yaml](../tests/proof_programs/programs.yaml)). {by} Their author had not "
        "read the rules, and no rule was changed for them: this score is out of sample. "
        "`scripts/run_programs.py` runs them on a GPU, `scripts/score_programs.py` scores them."
    )


def _scores(judged: Sequence[Judged]) -> str:
    lines = ["| question | score | wanted |", "| --- | --- | --- |"]
    for words, held, of, wanted, _ in rows(judged):
        cell = f"{held} of {of} ({share(held / of)})" if of else NA
        lines.append(f"| {words} | {cell} | {wanted} |")
    return "\n".join(lines)


def _explained(look: Look, judged: Sequence[Judged]) -> str:
    faults = [one for one in judged if one.answer.gain < FAULT]
    listed = ", ".join(f"`{j.program['name']}` ({share(j.answer.gain)})" for j in faults)
    unsure = ", ".join(
        f"`{one.program['name']}` ({share(one.answer.nsys_gain)})"
        for one in judged
        if one.answer.nsys_gain is not None and abs(one.answer.gain - one.answer.nsys_gain) > UNSURE
    )
    loose = ", ".join(f"`{pattern}`" for pattern in sorted(look.generous))
    return "\n".join(
        (
            f"- **Faults of the set** (the fix saved less than {share(FAULT)}): "
            f"{listed or 'none'}.",
            f"- **Unsure** (in brackets: what the fix saved under nsys): {unsure or 'none'}.",
            f"- **Twins**: {_twins(judged)}",
            f"- **Generous words**: {loose or 'none'}.",
        )
    )


def _twins(judged: Sequence[Judged]) -> str:
    """Say how it was found what twins could gain beyond their repair."""
    if not any(one.answer.actions for one in judged):
        return (
            "what a twin could gain beyond its fix was not measured, so all its large gains "
            "count as false."
        )
    cannot = "; ".join(
        f"`{one.program['name']}`, `{cause}` ({escape(action['cannot'])})"
        for one in judged
        for action in listed_actions(one.program["name"])
        for cause in action["causes"]
        if "cannot" in action
    )
    return (
        "after the look, somebody who knows the rules did to each twin what its findings of large "
        "gains say ([actions.yaml](../tests/proof_programs/actions.yaml)), and both were timed "
        "without a profiler, in turns in one process. A finding is borne out where that saves "
        f"the promised part of the time over {BORNE_OUT} at least; any other counts as false (✗). "
        f"Nobody can do it, or nothing is there to be done: {cannot or 'none'}. This column is in "
        "sample for rules that were changed since, and actions are those of one engineer: another "
        "may do better, or worse."
    )


def _twin(one: Judged) -> str:
    """Return large gains in a twin, what was measured of each, and which are false."""
    if one.large_in_twin is None:
        return NA
    cells = []
    for said in one.large_in_twin:
        measured = one.measured(said)
        cell = f"`{said.cause}` {share(said.gain)}"
        if listed_actions(one.program["name"]) or measured is not None:
            cell += f" (measured {NA if measured is None else share(measured)})"
            cell += "" if one.borne_out(said) else " ✗"
        cells.append(cell)
    return ", ".join(cells) or "none"


def _table(judged: Sequence[Judged]) -> str:
    columns = ("program", "time", "repaired", "first finding", "cause", "line", "predicted gain",
               "measured gain", "ratio", "large gains in the twin")  # fmt: skip
    lines = [
        f"| {' | '.join(columns)} |",
        "| --- | ---: | ---: | --- | --- | --- | ---: | ---: | ---: | --- |",
    ]
    for one in judged:
        fault = one.answer.gain < FAULT
        cells = (
            f"`{one.program['name']}`",
            seconds(one.answer.slow_ms / 1e3),
            seconds(one.answer.repaired_ms / 1e3),
            f"`{one.first.cause}`" if one.first else "none",
            "fault of the set" if fault else _cause(one),
            "none" if one.line is None else "yes" if one.line_named else "no ✗",
            NA if one.estimate is None else share(one.estimate),
            share(one.answer.gain),
            NA if fault or one.ratio is None else _ratio(one),
            _twin(one),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cause(one: Judged) -> str:
    if one.rank == 1:
        return "yes" if one.strict == 1 else "yes, generously"
    return "no ✗" if one.rank is None else f"finding {one.rank} ✗"


def _ratio(one: Judged) -> str:
    mark = "" if one.within(1.3) else " (over 1.3)" if one.within(1.5) else " ✗"
    return significant(one.ratio, 2) + mark


def _miss(one: Judged) -> str:
    """Say what is not right of a program; empty where all is, or where the set is at fault."""
    if one.answer.gain < FAULT:
        return ""
    wrong = []
    if one.rank != 1:
        first = f"“{escape(one.first.title)}”" if one.first else "nothing"
        where = f"finding {one.rank}" if one.rank else "no finding"
        wrong.append(f"said first: {first}; {where} names the cause")
    if one.line is not None and not one.line_named:
        named = [str(line) for line in one.first.lines] if one.first else []
        wrong.append(f"the line is {one.line}, said: {', '.join(named) or 'none'}")
    if one.rank and not one.within(1.3):
        estimate = NA if one.estimate is None else share(one.estimate)
        wrong.append(f"predicted {estimate}, measured {share(one.answer.gain)}")
    return (
        f"`{one.program['name']}` ({escape(one.program['cause'])}): {'; '.join(wrong)}."
        if wrong
        else ""
    )
