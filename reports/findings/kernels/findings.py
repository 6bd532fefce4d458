"""Findings about kernels: what limits each, how far its roof is, and what that gains."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from nsight_prof.parsers.cells import Row, names, number, records, text
from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.evidence import threshold
from nsight_prof.reports.analysis.profiled import is_mixed, kernel_time, weight
from nsight_prof.reports.findings.kernels.causes import Judged
from nsight_prof.reports.findings.kernels.evidence import confidence, evidence
from nsight_prof.reports.findings.kernels.judge import EXCESS, SIZED, WORK_OF, is_near, judge
from nsight_prof.reports.findings.kernels.matrix import OWN, WRITTEN
from nsight_prof.reports.findings.kernels.memory import SCATTERED
from nsight_prof.reports.findings.kernels.roofs import (
    DRAM_OTHERS,
    NEAR,
    NEAR_DRAM,
    NEAR_DRAM_OTHERS,
    PRODUCTS,
    ROOFS,
    in_part,
    is_mixed_bound,
    limit_clause,
    resource_of,
    unit_of,
)
from nsight_prof.reports.findings.kernels.rule import DEFECT
from nsight_prof.reports.findings.kernels.waits import LATENCY, REMEDIES, STALLS
from nsight_prof.reports.findings.model import Finding, concatenated
from nsight_prof.reports.findings.shortest_launch import Floor
from nsight_prof.reports.page import Evidence, Name, Number, Ref, Text, Value, Verbatim

BACKENDS = ("slow_backend", "older_backend")
"""Rules of findings that name a better kernel."""
REPLACED = ("attention", "sort", "fft", "gemm")
"""Categories of kernels that a better one replaces."""
FUSIBLE = ("elementwise", "copy", "norm", "rotary", "softmax", "quantize")
"""Categories that do little with each byte: compilers fuse them with their neighbours."""
OF_LIBRARY = (
    Text(
        "The code of this kernel is a library's: give it other sizes (multiples of 8, a larger "
        "batch) or contiguous inputs, or try another back end or a newer version of the library."
    ),
    Text("try a newer version of the library, or sizes that it is faster for"),
    Text("Other sizes, contiguous inputs and other back ends of the library take as long."),
)
"""Action, advice and disproof where a user of a library does not write the code at fault."""
SHORT_NS = 2000.0
"""A kernel that does next to nothing takes about as long, counted by ncu, too."""
SO_SHORT = (
    Text(
        "So short a launch takes as long as one that does nothing, and more blocks make it no "
        "faster: leave it out, or fuse it with its neighbours."
    ),
    Text("leave steps out that do next to nothing, or join them with others"),
)
"""Action and advice of a launch that has few blocks, and little to do."""
KERNEL = "kernel"
"""Key of all findings about kernels."""
COLUMNS = (Ref("counters", "", "bound_by"), Ref("kernels", "", "share"))
EFFICIENCIES = ("global_load_efficiency_pct", "global_store_efficiency_pct")
"""Columns of how much of each sector loads and stores use."""
NOTHING = Text("nothing")


@dataclass(frozen=True)
class Abstention:
    """Rules that were not applied to some kernels, and why: a counter or a fact is missing."""

    rules: tuple[str, ...]
    kernel_ids: tuple[str, ...]
    reason: Text


def kernel_findings(run: Run, program: Sequence[Finding] = ()) -> list[Finding]:
    """Return a finding for each group of kernels with one readable name, bound and cause.

    `program` are the findings about the program: what one kernel for a row of them saves is not
    counted again where the kernels of the row have few blocks.
    """
    groups: dict[tuple[str, str, str], list[Judged]] = defaultdict(list)
    better = {key for f in program if f.rule in BACKENDS for key in f.kernel_ids}
    for judged in judge(run):
        # A kernel of a library for which a better one is named is not mended, but replaced.
        if judged.row["category"] in REPLACED and text(judged.row["kernel_id"]) in better:
            continue
        groups[text(judged.row["short_name"]), judged.bound, cause_key(judged)].append(judged)
    total = kernel_time(run)
    found = [
        _finding(group, total, _remaining_share(group, program, total)) for group in groups.values()
    ]
    found = _of_one_layout(found, [group[0] for group in groups.values()], total)
    bounds = [_bound(finding, total) for finding in found]
    large = [
        not f.share < threshold("small_share") or bound >= threshold("small_gain")
        for f, bound in zip(found, bounds, strict=True)
    ]
    # What gains more than a finding that is listed anyway is listed, too.
    of_listed = (bound for bound, listed in zip(bounds, large, strict=True) if listed and bound > 0)
    smallest = max(min(of_listed, default=math.inf), threshold("listed_gain"))
    rows = zip(found, bounds, large, strict=True)
    return [f for f, bound, listed in rows if listed or bound >= smallest]


def _of_one_layout(
    found: Sequence[Finding], leads: Sequence[Judged], total_ns: float
) -> list[Finding]:
    """Return findings, of which the largest about scattered accesses has what all kernels of the
    program save that use as much of each sector: one layout of what they share mends all.
    """
    alike: dict[tuple[float, ...], list[Finding]] = defaultdict(list)
    for finding, lead in zip(found, leads, strict=True):
        if finding.rule == SCATTERED.key and text(lead.row["library"]) in WRITTEN:
            used = tuple(round(number(lead.row[name])) for name in EFFICIENCIES)
            alike[used].append(finding)
    mended = {}
    for findings in alike.values():
        if len(findings) == 1 or not sum(f.gain_program for f in findings) > 0:
            continue
        largest = max(findings, key=lambda f: f.gain_program)
        gain_ns = sum(f.gain_ns for f in findings)
        verdict = Text(
            "{verdict} {n} other kernel uses as little of each sector, as of one array of "
            "structures: another layout of it mends all, which saves about {gain} of the GPU time "
            "({saved}).",
            "{verdict} {n} other kernels use as little of each sector, as of one array of "
            "structures: another layout of it mends all, which saves about {gain} of the GPU time "
            "({saved}).",
            n=len(findings) - 1,
            verdict=largest.verdict,
            gain=_share(gain_ns / total_ns),
            saved=Number(gain_ns, "ns"),
        )
        share = sum(f.share for f in findings)
        mended[largest.kernel_ids] = replace(
            largest,
            verdict=verdict,
            kernel_ids=tuple(
                dict.fromkeys((*largest.kernel_ids, *(i for f in findings for i in f.kernel_ids)))
            ),
            share=share,
            gain_kernel=gain_ns / total_ns / share,
            gain_program=gain_ns / total_ns,
            gain_ns=gain_ns,
            most_ns=sum(f.most_ns for f in findings),
            counted_ns=sum(f.counted_ns for f in findings),
        )
    return [mended.get(f.kernel_ids, f) for f in found]


def _bound(finding: Finding, total_ns: float) -> float:
    """Return the part of the GPU time that a finding saves at most."""
    bounded = not math.isnan(finding.most_ns)
    return finding.most_ns / total_ns if bounded else finding.gain_program


def abstentions(run: Run) -> tuple[Abstention, ...]:
    """Return the rules that abstained, those with one reason and the same kernels together."""
    gaps = {
        (text(row["kernel_id"]), text(row["column"])): text(row["reason"])
        for row in records(run.gaps)
        if row["table"] == "counters"
    }
    open_rules: dict[tuple[str, Text], list[str]] = defaultdict(list)
    for judged in judge(run):
        key = text(judged.row["kernel_id"])
        for rule in judged.abstained:
            found = (gaps.get((key, c)) or gaps.get(("", c), "") for c in rule.columns)
            gap = next((reason for reason in found if reason), "")
            if gap in _nothing_to_count():
                continue
            reason = Text("{reason}", reason=Verbatim(gap)) if gap else rule.reason
            columns = Verbatim(", ".join(rule.columns))
            open_rules[rule.key, reason or Text("not known: {columns}", columns=columns)].append(
                key
            )
    together: dict[tuple[Text, tuple[str, ...]], list[str]] = defaultdict(list)
    for (rule_key, reason), kernels in open_rules.items():
        together[reason, tuple(kernels)].append(rule_key)
    return tuple(
        Abstention(tuple(rules), kernels, reason) for (reason, kernels), rules in together.items()
    )


@cache
def _nothing_to_count() -> frozenset[str]:
    """Return the reasons of the catalogue for a kernel that does nothing of a kind at all."""
    return frozenset(reason for c in catalogue().columns.values() for reason in c.empty)


def bound_findings(run: Run) -> list[Finding]:
    """Return how the GPU time divides by what limits it; empty without trace or counters."""
    total, judged = kernel_time(run), judge(run)
    shares: dict[str, float] = defaultdict(float)
    for kernel in judged:
        shares[kernel.bound] += number(kernel.row["share"])
    known = sum(shares.values())
    # Of one kernel the finding of that kernel says it all.
    if len(judged) < 2 or math.isnan(total) or math.isnan(known):
        return []
    gain = sum(number(j.row["share"]) * j.gain for j in judged)
    at_roof = sum(number(j.row["share"]) * j.at_roof for j in judged)
    ranked = sorted(shares, key=lambda key: -shares[key])
    split: list[Value] = [
        Text("{share} is {limited}", share=_share(shares[key]), limited=ROOFS[key].limited)
        for key in ranked
    ]
    values: dict[str, Value] = {
        "split": split,
        "rest": Text("; {share} was not measured", share=_share(1 - known))
        if known < 0.995
        else "",
        "gain": _share(gain),
        "time": Number(gain * total, "ns"),
        "note": _mixed_note(judged),
    }
    verdict = Text(
        "Of the GPU time, {split}{rest}. With the same work and data the measured kernels could "
        "save {gain} of the GPU time ({time}), not counting work or data that is left out, as by "
        "fusion.{note}",
        **values,
    )
    return [
        Finding(
            key="bounds",
            rule="",
            title=Text("What limits the GPU time"),
            headline=Text(
                "{share} of the GPU time is {limited}; better kernels could save at most {gain} in "
                "all",
                share=_share(shares[ranked[0]]),
                limited=ROOFS[ranked[0]].limited,
                gain=_share(gain),
            ),
            verdict=verdict,
            share=known,
            evidence=(
                *_split({key: shares[key] for key in ranked}, judged),
                *_at_roofs(at_roof, total),
            ),
            gain_kernel=gain / known,
            gain_program=gain,
            gain_ns=gain * total,
            bound=ranked[0],
            confidence="medium",
        )
    ]


def _share(value: float) -> Number:
    return Number(value, "fraction")


def _at_roofs(at_roof: float, total_ns: float) -> tuple[Evidence, ...]:
    """Return what all kernels would gain at their full roofs, where no kernel of them came."""
    source = Text("sum over all kernels: share x (1 - time at the full roof / time)")
    gains = Number(at_roof, "fraction", COLUMNS), Number(at_roof * total_ns, "ns", COLUMNS)
    return tuple(Evidence(Text("to gain at the full roofs"), gain, source=source) for gain in gains)


def _split(shares: dict[str, float], judged: Sequence[Judged]) -> tuple[Evidence, ...]:
    """Return the parts of the GPU time by bound, and what its kernels gain of it."""
    rows = []
    for bound, share in shares.items():
        gain = sum(number(j.row["share"]) * j.gain for j in judged if j.bound == bound)
        rows += [
            Evidence(
                Text("GPU time {limited}", limited=ROOFS[bound].limited),
                Number(100 * share, "%", COLUMNS),
                source=Text("nsys and ncu"),
            ),
            Evidence(
                Text("could save of it"),
                Number(100 * gain, "%", COLUMNS),
                source=Text("sum over its kernels"),
            ),
        ]
    return tuple(rows)


def _mixed_note(judged: Sequence[Judged]) -> Text | str:
    share = sum(number(j.row["share"]) for j in judged if is_mixed(j.row))
    if share < threshold("small_share"):
        return ""
    return Text(
        " Launches of kernels that take {share} of the GPU time differ in their work; they count "
        "as if all were like the profiled one.",
        share=Number(share, "fraction", COLUMNS[1:]).by(
            Text("sum of the shares of kernels whose launches differ in their work")
        ),
    )


def _remaining_share(group: Sequence[Judged], program: Sequence[Finding], total_ns: float) -> float:
    """Return the part of a kernel's time that one kernel for each row of them leaves; else 1."""
    cause = group[0].cause
    if cause is None or not cause.rule.batches:
        return 1.0
    ids = {text(judged.row["kernel_id"]) for judged in group}
    rows = [f for f in program if f.rule == "small_kernels" and ids & set(f.kernel_ids)]
    remaining = [max(0.0, 1 - f.gain_ns / (f.share * total_ns)) for f in rows]
    return min(remaining, default=1.0)


