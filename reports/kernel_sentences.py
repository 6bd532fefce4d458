"""Says what limits a kernel, what it could gain and what to do, in the words of the rules."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.parsers.cells import names, number, text
from nsight_prof.reports.evidence import say
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.formats import counted, duration, share
from nsight_prof.reports.kernel_judge import Judged, further, is_near
from nsight_prof.reports.profiled import is_mixed
from nsight_prof.reports.rules import doubt_text, parallel_words, saturated, wait_words

BY = {key: f"limited by {label}" for key, label in LABELS.items()} | {
    "tensor": "limited by the Tensor Cores",
    "latency": "spent waiting with nothing saturated",
}
FUSIBLE = ("elementwise", "copy", "norm", "rotary", "softmax", "quantize")
"""Categories that do little with each byte: compilers fuse them with their neighbours."""
FUSION_HELPS = ("latency", "dram", "issue")
"""Rule or bounds of such kernels that go with the kernel."""


TOO_FEW_BLOCKS = ("small_grid", "few_blocks")
"""Rules whose remedy is more blocks."""
ONE = " (of one launch)"
"""Behind what was seen in one launch of a kernel whose launches do different work."""


def title(lead: Judged) -> str:
    """Return the title: the kernel, and what it lacks or the roof it is at."""
    return _title(lead) + (ONE if is_mixed(lead.row) else "")


def _title(lead: Judged) -> str:
    name = lead.row["short_name"]
    if lead.why is not None:
        return f"{name}: {lead.why.rule.wait}"
    if lead.bound == "latency":
        return f"{name}: waits, saturates nothing"
    reached = share(lead.row["roof_share"])
    if lead.bound == "issue":
        return f"{name}: instruction issue, {reached} of its slots"
    return f"{name}: {LABELS[lead.bound]}, {reached} of the roof"


def headline(finding: Finding, lead: Judged) -> str:
    """Return one short sentence for the terminal."""
    name = lead.row["short_name"]
    if math.isnan(finding.share) and (lead.why is not None or finding.bound == "latency"):
        return f"{name}: {_waiting(lead)}"
    if math.isnan(finding.share):
        return f"{name}: {BY[finding.bound]}, at {share(lead.row['roof_share'])} of the roof"
    takes = f"{name} takes {share(finding.share)} of the GPU time"
    one = ONE if is_mixed(lead.row) else ""
    if lead.why is not None or finding.bound == "latency":
        most = "about" if lead.why is not None and lead.why.rule.about else "at most"
        return f"{takes}; {_waiting(lead)}{one}: {most} {share(finding.gain_program)} to gain"
    of = "the slots" if finding.bound == "issue" else "the roof"
    reached = f"{BY[finding.bound]} at {share(lead.row['roof_share'])} of {of}{one}"
    gain = "only less work helps" if _near(lead) else f"{share(finding.gain_program)} to gain"
    return f"{takes}, {reached}: {gain}"


def sentence(finding: Finding, group: Sequence[Judged], in_rows: bool = False) -> str:
    """Return what the kernels take, what limits them and what they could gain.

    `in_rows` tells that one kernel for each row of them gains more, and is told by itself.
    """
    lead = group[0]
    what = f"{lead.row['short_name']}{_variants(group)}"
    reached = share(lead.row["roof_share"])
    limit = say("limits", finding.bound, reached=reached, cause=_cause_text(lead))
    if lead.why is not None and finding.bound != "latency":
        limit += f", since {lead.why.text}"
    if math.isnan(finding.share):
        where = f"took {duration(lead.row['duration_ns'])} in the launch that was profiled"
        return f"{what} {where}; {limit}.{_against(lead)}"
    calls = sum(number(j.row["calls"]) for j in group)
    total = sum(number(j.row["total_ns"]) for j in group)
    spent = f"{duration(total)} in {counted(calls, 'call')}{_stages(group)}"
    where = f"takes {share(finding.share)} of the GPU time ({spent})"
    gain = _mixed_text(finding, group) or _gain_text(finding, lead)
    if in_rows:
        gain = _rows_text(finding)
    one = ONE if is_mixed(lead.row) else ""
    return f"{what} {where}; {limit}{one}.{_further(lead)}{_against(lead)} {gain}"


def action(lead: Judged) -> tuple[str, str]:
    """Return what to try: for who tunes kernels, and without jargon."""
    if _near(lead):
        key = "near_dram" if lead.bound == "dram" else "near"
        return say("actions", key), say("advice", key)
    rule = lead.why.rule if lead.why is not None else None
    of = rule.key if rule is not None else "unknown" if lead.bound == "latency" else lead.bound
    if of in FUSION_HELPS and _fusible(lead):
        return say("actions", f"{of}_fusible"), say("advice", f"{of}_fusible")
    if of == "latency" and (words := wait_words(text(lead.row["top_stall"]))):
        return words
    if of in TOO_FEW_BLOCKS and rule is not None:
        return parallel_words(text(lead.row["category"])) or rule.action, rule.advice
    if lead.why is not None and rule is not None:
        return rule.action.format(limiter=lead.why.limiter), rule.advice
    return say("actions", of), say("advice", of)


def disproof(lead: Judged) -> str:
    """Return what one would see if the finding were wrong."""
    return lead.why.rule.disprove if lead.why is not None else saturated()[lead.bound]["disprove"]


def cause_key(lead: Judged) -> str:
    """Return the key of the rule behind a finding: that of the roof where no defect was found."""
    return lead.why.key if lead.why is not None else saturated()[lead.bound]["key"]


def _fusible(lead: Judged) -> bool:
    return lead.row["category"] in FUSIBLE and lead.row["library"] not in ("", "other")


def _near(lead: Judged) -> bool:
    return lead.why is None and is_near(lead.row)


def _against(lead: Judged) -> str:
    """Return what contradicts the limit, as a sentence behind a space; empty without it."""
    return "".join(f" But {text}." for _, text in lead.against)


def _gain_text(finding: Finding, lead: Judged) -> str:
    saved = f"{share(finding.gain_program)} of the GPU time ({duration(finding.gain_ns)})"
    if lead.why is not None:
        # What fewer sectors or instructions cost is an estimate; a wait that ends is a limit.
        most = "about" if lead.why.rule.about else "at most"
        return f"{lead.why.rule.repair} it could save {most} {saved}{_floor_text(lead)}."
    if _near(lead):
        return f"That is near the roof: the rest is worth at most {saved}."
    if finding.bound == "issue":
        return f"With the same instructions it could save at most {saved}; fewer save more."
    if finding.bound == "latency":
        unless = "" if _issue_known(lead) else ", less if its issue slots are full"
        return f"Without that wait it could save at most {saved}{_floor_text(lead)}{unless}."
    return f"At the full roof it would save at most {saved}."


def _rows_text(finding: Finding) -> str:
    saved = f"at most {share(finding.gain_program)} of the GPU time ({duration(finding.gain_ns)})"
    return (
        "Its launches follow on each other in rows: one kernel for each row, as the finding about "
        f"tiny kernels says, leaves {saved if finding.gain_ns > 0 else 'nothing'} to save here."
    )


def _further(lead: Judged) -> str:
    """Say what else the kernel lacks, with what that would gain alone; empty without it."""
    return "".join(
        f" Besides, {cause.text}; that alone costs up to {share(cause.gain)} of its time."
        for cause in further(lead)
    )


def _floor_text(lead: Judged) -> str:
    """Say where the gain ends at the shortest launch of the trace, which is another kernel's."""
    floor = lead.floor
    if floor is None:
        return ""
    # Its kernel is in the evidence: the page may show another one of that name.
    return f": down to {duration(floor.ns)} a launch, {floor.words}"


