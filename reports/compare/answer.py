"""The findings of a comparison: what the program gained, where, and what of it is noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from nsight_prof.reports.compare import threshold
from nsight_prof.reports.compare.cases import SERVING
from nsight_prof.reports.compare.changes import QUIET, VERDICTS, Change, Comparison, PointChange
from nsight_prof.reports.compare.sides import VARIABLE, amount
from nsight_prof.reports.page import Evidence, Finding, Name, Number, Ref, Text, Value
from nsight_prof.reports.page.formats import brief, shorten

KERNELS = "kernel-changes"
"""Key of the table of kernels that changed; findings lead to its rows."""
WIDTH = 36
MAX_NAMES = 3
"""Kernels and cases that a finding names."""
MAX_STAGES = 4
NONE = Text("none")
MOVING = ("faster", "slower")

UNDECIDED = Text("Undecided, for single runs do not show their noise")
DIFFERENT = Text("A and B are different programs: the numbers compare them as a unit.")
OTHER_HOST = Text(
    "Another GPU may be in another host: wall time, idle time and latency depend on that."
)
REPEAT = Text("Repeat each side (--repeat-a, --repeat-b) to see smaller differences.")
WARM_UP = Text(
    "Totals include that work; warm up before the capture (capture: profiler-api) to leave it out."
)
MATCHING = (
    Text(
        "Kernels match by launch order within a stage: same name first, then the same position "
        "among products and attention. What remains between two matches became what ran there in "
        "the other run, by operators in names where these tell."
    ),
    Text("Every launch of both runs is in exactly one row: rows add up to the totals."),
)


def findings(found: Comparison) -> tuple[Finding, ...]:
    """Return what a reader should know first: the verdict, broken limits, and what changed."""
    of_kind = _of_cases(found) if found.kind == "bench" else _of_kernels(found)
    broken = [limit for limit in found.limits if limit.state == "broken"]
    limits = (
        Text("The limit {rule} is broken: {result}", rule=Name(x.rule), result=x.sentence)
        for x in broken
    )
    return (
        _verdict(found),
        *(Finding("limit", text) for text in limits),
        *_settings(found),
        *_one_off(found),
        *_queued(found),
        *of_kind,
        *_of_points(found),
    )


def _verdict(found: Comparison) -> Finding:
    known = {c.key: c for c in found.totals if c.ratio or c.verdict in ("new", "gone")}
    unit = "" if found.work is None else "_per_unit"
    gpu = known.get(f"steady_gpu_time{unit}") or known.get(f"total_gpu_time{unit}")
    user = known.get("step_time") if not unit else None
    changes = [c for c in (gpu, user or known.get(f"wall_time{unit}")) if c is not None]
    if found.repeated:
        # What the user waits for goes first where the GPU time shows no change.
        changes.sort(key=lambda c: c.verdict not in MOVING)
    if found.kind == "bench" and found.totals:
        changes = list(found.totals)
        verdict = _of_mean(found)
    elif changes:
        verdict = _of_program(changes)
    else:
        verdict = _of_serving(found)
    unsure = changes and not found.repeated and changes[0].verdict not in MOVING
    return Finding(
        "verdict",
        verdict,
        tuple(_evidence(found, {key: c for key, c in known.items() if c.ratio})),
        action=REPEAT if unsure else None,
        disproof=_doubts(found, changes[0] if changes else None),
    )


def _of_program(changes: Sequence[Change]) -> Text:
    first, *rest = changes
    values: dict[str, Value] = {
        "quantity": _quantity(first),
        "a": first.before or 0,
        "b": first.after or 0,
        "change": moved(first),
    }
    key = first.verdict
    is_faster = "gpu_time" not in first.key or (rest and rest[0].verdict == key)
    texts = {
        "faster": Text("B is faster: {quantity} {a} → {b} ({change}), beyond the noise", **values)
        if is_faster
        else Text("B needs less {quantity}: {a} → {b} ({change}), beyond the noise", **values),
        "slower": Text("B is slower: {quantity} {a} → {b} ({change}), beyond the noise", **values)
        if is_faster
        else Text("B needs more {quantity}: {a} → {b} ({change}), beyond the noise", **values),
        "same": Text("No difference in {quantity} beyond the noise: {a} → {b} ({change})",
                     **values),
        "unknown": Text("{verdict}: {quantity} {a} → {b} ({change})", verdict=UNDECIDED, **values),
        "new": Text("Only B has kernels"),
        "gone": Text("Only A has kernels"),
    }  # fmt: skip
    if not rest:
        return Text("{verdict}.", verdict=texts[key])
    also = Text("{quantity} {change}, {verdict}", quantity=_quantity(rest[0]),
                change=rest[0].relative or 0, verdict=VERDICTS[rest[0].verdict])  # fmt: skip
    if rest[0].relative and rest[0].relative.low is not None:
        interval = rest[0].relative.interval
        also = Text("{quantity} {change} (95 % interval {interval}), {verdict}",
                    interval=interval, **also.values)  # fmt: skip
    return Text("{verdict}; {also}.", verdict=texts[key], also=also)


def _quantity(c: Change) -> Text | str:
    return Text("step time") if c.key == "step_time" else c.label


def _of_mean(found: Comparison) -> Text:
    mean = found.totals[0]
    texts = {
        "faster": Text("B is faster, beyond the noise"),
        "slower": Text("B is slower, beyond the noise"),
        "same": Text("No difference beyond the noise"),
        "unknown": UNDECIDED,
    }
    return Text(
        "{verdict}: time per call {change}, geometric mean of {n} case.",
        "{verdict}: time per call {change}, geometric mean of {n} cases.",
        verdict=texts[mean.verdict], change=moved(mean),
        n=sum(c.ratio is not None for c in found.cases),
    )  # fmt: skip


def _of_serving(found: Comparison) -> Text:
    changes = [(p, c) for p in found.points for c in p.changes if c.verdict in MOVING]
    if not found.points:
        return Text("No quantity was measured in both runs.")
    if not changes:
        known = [(p, c) for p in found.points for c in p.changes if c.relative]
        if not known:
            return Text(
                "No difference beyond the noise at {n} serving point.",
                "No difference beyond the noise at {n} serving points.",
                n=len(found.points),
            )
        point, largest = max(known, key=_size)
        return Text(
            "No difference beyond the noise at {n} serving point; the largest: {quantity} at "
            "{point}, {change}.",
            "No difference beyond the noise at {n} serving points; the largest: {quantity} at "
            "{point}, {change}.",
            n=len(found.points), quantity=largest.label, point=Name(point.case),
            change=moved(largest),
        )  # fmt: skip
    point, largest = max(changes, key=_size)
    return Text(
        "{n} of {points} serving points differs beyond the noise, most of all in {quantity} at "
        "{point}: {change}.",
        "{n} of {points} serving points differ beyond the noise, most of all in {quantity} at "
        "{point}: {change}.",
        n=len({p.case for p, _ in changes}), points=len(found.points),
        quantity=largest.label, change=moved(largest), point=Name(point.case),
    )  # fmt: skip


def _size(pair: tuple[PointChange, Change]) -> float:
    return abs((pair[1].ratio or 1.0) - 1)


def moved(c: Change) -> Value:
    """Return the relative change with its interval where it has one."""
    number = c.relative or Number(None)
    if number.low is None or number.high is None:
        return number
    return Text("{change}, 95 % interval {interval}", change=number, interval=number.interval)


def _evidence(found: Comparison, known: Mapping[str, Change]) -> Iterator[Evidence | Text]:
    wall, gpu = known.get("wall_time"), known.get("total_gpu_time")
    if found.work is not None and gpu is not None:
        work = {"work": Number(found.work, "x"), "gpu": Number(gpu.ratio, "x")}
        if wall is None:
            yield Text("B does {work} the work of A in {gpu} the GPU time", **work)
        else:
            yield Text("B does {work} the work of A in {gpu} the GPU time and {wall} the wall time",
                       wall=Number(wall.ratio, "x"), **work)  # fmt: skip
    key = "gpu_time" if found.work is None else "gpu_time_per_unit"
    one_off = {row.stage for row in found.kernels if row.one_off}
    stages = [
        Text("{stage} {change}", stage=Name(stage.stage), change=c.relative or 0)
        for stage in found.stages
        if stage.on == "both" and stage.stage not in one_off
        for c in stage.changes
        if c.key == key and c.verdict in MOVING
    ]
    if len(found.stages) > 1 and stages:
        yield Evidence(Text("GPU time by stage:"), stages[:MAX_STAGES])
    yield from _busy(found, known)
    inside = [c for s in found.stages for c in s.changes if c.key == "wall_time"]
    if wall is not None and wall.a and wall.b and inside:
        a = 1 - sum(c.a or 0.0 for c in inside) / wall.a
        b = 1 - sum(c.b or 0.0 for c in inside) / wall.b
        if min(a, b) >= threshold("outside"):
            yield Text(
                "{a} of the wall time in A and {b} in B are outside of all stages (start, loading, "
                "compiling)", a=Number(a, "fraction"), b=Number(b, "fraction"),
            )  # fmt: skip


def _busy(found: Comparison, known: Mapping[str, Change]) -> Iterator[Text]:
    """Say how far the host and not the GPU sets the pace, where that differs."""
    step, wall, idle = (known.get(key) for key in ("step_busy", "wall_time", "idle_time"))
    if step is not None:
        a, b = step.a or 0.0, step.b or 0.0
    elif wall is not None and idle is not None and wall.a and wall.b and not found.one_off:
        a, b = 1 - (idle.a or 0.0) / wall.a, 1 - (idle.b or 0.0) / wall.b
    else:
        return
    shares = {"a": Number(a, "fraction"), "b": Number(b, "fraction")}
    if abs(a - b) >= threshold("busy"):
        yield (
            Text("the GPU works {a} of the wall time in A, {b} in B", **shares)
            if step is None
            else Text("kernels run {a} of the step time in A, {b} in B; the rest waits for the "
                      "host, which tracing slows", **shares)
        )  # fmt: skip


def _doubts(found: Comparison, first: Change | None) -> Text | None:
    """Say what else may explain the verdict."""
    doubts = []
    if first is not None and first.verdict == "same" and replace(first.noise, floor=0.0).differs:
        floor = Number(first.floor, "fraction")
        doubts.append(Text("Single runs cannot tell less than {floor}.", floor=floor))
    warned = [c for c in found.checks if c.level != "note" and c.key != "target"]
    if warned:
        facts = [c.label for c in warned]
        doubts.append(Text("The runs also differ in {facts}; see Comparability.", facts=facts))
    if any(c.key == "uuid" for c in warned) and (found.kernels or found.points):
        doubts.append(OTHER_HOST)
    if not doubts:
        return None
    return reduce(lambda a, b: Text("{first} {rest}", first=a, rest=b), doubts)


def _settings(found: Comparison) -> list[Finding]:
    """Say what was asked of the programs differently: every number depends on it."""
    if any(check.key == "target" for check in found.checks):
        return [Finding("program", DIFFERENT)]
    if not found.settings:
        return []
    settings: list[Value] = [
        Text("{name} {a} → {b}", name=c.label, a=shorten(c.a, 24), b=shorten(c.b, 24))
        for c in found.settings[:MAX_NAMES]
    ]
    if (rest := len(found.settings) - MAX_NAMES) > 0:
        settings.append(Text("{n} more", n=rest))
    counts = [
        str(c.label)
        for c in found.settings
        if None not in (amount(c.a), amount(c.b)) and not str(c.label).startswith(VARIABLE)
    ]
    action = None
    if counts and found.work is None:
        action = Text("If {argument} counts work, compare times per unit: {option}.",
                      argument=counts[0], option=Name(f"--per {counts[0]}"))  # fmt: skip
    verdict = Text("The programs were started differently: {settings}.", settings=settings)
    return [Finding("settings", verdict, action=action)]


def _one_off(found: Comparison) -> Iterator[Finding]:
    """Say which share of the totals is work that a loop does once."""
    for side in ("A", "B"):
        if not (of_side := [x for x in found.one_off if x.side == side]):
            continue
        stages = [
            Text("{odd} of {n} {stage}", odd=x.odd, n=x.instances, stage=Name(x.stage))
            for x in of_side
        ]
        verdict = Text(
            "{side} does one-off work, as compiling and tuning, in {stages}: {launches} launches "
            "and {time} of GPU time, listed apart.",
            side=side, stages=stages, launches=sum(x.launches for x in of_side),
            time=Number(sum(x.gpu_ns for x in of_side), "ns"),
        )  # fmt: skip
        yield Finding("one_off", verdict, action=WARM_UP)


def _queued(found: Comparison) -> Iterator[Finding]:
    """Say of stages with steps of two kinds how each kind changed: their mix compares nothing."""
    for stage in found.stages:
        kinds = {c.key: c for c in stage.changes}
        if "queued_step" not in kinds:
            continue
        queued, host = kinds["queued_step"], kinds["host_step"]
        yield Finding(
            "queued",
            Text(
                "In {stage}, some steps were queued before the GPU came to them, others wait for "
                "the host. Like compares with like: a queued step takes {queued_a} in A and "
                "{queued_b} in B, one that waits {host_a} and {host_b}. Wall and idle time mix "
                "both.",
                stage=Name(stage.stage), queued_a=queued.before or NONE,
                queued_b=queued.after or NONE, host_a=host.before or NONE,
                host_b=host.after or NONE,
            ),
        )  # fmt: skip


def _of_kernels(found: Comparison) -> Iterator[Finding]:
    """Say which kernels changed most; where B has other work to do, beyond what that explains."""
    rows = [row for row in found.kernels if found.work is not None or not row.one_off]
    if not rows:
        return
    time = sum((r.total.a if found.work is None else r.total.b) or 0.0 for r in rows)
    added = {row.number: row.added(found.work) for row in rows}
    minimum = threshold("material")
    changed = [
        row
        for row in rows
        if row.total.verdict not in QUIET and abs(added[row.number]) >= minimum * time
    ]
    for direction, sign in (("less", -1), ("more", 1)):
        if not (group := [row for row in changed if sign * added[row.number] > 0]):
            continue
        verdict = Text(
            "{n} row of kernels takes {time} {direction} in B{scope}.",
            "{n} rows of kernels take {time} {direction} in B{scope}.",
            n=len(group), direction=VERDICTS[direction],
            time=Number(abs(sum(added[row.number] for row in group)), "ns"),
            scope="" if found.work is None else Text(" for the same work"),
        )  # fmt: skip
        largest = []
        for row in group[:MAX_NAMES]:
            name = brief((row.b or row.a)[0].kernel.short_name, WIDTH)
            kernel = Name(name, Ref(KERNELS, str(row.number)))
            time_added = Number(abs(added[row.number]), "ns")
            largest.append(Text("{kernel} ({time})", kernel=kernel, time=time_added))
        yield Finding(f"{direction}_time", verdict, (Evidence(Text("largest:"), largest),))
    became = [row for row in rows if row.match in ("fused", "split")]
    if became and found.work is None:
        verdict = Text(
            "Fusing and splitting turned {a} launches ({before}) into {b} ({after}).",
            a=sum(row.calls[0] for row in became), b=sum(row.calls[1] for row in became),
            before=Number(sum(row.total.a or 0.0 for row in became), "ns"),
            after=Number(sum(row.total.b or 0.0 for row in became), "ns"),
        )  # fmt: skip
        yield Finding("fusion", verdict)
    same = sum(row.total.verdict == "same" for row in rows)
    verdict = Text("Within the noise: {same} of {n} rows of kernels.", same=same, n=len(rows))
    if small := len(rows) - len(changed) - same:
        verdict = Text(
            "Within the noise: {same} of {n} rows of kernels; {small} more changed the program by "
            "less than {minimum} or are undecided.",
            same=same, n=len(rows), small=small, minimum=Number(minimum, "fraction"),
        )  # fmt: skip
    yield Finding("unchanged", verdict)


def _of_cases(found: Comparison) -> Iterator[Finding]:
    both = [c for c in found.cases if c.ratio is not None]
    for key in ("slower", "faster"):
        if changed := [c for c in both if c.verdict == key]:
            text = Text("{n} case got {verdict}.", "{n} cases got {verdict}.", n=len(changed),
                        verdict=VERDICTS[key])  # fmt: skip
            largest = [
                Text("{case} ({change})", case=Name(str(c.label)), change=c.relative or 0)
                for c in changed[:MAX_NAMES]
            ]
            evidence = (Evidence(Text("largest:"), largest),)
            yield Finding(f"cases_{key}", text, evidence)
    if both:
        same = sum(c.verdict == "same" for c in both)
        text = Text("Within the noise: {same} of {n} cases.", same=same, n=len(both))
        yield Finding("cases_same", text)
    for key, side in (("gone", "A"), ("new", "B")):
        if n := sum(c.verdict == key for c in found.cases):
            text = Text("{n} case ran in {side} only.", "{n} cases ran in {side} only.", n=n,
                        side=side)  # fmt: skip
            yield Finding(f"cases_{key}", text)


def _of_points(found: Comparison) -> Iterator[Finding]:
    """Say how many serving points got better or worse in each metric."""
    for metric in SERVING:
        changes = [(p, c) for p in found.points for c in p.changes if c.key == metric.column]
        changed = [(p, c) for p, c in changes if c.verdict in MOVING and c.ratio]
        if not changed:
            continue
        point, largest = max(changed, key=_size)
        better = sum(c.verdict == "faster" for _, c in changed)
        verdict = Text(
            "{metric}: better at {better}, worse at {worse} of {n} serving points; largest change "
            "{change} at {point}.",
            metric=metric.label, better=better, worse=len(changed) - better, n=len(changes),
            change=largest.relative or 0, point=Name(point.case),
        )  # fmt: skip
        yield Finding(metric.column, verdict)


def method(found: Comparison) -> tuple[Text, ...]:
    """Say how kernels were matched and what counts as noise."""
    return tuple(_method(found))


def _method(found: Comparison) -> Iterator[Text]:
    floor = Number(threshold("floor"), "fraction")
    specimen = Number(threshold("specimen_floor"), "fraction")
    if found.kind == "profile":
        yield from MATCHING
    if found.repeated:
        yield Text(
            "Noise: 95 % t interval of the ratio from {a} and {b} complete runs. Times are "
            "geometric means of these runs.", a=found.a.runs, b=found.b.runs,
        )  # fmt: skip
    elif found.kind == "profile":
        yield Text(
            "Noise: 95 % t interval of the ratio from the launches within one run each. Launches "
            "of one run share clock and temperature, so differences below {floor} count as noise, "
            "and below {specimen} for kernels on GPUs that differ or are not known. Repeats of "
            "each side show the real noise.", floor=floor, specimen=specimen,
        )  # fmt: skip
        single = Number(threshold("single"), "fraction")
        yield Text(
            "A kernel with one launch per side has no interval: differences below {single} stay "
            "undecided.", single=single,
        )  # fmt: skip
    else:
        yield Text(
            "Noise: 95 % interval of the ratio, from fresh processes and repeats where both runs "
            "have several, else from samples. Differences below {floor} count as noise, and below "
            "{specimen} on GPUs that differ or are not known. Repeats of each run show the real "
            "noise.", floor=floor, specimen=specimen,
        )  # fmt: skip
    if found.one_off:
        times = Number(threshold("one_off_launches"), "x", digits=1)
        yield Text(
            "Instances of a stage with more than {times} the launches of the median instance are "
            'a stage of their own on both sides ("first"), so that the usual ones compare.',
            times=times,
        )
    rows = len(found.kernels) or len(found.cases)
    if rows >= 20:
        yield Text("At 95 %, about {n} of {rows} rows may differ by chance alone.",
                   n=round(rows * 0.05), rows=rows)  # fmt: skip
