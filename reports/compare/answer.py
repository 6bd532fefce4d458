"""The sentences of a comparison: what the program gained, where, and what of it is noise."""

from __future__ import annotations

from collections.abc import Sequence

from reports.compare.models import Change, CompareView, KernelChange
from reports.compare.wording import section, threshold
from reports.formats import (
    brief,
    counted,
    difference,
    duration,
    listed,
    quantity,
    share,
    shorten,
    speedup,
)

WIDTH = 36
MOST_ROWS = 3
"""Kernels and cases that a sentence names."""


def answer(view: CompareView) -> list[str]:
    """Return what a reader should know first: rules, the program, its stages, its kernels."""
    told = [*_rules(view), *_work(view)]
    if view.kind == "bench":
        told += _cases(view)
    else:
        told += [*_program(view), *_stages(view), *_kernels(view)]
    return [*told, *_points(view), *_doubt(view)]


def _rules(view: CompareView) -> list[str]:
    broken = [limit for limit in view.limits if limit.state == "broken"]
    return [f"The limit {limit.rule} is broken: {limit.sentence}" for limit in broken]


def _program(view: CompareView) -> list[str]:
    known = {change.key: change for change in view.totals}
    gpu, wall = known.get("total_gpu_time"), known.get("wall_time")
    told = []
    if gpu is not None and gpu.ratio:
        told.append(_time("The GPU time of all kernels", gpu))
    if wall is not None and wall.ratio:
        told.append(_time("The wall time of the capture", wall))
    told += [_time(f"The {c.label}", c) for c in view.totals if c.key.endswith("_per_unit")]
    return told


def _time(subject: str, change: Change) -> str:
    values = f"{_value(change.a, change)} in A, {_value(change.b, change)} in B"
    moved = difference((change.ratio or 1.0) - 1)
    if change.verdict == "same":
        words = f"{subject} is the same within the noise: {values} ({moved}{_plus_minus(change)})"
        if (
            change.low is not None
            and change.high is not None
            and not change.low <= 1 <= change.high
        ):
            return f"{words}; single runs cannot tell less than {share(change.floor)}."
        return f"{words}."
    if change.verdict == "faster":
        return (
            f"{subject} falls: {values} ({moved}{_plus_minus(change)}, {_times(change)} as fast)."
        )
    if change.verdict == "slower":
        return f"{subject} grows: {values} ({moved}{_plus_minus(change)})."
    return f"{subject}: {values} ({moved}); one run each does not show whether that is noise."


def _times(change: Change) -> str:
    return speedup(1 / change.ratio) if change.ratio else ""


def _plus_minus(change: Change) -> str:
    if change.low is None or change.high is None:
        return ""
    return f", 95 % interval {difference(change.low - 1)} to {difference(change.high - 1)}"


def _value(value: float | None, change: Change) -> str:
    if change.unit == "s" and value is not None:
        return duration(value * 1e9)
    return quantity(value, change.unit)


def _stages(view: CompareView) -> list[str]:
    parts = []
    for stage in view.stages:
        gpu = next((c for c in stage.changes if c.key == "gpu_time"), None)
        if stage.on == "both" and gpu and gpu.ratio and gpu.verdict in ("faster", "slower"):
            parts.append(f"{stage.stage} {difference(gpu.ratio - 1)}")
    if len(view.stages) < 2 or not parts:
        return []
    return [f"By stage, GPU time of kernels: {listed(parts[:4])}."]


def _kernels(view: CompareView) -> list[str]:
    material = threshold("material")
    large = [row for row in view.kernels if abs(row.program or 0.0) >= material]
    told = []
    for verdicts, word in (
        (("faster", "less", "gone"), "Less time goes to"),
        (("slower", "more", "new"), "More time goes to"),
    ):
        rows = [row for row in large if row.total.verdict in verdicts]
        if rows:
            named = listed([_row(row) for row in rows[:MOST_ROWS]])
            total = sum((row.total.b or 0.0) - (row.total.a or 0.0) for row in rows)
            told.append(
                f"{word} {counted(len(rows), 'row')} of the kernel table, "
                f"{duration(abs(total))} in all; most: {named}."
            )
    became = [row for row in view.kernels if row.match in ("fused", "split")]
    if became:
        told.append(_fusions(became))
    same = sum(row.total.verdict == "same" for row in view.kernels)
    told.append(f"Within the noise: {same} of {counted(len(view.kernels), 'row')} of kernels.")
    small = sum(row.total.verdict in ("faster", "slower") for row in view.kernels) - sum(
        row.total.verdict in ("faster", "slower") for row in large
    )
    if small:
        told.append(
            f"{counted(small, 'row')} changed beyond the noise, but by less than {share(material)} "
            "of the program."
        )
    return told + _scaling(view)


def _scaling(view: CompareView) -> list[str]:
    """Say which kernels grow faster than the work."""
    if view.work is None:
        return []
    grown = [row for row in view.kernels if row.total.ratio and row.total.a and row.total.b]
    over = [row for row in grown if (row.total.ratio or 0.0) > view.work * (1 + row.total.floor)]
    told = f"B does {speedup(view.work)} the work: {counted(len(over), 'row')} of {len(grown)} "
    if not over:
        return [f"{told}grow by more, so every kernel costs less per unit of work."]
    worst = max(
        over, key=lambda row: (row.total.b or 0.0) - (row.total.a or 0.0) * (view.work or 1)
    )
    return [f"{told}grow by more; most: kernel {worst.number}."]