def cause_key(lead: Judged) -> str:
    """Return the key of the rule behind a finding: that of the roof where no defect was found."""
    return lead.cause.key if lead.cause is not None else ROOFS[lead.bound].key


def _finding(group: Sequence[Judged], total_ns: float, remaining: float) -> Finding:
    lead = group[0]
    shares = [number(j.row["share"]) for j in group]
    taken = sum(shares)
    gained = sum(s * min(j.gain, remaining) for s, j in zip(shares, group, strict=True))
    action, advice = _advice(lead)
    sure, because = confidence(group)
    ends = any(judged.at_roof > judged.gain for judged in group)
    finding = Finding(
        key=KERNEL,
        rule=cause_key(lead),
        title=_marked(_title(lead), lead),
        verdict=NOTHING,
        kernel_ids=tuple(text(j.row["kernel_id"]) for j in group),
        share=taken,
        evidence=evidence(lead),
        gain_kernel=min(lead.gain, remaining) if math.isnan(taken) else gained / taken,
        gain_program=gained,
        gain_ns=gained * total_ns,
        most_ns=sum(j.at_roof * weight(j.row) for j in group) if ends else math.nan,
        counted_ns=sum(j.gain * weight(j.row) for j in group),
        bound=lead.bound,
        action=action,
        advice=advice,
        confidence=sure,
        because=because,
        disproof=_disproof(lead),
    )
    verdict = _verdict(finding, group, in_rows=remaining < lead.gain)
    return replace(finding, headline=_headline(finding, group), verdict=verdict)


