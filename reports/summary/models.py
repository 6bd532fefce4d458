"""Models of first screen and summary: texts and numbers, not yet in a language."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.page import Choice, Fact, Name, Number, Text
from nsight_prof.reports.profile.view_models import GlossaryEntry, KernelRow


@dataclass(frozen=True)
class SummaryRow:
    """One line of the table of where the time goes; lines add up to the total.

    `kind` is kernels, idle, copies, other or total. `share` and `gain` are parts of the whole run
    (of the GPU time, where `basis` of the summary says so), 0 to 1, `time_ns` and `gain_ns` the
    same as time; `reached` is the part of its limit that was reached. `kernels` are numbers of the
    report, given only where two lines have the same name. None is unknown. `measured` is whether
    something says of the line itself what it could save.
    """

    kind: str
    what: Text | Name
    limited_by: Text | None
    time_ns: float | None
    share: float | None
    gain: float | None
    gain_ns: float | None
    reached: float | None = None
    kernels: tuple[int, ...] = ()
    measured: bool = True


@dataclass(frozen=True)
class SummaryGpu:
    """How one of several GPUs spent the run, or `label` "All at once": whether any of them worked.

    `copies_alone_ns` is the part of `busy_ns` in which it only copied data. None is unknown.
    """

    label: Text
    busy_ns: float | None
    copies_alone_ns: float | None
    idle_ns: float | None
    idle_share: float | None


@dataclass(frozen=True)
class Action:
    """Something to do: what it `saves` beyond the actions before it; `gain` as a part of the run.

    `estimate` is what of that was seen to be reached, 0 where nothing but a bound is known, and
    `upper` the most that it could save. `anchor` leads to its row of what each step saves, `share`
    is the part of the run that it acts on: its kernels, or idle time; None where that is not known,
    `alone` the most that its findings would save without the actions before it.

    `sure` and `effort` are low, medium or high, `because` says why no surer. `findings` are the
    ranks and anchors of the findings that it is made of.
    """

    do: Text
    saves: Number
    gain: Number
    estimate: Number
    upper: Number
    sure: str
    because: Text
    effort: str
    findings: tuple[tuple[int, str], ...]
    anchor: str = ""
    share: float | None = None
    alone: Number | None = None

    @property
    def in_short(self) -> Text:
        """What to do and what it saves, as a sentence."""
        if self.estimate.value:
            return Text("Saves {time}: {do}.", time=self.estimate, do=self.do)
        return Text("Saves at most {time}: {do}.", time=self.upper, do=self.do)


@dataclass(frozen=True)
class Step:
    """Findings with one remedy, the largest first; `saves_ns` beyond what larger steps save.

    `estimate_ns` is the part of that which was seen to be reached, `most_ns` the most.
    """

    findings: tuple[Finding, ...]
    saves_ns: float
    estimate_ns: float
    most_ns: float

    @property
    def rule(self) -> str:
        """The rule, else the kind, of the first finding."""
        return self.findings[0].rule or self.findings[0].key

    @property
    def sure(self) -> str:
        """How sure it is that it saves as much: never high, since no fix was made and timed."""
        return "medium" if self.findings[0].confidence == "high" else self.findings[0].confidence

    @property
    def because(self) -> Text:
        """Why it is no surer."""
        reason, bound = self.findings[0].because, not self.estimate_ns
        if bound and reason is None:
            return Text("only an upper bound is known")
        if bound:
            return Text("only an upper bound is known: {why}", why=reason or "")
        return reason or Text("measured, but no fix was tried")

    @property
    def is_choice(self) -> bool:
        """Whether it belongs to the owner of the program, and mends no defect."""
        return self.findings[0].choice

    @property
    def kernel_ids(self) -> frozenset[str]:
        """The kernels that it is about."""
        return frozenset(key for finding in self.findings for key in finding.kernel_ids)


@dataclass(frozen=True)
class Savings:
    """What could be saved of a run at most, in ns of it; no time is counted twice.

    `kernels` is by the number of the kernel, `unlisted` of those that the report does not list, of
    `steps` the largest is first, but for those that others must come before. None is unknown.
    `gain_ns` is the same in all where gains end at what was seen to be reached.
    """

    steps: tuple[Step, ...]
    kernels: Mapping[int, float | None]
    idle: float | None
    copies: float | None
    unlisted: float | None
    gain_ns: float = 0.0

    @property
    def estimate_ns(self) -> float:
        """What all steps, also smaller ones, were seen to reach."""
        return sum(step.estimate_ns for step in self.steps)

    @property
    def total_ns(self) -> float:
        """What can be saved in all: that of `steps`, and of smaller ones that are not listed."""
        times = (*self.kernels.values(), self.idle, self.copies, self.unlisted)
        return sum(time for time in times if time is not None)


@dataclass(frozen=True)
class FloorPart:
    """A part of the time that steps of an engine take above their floors, and how it is known."""

    what: Text
    time_ns: float
    how: Text


@dataclass(frozen=True)
class Narrowed:
    """A matrix product with inputs of a smaller type, at most `factor` times as fast.

    `time_ns` is its time in the run, `repairs_ns` what fixes save of that at most.
    """

    kernel: KernelRow
    smaller: str
    factor: float
    time_ns: float
    repairs_ns: float

    @property
    def saves_ns(self) -> float:
        """What the smaller type saves at most of what fixes leave."""
        return max(0.0, self.time_ns - self.repairs_ns) * (1 - 1 / self.factor)


@dataclass(frozen=True)
class TimedChoice:
    """A choice that saves `saves_ns` of the run at most, after all fixes.

    Where that was measured it is no bound, and `most_ns` is.

    `anchor` leads to what that is worked out from: the `products` that it makes narrower, else the
    `finding` that offers it. `lasting`: arithmetic is at the clock that the power limit leaves to
    each type, else at one clock.
    """

    do: Text
    saves_ns: float
    costs: Text
    anchor: str
    products: tuple[Narrowed, ...] = ()
    finding: Finding | None = None
    most_ns: float = math.nan
    lasting: bool = False


@dataclass(frozen=True)
class FirstScreen:
    """What a reader sees first.

    `line` says GPU, time and how sure the verdict is. `total` is that time, of which gains are
    parts; `basis` says what it is: "wall" or "gpu". `estimate` and `upper` are what can be saved of
    it in all: by the actions, and by smaller steps, of which `smaller` are the findings, as those
    of an action. `choices` are what the owner may choose beside the actions, at a price: they are
    not added up with them; `narrowed` are the matrix products of choices of a smaller type.
    `over_floors` says how far steps of an engine are from the least time that they need, what of
    that the actions reach, and why not the rest: `floor_parts`. `picture` is the name of the
    picture of the run, empty where there is none. `to_measure` is the command that measures what
    limits the kernels, empty where none can; None where they were counted.
    """

    line: Text
    verdict: Text
    total: Number
    estimate: Number
    upper: Number
    actions: tuple[Action, ...]
    smaller: tuple[tuple[int, str], ...]
    basis: str
    choices: tuple[Choice, ...] = ()
    narrowed: tuple[TimedChoice, ...] = ()
    over_floors: Text | None = None
    floor_parts: tuple[FloorPart, ...] = ()
    picture: str = ""
    to_measure: str | None = None

    @property
    def in_short(self) -> list[Text]:
        """The verdict and what to do, a sentence each; empty where nothing is to be done."""
        return [self.verdict, *(action.in_short for action in self.actions)] if self.actions else []

    @property
    def largest_first(self) -> bool:
        """Whether no action saves more than one before it, which must then come first."""
        saved = [action.saves.value or 0.0 for action in self.actions]
        return saved == sorted(saved, reverse=True)


@dataclass(frozen=True)
class SummaryView:
    """Half a page for a reader who decides and does not tune kernels.

    All times and gains are of one whole, which `basis` names: "wall" (the run from the first to the
    last work of the GPU), "gpu" (the time of its kernels, where no other is known), or "" (no time
    is known). `answer` says in sentences what the first screen does not. `gpus` are each of several
    GPUs and then all of them together; empty for one. `facts` are what was measured in plain words,
    `learned` the plain sentences about it, `hints` what to do that saves no time of this run.
    `others` are the names and files of the same summary in other languages.
    """

    title: str
    question: str
    first: FirstScreen
    machine: Text
    answer: tuple[Text, ...]
    basis: str
    rows: tuple[SummaryRow, ...]
    total: SummaryRow | None
    gpus: tuple[SummaryGpu, ...]
    facts: tuple[Fact, ...]
    learned: tuple[Text, ...]
    hints: tuple[Text, ...]
    reservations: tuple[Text | str, ...]
    terms: tuple[GlossaryEntry, ...]
    others: tuple[tuple[str, str], ...] = ()
