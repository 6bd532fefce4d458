"""A rule about a kernel: when it fires, what its defect costs, and in what words it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nsight_prof.parsers.cells import Row
from nsight_prof.reports.findings.kernels.fact import Condition, Context, Expression, Fact, Facts
from nsight_prof.reports.page.values import Confidence, Number, Text

DEFECT, FEW_WARPS, STALL, OCCUPANCY = 1, 2, 3, 4
"""Ranks: defects come before too few warps, these before what the warps wait for, and that before
what would hide it."""
NONE = Fact("none")
"""Nothing of the work of a resource is left."""
CROSSING = (
    Text("Fuse it with the kernels before and after it, so that the data crosses memory once."),
    Text("fuse it with the steps around it, so that data is moved once"),
)
CONTIGUOUS = (
    Text(
        "Fuse it with the kernels before and after it (torch.compile), or make its "
        "inputs contiguous, so that the library takes its vectorised kernel."
    ),
    Text("fuse it with the steps around it (torch.compile does so)"),
)
"""Actions and advice for a kernel that compilers fuse with others: any, and a library's whose
inputs may be strided."""


@dataclass(frozen=True)
class Kernel:
    """A kernel that a rule fired for: a row of `profiled`, and its facts."""

    row: Row
    context: Context
    facts: Facts

    def number(self, fact: Fact, scale: float = 1.0, unit: str | None = None) -> Number:
        """Return a fact as a number, as it is or scaled to another unit."""
        number = fact.number(self.facts[fact.name], self.row)
        value = None if number.value is None else scale * number.value
        scaled = Number(value, number.unit if unit is None else unit, number.refs)
        return scaled if scaled == number else scaled.by(Text("{value}", value=number.at_digits(2)))


@dataclass(frozen=True)
class Rule:
    """One cause of what a kernel misses.

    Attributes:
        key: stands as `cause` in metrics.json and in docs/rules.md.
        question: what the rule answers.
        when: conditions under which it fires.
        clause: what is wrong, as a clause about the kernel ("it ...").
        symptom: the same in a title.
        remedy: how a sentence about the gain begins.
        action: what to do; `advice` the same for readers who do not know GPUs.
        actions: actions for kernels of some categories, and "own" for those that are no library's.
        estimate: how the gain is estimated.
        disproof: what one would see if the rule were wrong.
        source: whose rule or threshold it is.
        time: part of the kernel's time that it spends on the defect; None: all of it.
        remaining: part of that time that is left afterwards; None: nothing.
        unloads: resources that do less afterwards, and the part of their work that is left. No
            other resource gets faster: the gain ends at its roof.
        attainable: part of a roof up to which the remedy takes a kernel, and `attainable_source`.
        bounds: kernels that the rule can explain; empty: any that it gains something for.
        unless: rules that tell of the same when they fire.
        contradicted_by: conditions under which the evidence contradicts the rule.
        promote: conditions under which the rank is FEW_WARPS.
        evidence: facts that are shown beside those of the conditions.
        limiter: limiter of occupancy that must be the first.
        batches: more blocks at once help, as one kernel in place of a row of tiny ones does.
        fusible: action and advice for kernels that compilers fuse with their neighbours.
        in_code: the action changes the code of the kernel, which users of a library do not write;
            `by_inputs`: but what they give to it decides as much.
    """

    key: str
    question: str
    when: Expression
    clause: Callable[[Kernel], Text]
    symptom: Text
    remedy: Text
    action: Text
    advice: Text
    estimate: str
    disproof: Text
    source: Text
    confidence: Confidence = "medium"
    rank: int = DEFECT
    time: Fact | None = None
    remaining: Fact | None = None
    unloads: Mapping[str, Fact] = field(default_factory=dict)
    attainable: float = 1.0
    attainable_source: str = ""
    bounds: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    contradicted_by: tuple[Condition, ...] = ()
    promote: Expression | None = None
    evidence: tuple[Fact, ...] = ()
    limiter: str = ""
    batches: bool = False
    actions: Mapping[str, Text] = field(default_factory=dict)
    fusible: tuple[Text, Text] | None = None
    in_code: bool = False
    by_inputs: bool = False

    @property
    def estimated(self) -> bool:
        """Whether its gain is an estimate, which the truth may exceed, and no bound."""
        return bool(self.unloads) or self.attainable < 1

    def missing(self, facts: Facts) -> tuple[Fact, ...]:
        """Return the facts that are not known and that decide."""
        return tuple(dict.fromkeys(c.fact for c in self.when.undecided(facts)))

    def rank_for(self, facts: Facts) -> int:
        """Return the rank, raised where `promote` holds."""
        promoted = self.promote is not None and self.promote.evaluate(facts)
        return FEW_WARPS if promoted else self.rank