def _name(row: Row) -> Name:
    return Name(text(row["short_name"]), Ref("kernels", text(row["kernel_id"])))


def _marked(words: Text, lead: Judged) -> Text:
    """Mark what was measured in one launch of a kernel whose launches do different work."""
    return Text("{finding} (of one launch)", finding=words) if is_mixed(lead.row) else words


def _reached(row: Row) -> Number:
    refs = (Ref("counters", text(row["kernel_id"]), "roof_share"),)
    return Number(number(row["roof_share"]), "fraction", refs)


def _title(lead: Judged) -> Text:
    """Return the kernel, and what it lacks or the roof it is at."""
    name = Verbatim(text(lead.row["short_name"]))
    if lead.cause is not None:
        return Text("{kernel}: {symptom}", kernel=name, symptom=lead.cause.rule.symptom)
    if lead.bound == "latency":
        return Text("{kernel}: {symptom}", kernel=name, symptom=LATENCY.symptom)
    reached = _reached(lead.row)
    if lead.bound == "issue":
        return Text(
            "{kernel}: instruction issue, {reached} of its slots", kernel=name, reached=reached
        )
    values: dict[str, Value] = {"kernel": name, "bound": resource_of(lead.row), "reached": reached}
    if unit_of(lead.row) is not None:
        return Text("{kernel}: {bound}, busy in {reached} of all cycles", **values)
    return Text("{kernel}: {bound}, {reached} of the roof", **values)


