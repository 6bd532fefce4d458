"""The sentences of a comparison on kernels: which take less time, which more, what they became."""

from __future__ import annotations

from collections.abc import Sequence

from nsight_prof.reports.compare.models import CompareView, KernelChange
from nsight_prof.reports.compare.scaling import added
from nsight_prof.reports.compare.wording import threshold
from nsight_prof.reports.formats import brief, counted, duration, listed, share

WIDTH = 36
MOST_ROWS = 3
"""Kernels and cases that a sentence names."""


def kernel_sentences(view: CompareView) -> list[str]:
    """Say which kernels changed most; where B has other work to do, beyond what that explains."""
    if view.work is not None:
        return _scaling(view, view.work)
    material, apart = threshold("material"), apart_stages(view)
    rows_ = [row for row in view.kernels if row.stage not in apart]
    large = [row for row in rows_ if abs(row.program or 0.0) >= material]
    told = []
    for verdicts, word in (
        (("faster", "less", "gone"), "Less time goes to"),
        (("slower", "more", "new"), "More time goes to"),
    ):
        rows = [row for row in large if row.total.verdict in verdicts]
        if rows:
            total = sum(added(row, 1.0) for row in rows)
            told.append(
                f"{word} {counted(len(rows), 'row')} of the kernel table, "
                f"{duration(abs(total))} in all; most: {_most(rows)}."
            )
    became = [row for row in rows_ if row.match in ("fused", "split")]
    if became:
        told.append(_fusions(became))
    same = sum(row.total.verdict == "same" for row in rows_)
    told.append(f"Within the noise: {same} of {counted(len(rows_), 'row')} of kernels.")
    moving = ("faster", "slower")
    small = sum(r.total.verdict in moving for r in rows_) - sum(
        r.total.verdict in moving for r in large
    )
    if small:
        told.append(
            f"{counted(small, 'row')} changed beyond the noise, but by less than {share(material)} "
            "of the program."
        )
    return told


def apart_stages(view: CompareView) -> frozenset[str]:
    """Return the stages that hold one-off work alone."""
    return frozenset(row.stage for row in view.kernels if row.one_off)


def _scaling(view: CompareView, work: float) -> list[str]:
    """Say which kernels cost more for a unit of work, and which less: seen at the work of B."""
    least = threshold("material") * sum(row.total.b or 0.0 for row in view.kernels)
    moved = [
        row
        for row in view.kernels
        if row.total.verdict not in ("same", "unknown") and abs(added(row, work)) >= least
    ]
    told = []
    for sign, word in ((-1, "less"), (1, "more")):
        rows = [row for row in moved if sign * added(row, work) > 0]
        if rows:
            total = sum(added(row, work) for row in rows)
            told.append(
                f"For the same work, {counted(len(rows), 'row')} of the kernel table "
                f"{'takes' if len(rows) == 1 else 'take'} {word} time in B, "
                f"{duration(abs(total))} in all; most: {_most(rows, work)}."
            )
    rest = len(view.kernels) - len(moved)
    return [*told, f"The other {counted(rest, 'row')} scale with the work or matter little."]


def _most(rows: Sequence[KernelChange], work: float = 1.0) -> str:
    return listed([_row(row, work) for row in rows[:MOST_ROWS]])


def _row(row: KernelChange, work: float = 1.0) -> str:
    moved = added(row, work)
    sign = "+" if moved > 0 else "-"
    name = brief((row.b or row.a)[0].short_name, WIDTH)
    return f"row {row.number} ({name}: {sign}{duration(abs(moved))}, {row.match_label})"


def _fusions(rows: Sequence[KernelChange]) -> str:
    before = sum(member.calls for row in rows for member in row.a)
    after = sum(member.calls for row in rows for member in row.b)
    spent = [
        sum(value or 0.0 for value in side)
        for side in ([row.total.a for row in rows], [row.total.b for row in rows])
    ]
    return (
        f"Fusing and splitting turned {before:,} launches ({duration(spent[0])}) into {after:,} "
        f"({duration(spent[1])})."
    )