def _row(row: KernelChange) -> str:
    moved = (row.total.b or 0.0) - (row.total.a or 0.0)
    sign = "+" if moved > 0 else "-"
    name = brief((row.b or row.a)[0].short_name, WIDTH)
    known = "" if row.match == "identical" else f", {row.match_label}"
    return f"{row.number}. {name} ({sign}{duration(abs(moved))}{known})"


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


def _cases(view: CompareView) -> list[str]:
    if not view.cases:
        return []
    both = [c for c in view.cases if c.ratio is not None]
    told = []
    if view.totals:
        mean = view.totals[0]
        told.append(
            f"Over {counted(len(both), 'case')} that both runs measured, the time of B is "
            f"{speedup(mean.ratio)} that of A (geometric mean{_plus_minus(mean)})."
        )
    for verdict in ("slower", "faster"):
        rows = [c for c in both if c.verdict == verdict]
        if rows:
            named = listed(
                [f"{c.label} ({difference((c.ratio or 1) - 1)})" for c in rows[:MOST_ROWS]]
            )
            told.append(f"{counted(len(rows), 'case')} got {verdict}; most: {named}.")
    same = sum(c.verdict == "same" for c in both)
    if both:
        told.append(f"Within the noise: {same} of {counted(len(both), 'case')}.")
    for verdict, where in (("gone", "A"), ("new", "B")):
        alone = sum(c.verdict == verdict for c in view.cases)
        if alone:
            told.append(f"{counted(alone, 'case')} ran in {where} only.")
    return told


def _points(view: CompareView) -> list[str]:
    """Say how many points got better or worse in each metric."""
    told = []
    for entry in section("serving"):
        changes = [(p, c) for p in view.points for c in p.changes if c.key == entry["column"]]
        moved = [(p, c) for p, c in changes if c.verdict in ("faster", "slower") and c.ratio]
        if moved:
            point, worst = max(moved, key=lambda pair: abs((pair[1].ratio or 1.0) - 1))
            better = sum(c.verdict == "faster" for _, c in moved)
            told.append(
                f"{entry['label'].capitalize()}: better at {better}, worse at "
                f"{len(moved) - better} of {counted(len(changes), 'serving point')}; the largest "
                f"change is {difference((worst.ratio or 1.0) - 1)}, at {point.case}."
            )
    if view.points and not told:
        told.append(
            f"{counted(len(view.points), 'serving point')} differ by no more than the noise."
        )
    return told


def _work(view: CompareView) -> list[str]:
    """Say what was asked of the programs differently: every number hangs on it."""
    if any(check.key == "target" for check in view.checks):
        return ["A and B are different programs: numbers compare them as wholes."]
    if not view.settings:
        return []
    parts = [
        f"{c.label} {shorten(c.a, 24)} → {shorten(c.b, 24)}" for c in view.settings[:MOST_ROWS]
    ]
    rest = len(view.settings) - MOST_ROWS
    more = f" and {rest} more" if rest > 0 else ""
    started = f"The programs were started differently ({', '.join(parts)}{more})"
    if view.work is not None:
        return [f"{started}."]
    return [f"{started}: where B has more or less work to do, compare per unit of work (--per)."]


def _doubt(view: CompareView) -> list[str]:
    warned = [c.label for c in view.checks if c.level in ("refuse", "warn") and c.key != "target"]
    if not warned:
        return []
    told = [f"The runs also differ in {listed(warned)}; see Comparability."]
    if any(c.key == "uuid" for c in view.checks) and (view.kernels or view.points):
        told.append(
            "Another GPU may stand in another host: wall time, idle time and latency hang on it."
        )
    return told


def method(view: CompareView) -> list[str]:
    """Say how kernels were matched and what counts as noise."""
    single, floor = share(threshold("single")), share(threshold("floor"))
    specimen = share(threshold("specimen_floor"))
    told = []
    if view.kind == "profile":
        told += [
            "Kernels match by launch order within a stage: same name first, then the same place "
            "among products and attention. What is left between two matches became what stands "
            "there in the other run, by operators in names where these tell.",
            "Every launch of both runs stands in exactly one row, so rows add up to the totals.",
        ]
    if view.a.runs + view.b.runs > 2:
        told.append(
            f"Noise: 95 % t interval of the ratio from {view.a.runs} and {view.b.runs} whole runs. "
            "Times are geometric means of these runs."
        )
    elif view.kind == "profile":
        told += [
            "Noise: 95 % t interval of the ratio from the launches within one run each. Launches "
            f"of one run share clock and heat, so differences below {floor} are noise as well, and "
            f"below {specimen} for kernels on GPUs that differ or are not known. Repeats of each "
            "side show the real noise.",
            f"What ran once a side has no interval: differences below {single} stay undecided.",
        ]
    else:
        told.append(
            "Noise: 95 % interval of the ratio, from fresh processes and repeats where both runs "
            f"have several, else from samples. Differences below {floor} are noise as well, and "
            f"below {specimen} on GPUs that differ or are not known; repeats of each run show the "
            "real noise."
        )
    rows = len(view.kernels) or len(view.cases)
    if rows >= 20:
        told.append(
            f"At 95 %, about {round(rows * 0.05)} of {rows} rows may differ by chance alone."
        )
    return told