def _clause(lead: Judged) -> Text:
    """Return what a kernel that waits, or has a defect, lacks."""
    if lead.cause is not None:
        return lead.cause.clause
    return Text("it waits, for what is not known ({reached} of a roof)", reached=_reached(lead.row))


def _headline(finding: Finding, group: Sequence[Judged]) -> Text:
    """Return one short sentence for the terminal."""
    lead = group[0]
    name, limited = _name(lead.row), ROOFS[finding.bound].limited
    waits = lead.cause is not None or finding.bound == "latency"
    if math.isnan(finding.share) and waits:
        return Text("{kernel}: {clause}", kernel=name, clause=_clause(lead))
    values: dict[str, Value] = {"kernel": name, "limited": limited, "reached": _reached(lead.row)}
    if math.isnan(finding.share) and unit_of(lead.row) is not None:
        return _title(lead)
    if math.isnan(finding.share):
        return Text("{kernel}: {limited}, at {reached} of the roof", **values)
    counted = finding.gain_program > 0
    share, gain = (
        _share(finding.share),
        _share(finding.gain_program) if counted else _bound_of(group),
    )
    if waits:
        values = {"kernel": name, "share": share, "clause": _marked(_clause(lead), lead),
                  "gain": gain}  # fmt: skip
        if lead.cause is not None and lead.cause.rule.estimated:
            return Text(
                "{kernel} takes {share} of the GPU time; {clause}: about {gain} to gain", **values
            )
        return Text(
            "{kernel} takes {share} of the GPU time; {clause}: at most {gain} to gain", **values
        )
    to_gain = _to_gain(lead, gain, counted)
    at = Text("{limited} at {reached} of the roof", limited=limited, reached=values["reached"])
    if finding.bound == "issue":
        at = Text("{limited} at {reached} of the slots", limited=limited, reached=values["reached"])
    elif (unit := unit_of(lead.row)) is not None:
        at = Text("{unit} busy in {reached} of all cycles", unit=unit, reached=values["reached"])
    return Text(
        "{kernel} takes {share} of the GPU time, {limit}: {gain}",
        kernel=name,
        share=share,
        limit=_marked(at, lead),
        gain=to_gain,
    )


