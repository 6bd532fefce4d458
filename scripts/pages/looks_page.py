"""Writes docs/proof.md and docs/proof-looks.md: how right prof is on programs it never saw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nsight_prof.reports.page.formats import NA, share
from scripts.pages.gain_intervals import interval_section
from scripts.pages.marked import anchor, linked
from scripts.pages.planted_page import Recording, planted_page, scores
from scripts.pages.programs import (
    FAULT,
    LARGE,
    LOOKS,
    OTHERS,
    PUBLIC,
    UNSURE,
    Judged,
    Look,
    Score,
    promises,
    recorded_look,
    rows,
    section,
    trust,
    trusted,
)
from scripts.run_programs import OWN, PROGRAMS

NEWEST = 3
"""Sets that are summed up as what to expect now: one alone has too few programs."""

INTRODUCTION = (
    "Each program has one cause of lost time, which somebody planted, or met in public code, and "
    "wrote down with its line, beside a fixed twin. Each set was judged once before anybody had "
    "seen what the rules make of it. This **first look** is the only score out of sample."
)
LIMITS = f"""\
## Limits

- The programs were written for this, run for a second or so, and have one cause each, in torch,
  Triton and CUDA C++. What was gained by doing what prof says first, in programs that nothing was
  planted in, stands [beside the predicted gains](stories.md#predicted-and-measured).
- Rules were changed after most looks: sets differ in their programs and in the rules.
- Gains are parts of the program's time: the measured one without a profiler, the predicted one, of
  the first finding that names the cause, of the time under nsys. A cause that no finding names, or
  that has no gain, counts as not priced.
- Words of people decide whether a finding names the cause: "strictly" are scores without generous
  words, which fit the first findings of {OTHERS} or more programs with another cause, too. Places
  (`file.py:12 in run`) name no cause, and a name of a kernel may hold one by chance (`fp64`).
- A program whose fix saved less than {share(FAULT)} is a fault of the set, and counts for twins
  alone. One is unsure, but counts, whose fix saved another part of the time under nsys, each
  variant in a fresh process, than without it, both in one process (from a difference of
  {share(UNSURE)} of the time on)."""
MORE = (
    "[All other looks](proof-looks.md) in full, with what was not right of each program; [small "
    "programs with one planted defect each](proof-planted.md). `scripts/proof` writes these three "
    "pages from recorded runs, without a GPU."
)


def proof_pages(sets: Sequence[Recording]) -> dict[str, str]:
    """Return the pages of the proof as markdown, by file name; the first begins with the answer."""
    (heading, newest), *_ = first_looks()
    judged = _judged(first_looks())
    first = (
        "# Proof: how right verdicts are",
        _answer(),
        INTRODUCTION,
        _glance(),
        _moved(),
        trusted(promises(judged)),
        _small(sets),
        MORE,
        LIMITS,
        *trust(judged),
        *interval_section(),
        *section(heading, newest),
    )
    return linked({
        "proof.md": _page(*first),
        "proof-looks.md": looks_page(),
        "proof-planted.md": planted_page(sets),
    })  # fmt: skip


def looks_page() -> str:
    """Return the page of all looks but the newest first one, the newest first, as markdown."""
    newest, _ = first_looks()[0]
    return _page(
        "# Proof: all other looks",
        "What stands in [the first table of the proof](proof.md), program by program, but for the "
        "newest look, which stands there in full. [How it is scored](#limits).",
        *(part for each in _looks() if each[0] != newest for part in section(*each)),
    )


def _page(*parts: str) -> str:
    head = "<!-- Written by scripts/proof from recorded runs; do not edit. -->"
    return "\n\n".join((head, *parts)) + "\n"


def _looks() -> list[tuple[str, Look]]:
    """Return all recorded looks with their headings, the newest first."""
    found = [
        (heading, recorded_look(name))
        for name, heading in LOOKS.items()
        if (PROGRAMS / name).is_file()
    ]
    return sorted(reversed(found), key=lambda each: each[1].date, reverse=True)


def first_looks() -> list[tuple[str, Look]]:
    """Return the looks that are out of sample, the newest first."""
    return [(heading, look) for heading, look in _looks() if "in sample" not in heading]


def _judged(looks: Iterable[tuple[str, Look]]) -> list[Judged]:
    return [one for _, look in looks for one in look.judged]


def _sets() -> list[tuple[str, Look]]:
    """Return the first looks at programs of this project's sets, the newest first."""
    return [(heading, look) for heading, look in first_looks() if look.programs != PUBLIC]


def _answer() -> str:
    """Say in a sentence how right the newest sets were judged."""
    found = _shown(_judged(_sets()[:NEWEST]))
    cause, line, edited, near, within, twins = map(_part, found)
    return (
        f"**What prof says first names the right cause in {cause} of the programs of the newest "
        f"{NEWEST} sets**, which its rules had never seen. It begins with a line at fault in "
        f"{line}, with the one to edit in {edited}. The predicted gain is within a factor of 1.3 "
        f"of the measured one in {near}, within 1.5 in {within}. Of the fixed programs, {twins} "
        f"get no finding that promises more than {share(LARGE)} that is not there."
    )


def _glance() -> str:
    """Return the first table: what is asked, the newest sets together, and each set."""
    asked = _shown(_judged(first_looks()))
    lines = [
        f"| set, at its first look | programs | date | {' | '.join(one.head for one in asked)} |",
        f"| --- | ---: | --- |{' ---: |' * len(asked)}",
        f"| **asked** | | | {' | '.join(one.wanted and f'**{one.wanted}**' for one in asked)} |",
        _row(f"**newest {NEWEST} together**", "", _judged(_sets()[:NEWEST]), "**"),
    ]
    for heading, look in first_looks():
        name = heading.removesuffix(": first look").replace("Whole programs, ", "")
        title = "first set" if look.programs == OWN else name
        lines.append(_row(f"[{title}](#{anchor(heading)})", look.date, look.judged))
    return "\n".join(lines)


def _row(title: str, date: str, judged: Sequence[Judged], mark: str = "") -> str:
    cells = [f"{mark}{_part(one)}{mark}" for one in _shown(judged)]
    return f"| {title} | {len(judged)} | {date} | {' | '.join(cells)} |"


def _shown(judged: Sequence[Judged]) -> list[Score]:
    return [one for one in rows(judged) if one.head]


def _part(score: Score) -> str:
    if not score.of:
        return NA
    return f"{score.right / score.of:.0%}".replace("%", " %") + f" ({score.right} of {score.of})"


def _moved() -> str:
    """Say what the newest sets do better than the oldest ones."""
    newest, oldest = (_shown(_judged(some)) for some in (_sets()[:NEWEST], _sets()[-NEWEST:]))
    moves = [
        f"{now.head} {now.right / now.of - then.right / then.of:+.0%}"
        for now, then in zip(newest, oldest, strict=True)
    ]
    listed = ", ".join(moves).replace("%", " points").replace("-", "−")
    return (
        f"**What moves**, from the first {NEWEST} sets to the newest {NEWEST}: {listed}. One "
        f"program more or less of the newest set is {1 / len(_sets()[0][1].judged):.0%} points."
    ).replace("% points", " points")


def _small(sets: Sequence[Recording]) -> str:
    """Say how right small programs with one defect each were at their first looks."""
    listed = "; ".join(
        f"{one.title.lower()} {scores(one.look.score)}" for one in sets if one.look is not None
    )
    return f"**Small programs** with one defect each, at their first looks: {listed or NA}."
