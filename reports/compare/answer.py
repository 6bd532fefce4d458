"""The findings of a comparison: what the program gained, where, and what of it is noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nsight_prof.reports.compare import threshold
from nsight_prof.reports.compare.cases import SERVING
from nsight_prof.reports.compare.changes import QUIET, VERDICTS, Change, Comparison, KernelChange
from nsight_prof.reports.compare.sides import VARIABLE, amount
from nsight_prof.reports.formats import brief, shorten
from nsight_prof.reports.page import Evidence, Finding, Name, Number, Ref, Text, Value

KERNELS = "kernel-changes"
"""Key of the table of kernels that changed; findings lead to its rows."""
WIDTH = 36
MAX_NAMES = 3
"""Kernels and cases that a finding names."""
MAX_STAGES = 4
MOVING = ("faster", "slower")

UNDECIDED = Text("Undecided, for single runs do not show their noise")
DIFFERENT = Text("A and B are different programs: the numbers compare them as a unit.")
OTHER_HOST = Text(
    "Another GPU may be in another host: wall time, idle time and latency depend on that."
)


def findings(found: Comparison) -> tuple[Finding, ...]:
    """Return what a reader should know first: the verdict, broken limits, and what changed."""
    broken = [x for x in found.limits if x.state == "broken"]
    of_kind = _of_cases(found) if found.kind == "bench" else _of_kernels(found)
    return (
        *_verdict(found),
        *(Finding("limit", Text("The limit {rule} is broken: {result}", rule=Name(x.rule),
                                result=x.sentence)) for x in broken),
        *_settings(found),
        *_one_off(found),
        *of_kind,
        *_of_points(found),
    )  # fmt: skip


def _verdict(found: Comparison) -> list[Finding]:
    known = {c.key: c for c in found.totals if c.ratio or c.verdict in ("new", "gone")}
    unit = "" if found.work is None else "_per_unit"
    gpu = known.get(f"steady_gpu_time{unit}") or known.get(f"total_gpu_time{unit}")
    user = (
        known.get("wall_time_per_unit") if unit else known.get("step_time", known.get("wall_time"))
    )
    changes = [c for c in (gpu, user) if c is not None]
    if found.repeated:
        # What the user waits for goes first where the GPU time shows no change.
        changes.sort(key=lambda c: c.verdict not in MOVING)
    if found.kind == "bench" and found.totals:
        verdict = _of_mean(found)
        changes = [found.totals[0]]
    elif changes:
        verdict = _of_program(changes)
    elif found.points:
        verdict = _of_serving(found)
    else:
        verdict = Text("No quantity was measured in both runs.")
    unsure = changes and not found.repeated and changes[0].verdict not in MOVING
    action = Text("Repeat each side (--repeat-a, --repeat-b) to see smaller differences.")
    return [
        Finding(
            "verdict",
            verdict,
            tuple(_evidence(found, {c.key: c for c in found.totals if c.ratio})),
            action=action if unsure else None,
            disproof=_doubts(found, changes[0] if changes else None),
        )
    ]


def _of_program(changes: Sequence[Change]) -> Text:
    first, *rest = changes
    values: dict[str, Value] = {
        "quantity": _quantity(first),
        "a": first.before or 0,
        "b": first.after or 0,
        "change": moved(first),
    }
    texts = {
        "faster": Text("B needs less {quantity}: {a} → {b} ({change}), beyond the noise", **values),
        "slower": Text("B needs more {quantity}: {a} → {b} ({change}), beyond the noise", **values),
        "same": Text("No difference in {quantity} beyond the noise: {a} → {b} ({change})",
                     **values),
        "unknown": Text("{verdict}: {quantity} {a} → {b} ({change})", verdict=UNDECIDED, **values),
        "new": Text("Only B has kernels"),
        "gone": Text("Only A has kernels"),
    }  # fmt: skip
    key = first.verdict
    if "gpu_time" not in first.key or (rest and rest[0].verdict == key):
        texts |= {
            "faster": Text("B is faster: {quantity} {a} → {b} ({change}), beyond the noise",
                           **values),
            "slower": Text("B is slower: {quantity} {a} → {b} ({change}), beyond the noise",
                           **values),
        }  # fmt: skip
    if not rest:
        return Text("{verdict}.", verdict=texts[key])
    return Text("{verdict}; {also}.", verdict=texts[key], also=_also(rest[0]))


def _quantity(c: Change) -> Text | str:
    return Text("step time") if c.key == "step_time" else c.label


def _also(c: Change) -> Text:
    values: dict[str, Value] = {
        "quantity": _quantity(c),
        "change": c.relative or Number(None),
        "verdict": VERDICTS[c.verdict],
    }
    if c.low is None or c.high is None:
        return Text("{quantity} {change}, {verdict}", **values)
    interval = Number(None, "change", low=c.low - 1, high=c.high - 1).interval
    return Text(
        "{quantity} {change} (95 % interval {interval}), {verdict}", interval=interval, **values
    )


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
        verdict=texts[mean.verdict],
        change=moved(mean),
        n=sum(c.ratio is not None for c in found.cases),
    )


def _of_serving(found: Comparison) -> Text:
    changes = [(p, c) for p in found.points for c in p.changes if c.verdict in MOVING]
    if not changes:
        return Text(
            "No difference beyond the noise at {n} serving point.",
            "No difference beyond the noise at {n} serving points.",
            n=len(found.points),
        )
    point, largest = max(changes, key=lambda pair: abs((pair[1].ratio or 1.0) - 1))
    return Text(
        "{n} of {points} serving points differs beyond the noise, most of all in {quantity} at "
        "{point}: {change}.",
        "{n} of {points} serving points differ beyond the noise, most of all in {quantity} at "
        "{point}: {change}.",
        n=len({p.case for p, _ in changes}),
        points=len(found.points),
        quantity=largest.label,
        change=moved(largest),
        point=Name(point.case),
    )


def moved(c: Change) -> Value:
    """Return the relative change with its interval where it has one."""
    number = c.relative or Number(None)
    if number.low is None or number.high is None:
        return number
    return Text("{change}, 95 % interval {interval}", change=number, interval=number.interval)


def _evidence(found: Comparison, known: dict[str, Change]) -> list[Evidence | Text]:
    evidence: list[Evidence | Text] = []
    wall, gpu = known.get("wall_time"), known.get("total_gpu_time")
    if found.work is not None and gpu is not None:
        work = {"work": Number(found.work, "x"), "gpu": Number(gpu.ratio, "x")}
        evidence.append(
            Text("B does {work} the work of A in {gpu} the GPU time", **work)
            if wall is None
            else Text("B does {work} the work of A in {gpu} the GPU time and {wall} the wall time",
                      wall=Number(wall.ratio, "x"), **work)
        )  # fmt: skip
    evidence += _by_stage(found)
    evidence += _busy(found, known)
    return evidence + _outside(found, known)


def _by_stage(found: Comparison) -> list[Evidence | Text]:
    """Say in which stages the GPU time changed."""
    key = "gpu_time" if found.work is None else "gpu_time_per_unit"
    one_off = {row.stage for row in found.kernels if row.one_off}
    both = [s for s in found.stages if s.on == "both" and s.stage not in one_off]
    changes = [
        Text("{stage} {change}", stage=Name(stage.stage), change=c.relative or 0)
        for stage in both
        for c in stage.changes
        if c.key == key and c.verdict in MOVING
    ]
    if len(found.stages) < 2 or not changes:
        return []
    return [Evidence(Text("GPU time by stage:"), changes[:MAX_STAGES])]


def _busy(found: Comparison, known: dict[str, Change]) -> list[Evidence | Text]:
    """Say how far the host and not the GPU sets the pace, where that differs."""
    step, wall, idle = (known.get(key) for key in ("step_busy", "wall_time", "idle_time"))
    if step is not None:
        a, b = step.a or 0.0, step.b or 0.0
    elif wall is not None and idle is not None and wall.a and wall.b and not found.one_off:
        a, b = 1 - (idle.a or 0.0) / wall.a, 1 - (idle.b or 0.0) / wall.b
    else:
        return []
    if abs(a - b) < threshold("busy"):
        return []
    shares = {"a": Number(a, "fraction"), "b": Number(b, "fraction")}
    if step is None:
        return [Text("the GPU works {a} of the wall time in A, {b} in B", **shares)]
    return [
        Text(
            "kernels run {a} of the step time in A, {b} in B; the rest waits for the host, which "
            "tracing slows",
            **shares,
        )
    ]


def _outside(found: Comparison, known: dict[str, Change]) -> list[Evidence | Text]:
    """Say where the wall time is that of starting the program, not of its stages."""
    wall = known.get("wall_time")
    stages = [c for s in found.stages for c in s.changes if c.key == "wall_time"]
    if wall is None or not stages or not wall.a or not wall.b:
        return []
    a, b = (
        1 - sum(c.a or 0.0 for c in stages) / wall.a,
        1 - sum(c.b or 0.0 for c in stages) / wall.b,
    )
    if min(a, b) < threshold("outside"):
        return []
    return [
        Text(
            "{a} of the wall time in A and {b} in B are outside of all stages (start, loading, "
            "compiling)",
            a=Number(a, "fraction"),
            b=Number(b, "fraction"),
        )
    ]


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
    return joined(doubts)


def joined(texts: Sequence[Text]) -> Text | None:
    """Return sentences one after the other; None for none."""
    if not texts:
        return None
    first, *rest = texts
    after = joined(rest)
    return first if after is None else Text("{first} {rest}", first=first, rest=after)


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
        action = Text(
            "If {argument} counts work, compare times per unit: {option}.",
            argument=counts[0],
            option=Name(f"--per {counts[0]}"),
        )
    verdict = Text("The programs were started differently: {settings}.", settings=settings)
    return [Finding("settings", verdict, action=action)]


def _one_off(found: Comparison) -> list[Finding]:
    """Say which share of the totals is work that a loop does once."""
    result = []
    for side in ("A", "B"):
        of_side = [x for x in found.one_off if x.side == side]
        if not of_side:
            continue
        stages = [
            Text("{odd} of {n} {stage}", odd=x.odd, n=x.instances, stage=Name(x.stage))
            for x in of_side
        ]
        result.append(
            Finding(
                "one_off",
                Text(
                    "{side} does one-off work, as compiling and tuning, in {stages}: {launches} "
                    "launches and {time} of GPU time, listed apart.",
                    side=side,
                    stages=stages,
                    launches=sum(x.launches for x in of_side),
                    time=Number(sum(x.gpu_ns for x in of_side), "ns"),
                ),
                action=Text(
                    "Totals include that work; warm up before the capture (capture: profiler-api) "
                    "to leave it out."
                ),
            )
        )
    return result


def _of_kernels(found: Comparison) -> list[Finding]:
    """Say which kernels changed most; where B has other work to do, beyond what that explains."""
    rows = [row for row in found.kernels if found.work is not None or not row.one_off]
    if not rows:
        return []
    time = sum((r.total.a if found.work is None else r.total.b) or 0.0 for r in rows)
    added = {row.number: row.added(found.work) for row in rows}
    changed = [
        row
        for row in rows
        if row.total.verdict not in QUIET and abs(added[row.number]) >= threshold("material") * time
    ]
    less = [row for row in changed if added[row.number] < 0]
    more = [row for row in changed if added[row.number] > 0]
    result = []
    for rule, group in (("less_time", less), ("more_time", more)):
        if not group:
            continue
        values: dict[str, Value] = {
            "n": len(group),
            "time": Number(abs(sum(added[row.number] for row in group)), "ns"),
            "scope": "" if found.work is None else Text(" for the same work"),
        }
        verdict = Text(
            "{n} row of kernels takes {time} more in B{scope}.",
            "{n} rows of kernels take {time} more in B{scope}.",
            **values,
        )
        if rule == "less_time":
            verdict = Text(
                "{n} row of kernels takes {time} less in B{scope}.",
                "{n} rows of kernels take {time} less in B{scope}.",
                **values,
            )
        largest: list[Value] = [
            Text(
                "{kernel} ({time})",
                kernel=Name(brief((row.b or row.a)[0].kernel.short_name, WIDTH),
                            Ref(KERNELS, str(row.number))),
                time=Number(abs(added[row.number]), "ns"),
            )
            for row in group[:MAX_NAMES]
        ]  # fmt: skip
        result.append(Finding(rule, verdict, (Evidence(Text("largest:"), largest),)))
    return [*result, *_fusions(found, rows), _unchanged(rows, len(changed))]


def _fusions(found: Comparison, rows: Sequence[KernelChange]) -> list[Finding]:
    became = [row for row in rows if row.match in ("fused", "split")]
    if not became or found.work is not None:
        return []
    verdict = Text(
        "Fusing and splitting turned {a} launches ({before}) into {b} ({after}).",
        a=sum(row.calls[0] for row in became),
        b=sum(row.calls[1] for row in became),
        before=Number(sum(row.total.a or 0.0 for row in became), "ns"),
        after=Number(sum(row.total.b or 0.0 for row in became), "ns"),
    )
    return [Finding("fusion", verdict)]


def _unchanged(rows: Sequence[KernelChange], changed: int) -> Finding:
    """Say how many rows of kernels are no change."""
    same = sum(row.total.verdict == "same" for row in rows)
    small = len(rows) - changed - same
    verdict = Text("Within the noise: {same} of {n} rows of kernels.", same=same, n=len(rows))
    if small:
        verdict = Text(
            "Within the noise: {same} of {n} rows of kernels; {small} more changed the program by "
            "less than {minimum} or are undecided.",
            same=same,
            n=len(rows),
            small=small,
            minimum=Number(threshold("material"), "fraction"),
        )
    return Finding("unchanged", verdict)


def _of_cases(found: Comparison) -> list[Finding]:
    both = [c for c in found.cases if c.ratio is not None]
    slower, faster = ([c for c in both if c.verdict == v] for v in ("slower", "faster"))
    result = []
    if slower:
        verdict = Text("{n} case got slower.", "{n} cases got slower.", n=len(slower))
        result.append(Finding("cases_slower", verdict, _largest(slower)))
    if faster:
        verdict = Text("{n} case got faster.", "{n} cases got faster.", n=len(faster))
        result.append(Finding("cases_faster", verdict, _largest(faster)))
    if both:
        same = sum(c.verdict == "same" for c in both)
        verdict = Text("Within the noise: {same} of {n} cases.", same=same, n=len(both))
        result.append(Finding("cases_same", verdict))
    for key, side in (("gone", "A"), ("new", "B")):
        if alone := sum(c.verdict == key for c in found.cases):
            verdict = Text("{n} case ran in {side} only.", "{n} cases ran in {side} only.",
                           n=alone, side=side)  # fmt: skip
            result.append(Finding(f"cases_{key}", verdict))
    return result


def _largest(cases: Sequence[Change]) -> tuple[Evidence]:
    names = [
        Text("{case} ({change})", case=Name(str(c.label)), change=c.relative or 0)
        for c in cases[:MAX_NAMES]
    ]
    return (Evidence(Text("largest:"), names),)


def _of_points(found: Comparison) -> list[Finding]:
    """Say how many serving points got better or worse in each metric."""
    result = []
    for metric in SERVING:
        changes = [(p, c) for p in found.points for c in p.changes if c.key == metric.column]
        changed = [(p, c) for p, c in changes if c.verdict in MOVING and c.ratio]
        if changed:
            point, largest = max(changed, key=lambda pair: abs((pair[1].ratio or 1.0) - 1))
            better = sum(c.verdict == "faster" for _, c in changed)
            verdict = Text(
                "{metric}: better at {better}, worse at {worse} of {n} serving points; largest "
                "change {change} at {point}.",
                metric=metric.label,
                better=better,
                worse=len(changed) - better,
                n=len(changes),
                change=largest.relative or 0,
                point=Name(point.case),
            )
            result.append(Finding(metric.column, verdict))
    return result


def method(found: Comparison) -> tuple[Text, ...]:
    """Say how kernels were matched and what counts as noise."""
    floors = {
        "floor": Number(threshold("floor"), "fraction"),
        "specimen": Number(threshold("specimen_floor"), "fraction"),
    }
    texts = []
    if found.kind == "profile":
        texts += [
            Text(
                "Kernels match by launch order within a stage: same name first, then the same "
                "position among products and attention. What remains between two matches became "
                "what ran there in the other run, by operators in names where these tell."
            ),
            Text("Every launch of both runs is in exactly one row: rows add up to the totals."),
        ]
    if found.repeated:
        texts.append(
            Text(
                "Noise: 95 % t interval of the ratio from {a} and {b} complete runs. Times are "
                "geometric means of these runs.",
                a=found.a.runs,
                b=found.b.runs,
            )
        )
    elif found.kind == "profile":
        texts += [
            Text(
                "Noise: 95 % t interval of the ratio from the launches within one run each. "
                "Launches of one run share clock and temperature, so differences below {floor} "
                "count as noise, and below {specimen} for kernels on GPUs that differ or are not "
                "known. Repeats of each side show the real noise.",
                **floors,
            ),
            Text(
                "A kernel with one launch per side has no interval: differences below {single} "
                "stay undecided.",
                single=Number(threshold("single"), "fraction"),
            ),
        ]
    else:
        texts.append(
            Text(
                "Noise: 95 % interval of the ratio, from fresh processes and repeats where both "
                "runs have several, else from samples. Differences below {floor} count as noise, "
                "and below {specimen} on GPUs that differ or are not known. Repeats of each run "
                "show the real noise.",
                **floors,
            )
        )
    if found.one_off:
        texts.append(
            Text(
                "Instances of a stage with more than {times} the launches of the median instance "
                'are a stage of their own on both sides ("first"), so that the usual ones compare.',
                times=Number(threshold("one_off_launches"), "x", digits=1),
            )
        )
    rows = len(found.kernels) or len(found.cases)
    if rows >= 20:
        texts.append(
            Text(
                "At 95 %, about {n} of {rows} rows may differ by chance alone.",
                n=round(rows * 0.05),
                rows=rows,
            )
        )
    return tuple(texts)