def _to_gain(lead: Judged, gain: Number, counted: bool) -> Text:
    if _near(lead):
        return Text("only less work helps")
    if counted:
        return Text("{gain} to gain", gain=gain)
    return Text("at most {gain} to gain", gain=gain)


def _verdict(finding: Finding, group: Sequence[Judged], in_rows: bool = False) -> Text:
    """Return what the kernels take, what limits them and what they could gain.

    `in_rows` tells that one kernel for each row of them gains more, and has a finding by itself.
    """
    lead = group[0]
    limit = limit_clause(lead.row, _reached(lead.row), STALLS.get(text(lead.row["top_stall"])))
    if finding.bound == "latency":
        values: dict[str, Value] = {"limit": limit, "cause": _cause(lead)}
        if lead.cause is not None and lead.cause.rank == DEFECT:
            limit = Text("{limit}: {cause}", **values)
        else:
            limit = Text("{limit} and waits instead: {cause}", **values)
    elif lead.cause is not None:
        if is_mixed_bound(lead.row):
            limit = in_part(lead.row, _reached(lead.row))
        limit = Text("{limit}, since {cause}", limit=limit, cause=lead.cause.clause)
    doubts = [Text(" But {clause}.", clause=clause) for _, clause in lead.doubts]
    if lead.cause is None and is_mixed_bound(lead.row):
        doubts = []  # the clause says already that it waits besides
    values = {
        "kernel": _name(lead.row),
        "variants": _variants(group),
        "limit": limit,
        "doubts": concatenated(doubts),
    }
    kernel_id = text(lead.row["kernel_id"])
    if math.isnan(finding.share):
        took = Number(number(lead.row["duration_ns"]), "ns",
                      (Ref("counters", kernel_id, "duration_ns"),))  # fmt: skip
        return Text(
            "{kernel}{variants} took {time} in the launch that was profiled; {limit}.{doubts}",
            time=took,
            **values,
        )
    calls = round(sum(number(j.row["calls"]) for j in group))
    total, *more = (
        Number(j.row["total_ns"], "ns", (Ref("kernels", text(j.row["kernel_id"]), "total_ns"),))
        for j in group
    )
    total = sum(more, total)
    gain = _mixed(group) or _ended(finding, group) or _gain(finding, lead)
    if in_rows:
        gain = _in_rows(finding)
    elif lead.fixed is not None:
        gain = Text("{text}{sentence}", text=gain, sentence=_start(lead.fixed))
    return Text(
        "{kernel}{variants} takes {share} of the GPU time ({time} in {calls}{stages}); {limit}."
        "{others}{doubts} {gain}",
        share=_share(finding.share),
        time=total,
        calls=Text("{n} call", "{n} calls", n=calls),
        stages=_stages(group),
        others=_others(lead),
        gain=gain,
        **values | {"limit": _marked(limit, lead)},
    )


