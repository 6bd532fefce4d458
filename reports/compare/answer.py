"""The sentences of a comparison: what the program gained, where, and what of it is noise."""

from __future__ import annotations

from collections.abc import Mapping

from nsight_prof.reports.compare.answer_kernels import MOST_ROWS, apart_stages, kernel_sentences
from nsight_prof.reports.compare.models import Change, CompareView
from nsight_prof.reports.compare.sides import VARIABLE, amount
from nsight_prof.reports.compare.wording import section, threshold
from nsight_prof.reports.formats import change as ratio_change
from nsight_prof.reports.formats import (
    counted,
    difference,
    duration,
    listed,
    quantity,
    share,
    shorten,
    speedup,
)


def answer(view: CompareView) -> list[str]:
    """Return what a reader should know first: rules, the program, its stages, its kernels."""
    told = _rules(view)
    work = _work(view)
    if _other_program(view):
        told, work = told + work, []
    if view.kind == "bench":
        told += [*work, *_cases(view)]
    else:
        first, *rest = _program(view) or [""]
        told += [s for s in (first, *work, *rest, *_stages(view), *kernel_sentences(view)) if s]
    return [*told, *_points(view), *_doubt(view)]


def _rules(view: CompareView) -> list[str]:
    broken = [limit for limit in view.limits if limit.state == "broken"]
    return [f"The limit {limit.rule} is broken: {limit.sentence}" for limit in broken]


def _program(view: CompareView) -> list[str]:
    """Say what the program gained: per unit of work, else per step, else in all."""
    known = {change.key: change for change in view.totals if change.ratio}
    told = []
    if view.work is not None:
        told += _per_unit(view, known)
    step, steady = known.get("step_time"), known.get("steady_gpu_time")
    if step is not None:
        told.append(_time(f"The {step.label}", step))
    told += _busy(known, bool(view.one_off))
    if steady is not None:
        told.append(_time(f"The {steady.label}", steady))
    told += _one_off(view)
    if view.work is None:
        for key, subject in (
            ("total_gpu_time", "The GPU time of all kernels"),
            ("wall_time", "The wall time of the capture"),
        ):
            if key in known:
                told.append(_time(subject, known[key]))
    return told + _outside(view, known)


def _per_unit(view: CompareView, known: Mapping[str, Change]) -> list[str]:
    """Say the work first: all totals hang on it."""
    told = []
    wall, gpu = known.get("wall_time"), known.get("total_gpu_time")
    spent = [
        f"{speedup(c.ratio)} the {label}"
        for c, label in ((wall, "wall time"), (gpu, "GPU time"))
        if c is not None
    ]
    if spent:
        told.append(f"B does {speedup(view.work)} the work of A in {listed(spent)}.")
    keys = ("wall_time_per_unit", "total_gpu_time_per_unit")
    return told + [_time(f"The {known[key].label}", known[key]) for key in keys if key in known]


def _busy(known: Mapping[str, Change], one_off: bool) -> list[str]:
    """Say how far the host and not the GPU sets the pace, where that differs."""
    step, wall, idle = (known.get(key) for key in ("step_busy", "wall_time", "idle_time"))
    if step is not None:
        shares = [step.a, step.b]
    elif wall is not None and idle is not None and not one_off:
        shares = [
            1 - (of or 0.0) / all_ for of, all_ in ((idle.a, wall.a), (idle.b, wall.b)) if all_
        ]
    else:
        return []
    a, b = (value or 0.0 for value in shares)
    if abs(a - b) < threshold("busy"):
        return []
    what = "kernels run" if step is not None else "the GPU works"
    return [
        f"In A {what} {share(a)} of that time, in B {share(b)}: the rest waits for the host, "
        "which tracing slows."
        if step is not None
        else f"In A {what} {share(a)} of the wall time, in B {share(b)}."
    ]


def _one_off(view: CompareView) -> list[str]:
    """Say which part of the totals is work that a loop does once."""
    told = []
    for side in ("A", "B"):
        mine = [one for one in view.one_off if one.side == side]
        if not mine:
            continue
        launches, spent = sum(one.launches for one in mine), sum(one.gpu_ns for one in mine)
        where = listed([f"{one.odd} of {one.instances} {one.stage}" for one in mine])
        told.append(
            f"{side} does work in {where} that the others do not, as compiling and tuning do: "
            f"{counted(launches, 'launch')} and {duration(spent)} of GPU time, kept apart below."
        )
    if told:
        told.append(
            "Totals hold that work; warm up before the capture (capture: profiler-api) to leave "
            "it out."
        )
    return told


