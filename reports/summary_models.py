"""Frozen view models of the summary for a reader who decides and does not tune kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nsight_prof.reports.view_models import Fact, GlossaryEntry


@dataclass(frozen=True)
class SummaryRow:
    """One line of the table of where the time goes, in plain words; lines add up to `total`.

    `kind` is kernels, idle, copies, other or total. `share` and `gain` are parts of the whole run
    (of the GPU time, where `basis` of the summary says so), 0 to 1, `time_ns` and `gain_ns` the
    same as time; `reached` is the part of its limit that was reached. `kernels` are numbers of the
    report, given only where two lines have the same name. None is unknown.
    """

    kind: str
    what: str
    kernels: tuple[int, ...]
    time_ns: float | None
    share: float | None
    limited_by: str
    reached: float | None
    gain: float | None
    gain_ns: float | None


@dataclass(frozen=True)
class SummaryGpu:
    """How one of several GPUs spent the run, or `label` "All at once": whether any of them worked.

    `copies_alone_ns` is the part of `busy_ns` in which it only copied data. None is unknown.
    """

    label: str
    busy_ns: float | None
    copies_alone_ns: float | None
    idle_ns: float | None
    idle_share: float | None


@dataclass(frozen=True)
class Action:
    """Something to do: `saves_ns` at most, `gain` the same as a part of the run (0 to 1).

    `sure` and `effort` are low, medium or high in the language of the page; `after_ns` is what is
    left of the run after this and all actions before it. `anchor` leads to the first finding.
    """

    do: str
    saves_ns: float
    gain: float
    sure: str
    effort: str
    after_ns: float
    anchor: str


@dataclass(frozen=True)
class FirstScreen:
    """What a reader sees first, in the language of the page.

    `line` says GPU, time and how sure the verdict is. `saves` heads the column of gains. `picture`
    is the name of the picture of the run, empty where there is none, `alt` what it shows.
    """

    line: str
    verdict: str
    actions: tuple[Action, ...]
    saves: str
    picture: str = ""
    alt: str = ""


@dataclass(frozen=True)
class SummaryView:
    """Half a page for a reader who decides and does not tune kernels.

    All times and gains are of one whole, which `basis` names: "wall" (the run from the first to the
    last work of the GPU), "gpu" (the time of its kernels, where no other is known), or "" (no time
    is known). `gpus` are each of several GPUs and then all of them together; empty for one. `facts`
    are what was measured in plain words, `learned` the plain sentences about it. `next_steps` say
    what to do in sentences; `hints` are those of them that have no row in the table of `first`.
    `words` are the fixed words of the page in its `language`, by key (section `page` of
    reports/language/en.yaml); `others` are the names and files of the same summary in other
    languages.
    """

    title: str
    question: str
    first: FirstScreen
    machine: str
    answer: str
    basis: str
    rows: tuple[SummaryRow, ...]
    total: SummaryRow | None
    gpus: tuple[SummaryGpu, ...]
    facts: tuple[Fact, ...]
    learned: tuple[str, ...]
    next_steps: tuple[str, ...]
    hints: tuple[str, ...]
    reservations: tuple[str, ...]
    terms: tuple[GlossaryEntry, ...]
    language: str
    words: Mapping[str, str]
    others: tuple[Fact, ...] = ()