def _advice(lead: Judged) -> tuple[Text, Text]:
    """Return what to try: for those who tune kernels, and for readers who do not know GPUs."""
    is_product = lead.row["category"] in PRODUCTS
    if _near(lead) and lead.bound == "dram":
        return NEAR_DRAM if is_product else NEAR_DRAM_OTHERS
    if _near(lead):
        return NEAR
    rule = lead.cause.rule if lead.cause is not None else None
    fusible = rule.fusible if rule is not None else ROOFS[lead.bound].fusible
    library = text(lead.row["library"])
    if fusible and lead.row["category"] in FUSIBLE and library not in ("", "other"):
        return fusible
    if rule is not None and rule.in_code and library not in OWN:
        return OF_LIBRARY[:2]
    if rule is not None and rule.batches and number(lead.row["duration_ns"]) < SHORT_NS:
        return SO_SHORT
    if rule is LATENCY and (remedy := REMEDIES.get(text(lead.row["top_stall"]))):
        return remedy[:2]
    if rule is not None:
        kind = "own" if library in WRITTEN else text(lead.row["category"])
        return rule.actions.get(kind, rule.action), rule.advice
    if lead.bound == "dram" and not is_product:
        return DRAM_OTHERS
    return ROOFS[lead.bound].action, ROOFS[lead.bound].advice


def _disproof(lead: Judged) -> Text:
    if lead.cause is None:
        return ROOFS[lead.bound].disproof
    rule = lead.cause.rule
    if rule.in_code and text(lead.row["library"]) not in OWN:
        return OF_LIBRARY[2]
    remedy = REMEDIES.get(text(lead.row["top_stall"])) if rule is LATENCY else None
    return remedy[2] if remedy else rule.disproof


def _near(lead: Judged) -> bool:
    return lead.cause is None and is_near(lead.row)


def _gain(finding: Finding, lead: Judged) -> Text:
    """Return what the end of the cause of a kernel gains."""
    assert lead.cause is not None
    values: dict[str, Value] = {
        "remedy": lead.cause.rule.remedy,
        "gain": _share(finding.gain_program),
        "time": Number(finding.gain_ns, "ns"),
        "floor": _floor(lead),
    }
    # What fewer sectors or instructions cost is an estimate; a wait that ends is a limit.
    if lead.cause.rule.estimated:
        return Text(
            "{remedy} it could save about {gain} of the GPU time ({time}){floor}.", **values
        )
    return Text("{remedy} it could save at most {gain} of the GPU time ({time}){floor}.", **values)