def _outside(view: CompareView, known: Mapping[str, Change]) -> list[str]:
    """Say where the wall time is that of starting the program, not of its stages."""
    wall = known.get("wall_time")
    stages = [c for s in view.stages for c in s.changes if c.key == "wall_time"]
    if wall is None or not stages or not wall.a or not wall.b:
        return []
    inside = [sum(c.a or 0.0 for c in stages) / wall.a, sum(c.b or 0.0 for c in stages) / wall.b]
    if 1 - max(inside) < threshold("outside"):
        return []
    return [
        f"Of the wall time, {share(1 - inside[0])} in A and {share(1 - inside[1])} in B lie "
        "outside of all stages (start, loading, compiling): it says little about them."
    ]


def _time(subject: str, change: Change) -> str:
    values = f"{_value(change.a, change)} in A, {_value(change.b, change)} in B"
    change_ = ratio_change(change.ratio)
    if change.verdict == "same":
        words = f"{subject} is the same within the noise: {values} ({change_}{_plus_minus(change)})"
        if (
            change.low is not None
            and change.high is not None
            and not change.low <= 1 <= change.high
        ):
            return f"{words}; single runs cannot tell less than {share(change.floor)}."
        return f"{words}."
    if change.verdict == "faster":
        return (
            f"{subject} falls: {values} ({change_}{_plus_minus(change)}, {_times(change)} as fast)."
        )
    if change.verdict == "slower":
        return f"{subject} grows: {values} ({change_}{_plus_minus(change)})."
    return f"{subject}: {values} ({change_}); one run each does not show whether that is noise."


def _times(change: Change) -> str:
    return speedup(1 / change.ratio) if change.ratio else ""


def _plus_minus(change: Change) -> str:
    if change.low is None or change.high is None:
        return ""
    return f", 95 % interval {ratio_change(change.low)} to {ratio_change(change.high)}"


def _value(value: float | None, change: Change) -> str:
    if change.unit == "s" and value is not None:
        return duration(value * 1e9)
    return quantity(value, change.unit)


def _stages(view: CompareView) -> list[str]:
    parts = []
    key = "gpu_time" if view.work is None else "gpu_time_per_unit"
    apart = apart_stages(view)
    for stage in (s for s in view.stages if s.stage not in apart):
        gpu = next((c for c in stage.changes if c.key == key), None)
        if stage.on == "both" and gpu and gpu.ratio and gpu.verdict in ("faster", "slower"):
            parts.append(f"{stage.stage} {ratio_change(gpu.ratio)}")
    if len(view.stages) < 2 or not parts:
        return []
    unit = f" per {view.unit}" if view.work is not None else ""
    return [f"By stage, GPU time of kernels{unit}: {listed(parts[:4])}."]


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


def _other_program(view: CompareView) -> bool:
    return any(check.key == "target" for check in view.checks)


def _work(view: CompareView) -> list[str]:
    """Say what was asked of the programs differently: every number hangs on it."""
    if _other_program(view):
        return ["A and B are different programs: numbers compare them as wholes."]
    if not view.settings:
        return []
    parts = [
        f"{c.label} {shorten(c.a, 24)} → {shorten(c.b, 24)}" for c in view.settings[:MOST_ROWS]
    ]
    rest = len(view.settings) - MOST_ROWS
    more = f" and {rest} more" if rest > 0 else ""
    started = f"The programs were started differently ({', '.join(parts)}{more})"
    counts = [
        c.label
        for c in view.settings
        if None not in (amount(c.a), amount(c.b)) and not c.label.startswith(VARIABLE)
    ]
    if view.work is not None or not counts:
        return [f"{started}."]
    return [f"{started}: if {counts[0]} counts work, compare with --per {counts[0]}."]


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
    if view.one_off:
        times = f"{threshold('one_off_launches'):g}"
        told.append(
            f"Instances of a stage with more than {times} times the launches of the median one are "
            'a stage of their own on both sides ("first"), so that the usual ones compare.'
        )
    rows = len(view.kernels) or len(view.cases)
    if rows >= 20:
        told.append(
            f"At 95 %, about {round(rows * 0.05)} of {rows} rows may differ by chance alone."
        )
    return told