def _issue_known(lead: Judged) -> bool:
    return not math.isnan(number(lead.row["issue_active_pct"]))


def _mixed_text(finding: Finding, group: Sequence[Judged]) -> str:
    """Say where launches of one kernel do different work, of which one only was profiled."""
    rows = [judged.row for judged in group if is_mixed(judged.row)]
    if not rows:
        return ""
    span = f"{duration(rows[0]['min_ns'])} to {duration(rows[0]['max_ns'])}"
    return (
        f"Its launches take {span}, so one launch does not stand for all: only if they were all "
        f"like the profiled one ({duration(rows[0]['duration_ns'])}), the most to gain would be "
        f"{share(finding.gain_program)} of the GPU time."
    )


def _variants(group: Sequence[Judged]) -> str:
    """Return how many kernels or launch shapes share a readable name; empty for one."""
    if len(group) == 1:
        return ""
    kernels = len({text(judged.row["name"]) for judged in group})
    shapes = f"{len(group)} launch shapes"
    if kernels > 1:
        shapes = f"{kernels} kernels of this name" + (f", {shapes}" if kernels < len(group) else "")
    return f" ({shapes}, counters of the largest)"


def _stages(group: Sequence[Judged]) -> str:
    stages: list[str] = []
    for judged in group:
        stages += [name for name in names(judged.row["stage"]) if name not in stages]
    return f", in {' and '.join(stages)}" if stages else ""


def _cause_text(lead: Judged) -> str:
    if lead.why is not None:
        return lead.why.text
    uncounted = "" if _issue_known(lead) else doubt_text("issue_active")
    return say("causes", "unknown") + uncounted


def _waiting(lead: Judged) -> str:
    nothing = f"it reaches {share(lead.row['roof_share'])} of any roof at most"
    return lead.why.text if lead.why is not None else nothing