def _bound_of(group: Sequence[Judged]) -> Number:
    """Return the part of the GPU time that kernels could save at most."""
    keys = [text(judged.row["kernel_id"]) for judged in group]
    times, shares = ("kernels", "total_ns"), ("counters", "roof_share")
    refs = tuple(Ref(table, key, column) for table, column in (times, shares) for key in keys)
    at_roofs = sum(j.at_roof * number(j.row["share"]) for j in group)
    return Number(at_roofs, "fraction", refs).by(
        Text("sum of share x (1 - time at the full roof / time), time in the trace")
    )


def _ended(finding: Finding, group: Sequence[Judged]) -> Text | None:
    """Return a gain that ends before the roof, and that at the roof; None where it does not."""
    lead = group[0]
    if lead.cause is not None and not lead.at_roof > lead.gain:
        return None
    bound = _bound_of(group)
    bound_ns = Number(sum(j.at_roof * weight(j.row) for j in group), "ns", bound.refs).by(
        Text("sum of time - time at the full roof, time in the trace")
    )
    values: dict[str, Value] = {"bound": bound, "most": bound_ns}
    less = "" if _issue_known(lead) else Text(", less if its issue slots are full")
    if lead.gain == 0 and (lead.cause is not None or lead.bound == "latency"):
        remedy = LATENCY.remedy if lead.cause is None else lead.cause.rule.remedy
        return Text(
            "{remedy} it could save at most {bound} of the GPU time ({most}){less}; how much of "
            "that can be had is not known.",
            remedy=remedy,
            less=less,
            **values,
        )
    if lead.gain == 0:
        return Text(
            "No kernel of its kind{size} came nearer to that here, so that nothing is counted: "
            "with the same work the rest is worth at most {bound} of the GPU time ({most}); less "
            "work saves more.",
            size=Text(" and size") if lead.row["category"] in SIZED else "",
            **values,
        )
    values |= {"gain": _share(finding.gain_program), "time": Number(finding.gain_ns, "ns")}
    if lead.cause is not None or lead.bound == "latency":
        return Text(
            "Where its exponentials run beside no product it could save {gain} of the GPU time "
            "({time}), and at most {bound} ({most}) where all do{less}.",
            less=less,
            **values,
        )
    if lead.bound in EXCESS and lead.cause is None and lead.row["category"] != "attention":
        return Text(
            "Where instructions and traffic on the chip that its bytes and FLOPs do not need go, "
            "it would save about {gain} of the GPU time ({time}), and at most {bound} ({most}) at "
            "their full roofs.",
            **values,
        )
    values["peer"] = _peer(lead)
    if _near(lead):
        return Text(
            "That is near the roof. As near as {peer} it would save {gain} of the GPU time "
            "({time}), at the full roof at most {bound} ({most}).",
            **values,
        )
    return Text(
        "If it came as near to the roof as {peer}, it would save {gain} of the GPU time ({time}); "
        "at the full roof at most {bound} ({most}) with the same bytes, and more with fewer.",
        **values,
    )


def _peer(lead: Judged) -> Text:
    """Return the kernel that came nearer to the roof; of products with what its launch moves."""
    assert lead.peer is not None
    if lead.peer["category"] not in SIZED:
        return Text("{kernel} (the best of its kind here)", kernel=_name(lead.peer))
    work, unit = (WORK_OF.get(lead.bound, "flops"), "B" if lead.bound in WORK_OF else "FLOP")
    ref = Ref("counters", text(lead.peer["kernel_id"]), work)
    return Text(
        "{kernel} (the best of comparable size here, {work} per launch)",
        kernel=_name(lead.peer),
        work=Number(number(lead.peer[work]), unit, (ref,)),
    )


def _in_rows(finding: Finding) -> Text:
    gain: Value = NOTHING
    if finding.gain_ns > 0:
        gain = Text(
            "at most {gain} of the GPU time ({time})",
            gain=_share(finding.gain_program),
            time=Number(finding.gain_ns, "ns"),
        )
    return Text(
        "Its launches follow on each other in rows: one kernel for each row, as the finding about "
        "tiny kernels says, leaves {gain} to save here.",
        gain=gain,
    )


def _cells(evidence: Sequence[Evidence]) -> tuple[Ref, ...]:
    """Return the cells that evidence is from, each once."""
    values = (item.value for item in evidence)
    refs = (ref for value in values if isinstance(value, Number) for ref in value.refs)
    return tuple(dict.fromkeys(refs))


def _others(lead: Judged) -> Value:
    """Return what else the kernel lacks, with what that would gain alone; empty without it."""
    return concatenated(
        [
            Text(
                " Besides, {clause}; that alone costs up to {gain} of its time.",
                clause=cause.clause,
                gain=Number(cause.gain, "fraction", _cells(cause.evidence)).by(
                    Text("estimate of rule {rule}", rule=Name(cause.rule.key))
                ),
            )
            for cause in lead.secondary
        ]
    )


def _floor(lead: Judged) -> Text | str:
    """Return where the gain ends at the shortest launch of the trace, which is another kernel's."""
    if lead.floor is None:
        return ""
    # Its kernel is in the evidence: the page may show another one of that name.
    return Text(
        ": down to {time} per launch, {origin}",
        time=Number(lead.floor.ns, "ns"),
        origin=lead.floor.origin,
    )


def _start(fixed: Floor) -> Text:
    """Return what of each launch of a short kernel stays at any roof."""
    return Text(
        " The {time} that every launch takes ({origin}) remain.",
        time=Number(fixed.ns, "ns"),
        origin=fixed.origin,
    )


def _issue_known(lead: Judged) -> bool:
    return not math.isnan(number(lead.row["issue_active_pct"]))


def _mixed(group: Sequence[Judged]) -> Text | None:
    """Return that launches of one kernel do different work, of which one only was profiled."""
    rows = [judged.row for judged in group if is_mixed(judged.row)]
    if not rows:
        return None
    row, kernel_id = rows[0], text(rows[0]["kernel_id"])
    low, high = (
        Number(number(row[column]), "ns", (Ref("kernels", kernel_id, column),))
        for column in ("min_ns", "max_ns")
    )
    return Text(
        "Its launches take {low} to {high}, so one launch does not stand for all: only if they "
        "were all like the profiled one ({profiled}), the most to gain would be {gain} of the "
        "GPU time.",
        low=low,
        high=high,
        profiled=Number(number(row["duration_ns"]), "ns",
                        (Ref("counters", kernel_id, "duration_ns"),)),
        gain=_bound_of(group),
    )  # fmt: skip


def _variants(group: Sequence[Judged]) -> Text | str:
    """Return how many kernels or launch shapes share a readable name; empty for one."""
    if len(group) == 1:
        return ""
    kernels = len({text(judged.row["name"]) for judged in group})
    if kernels == 1:
        return Text(" ({n} launch shapes, counters of the largest)", n=len(group))
    if kernels == len(group):
        return Text(" ({n} kernels of this name, counters of the largest)", n=kernels)
    return Text(
        " ({kernels} kernels of this name, {shapes} launch shapes, counters of the largest)",
        kernels=kernels,
        shapes=len(group),
    )


def _stages(group: Sequence[Judged]) -> Text | str:
    stages = dict.fromkeys(name for judged in group for name in names(judged.row["stage"]))
    if not stages:
        return ""
    return Text(", in {stages}", stages=[Name(name, Ref("stages", name)) for name in stages])


def _cause(lead: Judged) -> Text:
    if lead.cause is not None:
        return lead.cause.clause
    if _issue_known(lead):
        return Text("for what, these counters do not say")
    return Text("for what, these counters do not say; how full the issue slots are was not counted")
