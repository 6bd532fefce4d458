"""Makes the view of what ncu's own rules said, beside what prof says of the same kernels."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from nsight_prof.parsers.cells import Row, known, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.profiled import profiled
from nsight_prof.reports.findings.kernels.judge import context_of, judge
from nsight_prof.reports.findings.ncu.agreement import (
    AGREES,
    CONTRADICTS,
    DIFFERS,
    ELAPSED,
    STALL_RULE,
    Subject,
    compare,
)
from nsight_prof.reports.findings.ncu.models import RuleRow, RuleSummary, RulesView
from nsight_prof.reports.findings.ncu.topics import Topic, reason, topics, topics_of
from nsight_prof.reports.page.values import Word
from nsight_prof.reports.page.writer import in_english

LENGTH = 220
"""Characters of a message that the report shows; table ncu_rules has all of it."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def rules_view(run: Run, numbers: Mapping[str, int]) -> RulesView:
    """Return what ncu's rules said of the kernels in `numbers` (kernel id -> number in tables)."""
    results_by_kernel = _results_of_rules(run)
    if not results_by_kernel:
        return RulesView()
    collected = {text(row["section"]) for row in records(run.ncu_rules)}
    rows: list[RuleRow] = []
    for key, subject in subjects(run).items():
        if key in numbers and (key in results_by_kernel or subject.judged is not None):
            rows += _rows(numbers[key], results_by_kernel.get(key, {}), subject)
            rows += _alone(numbers[key], results_by_kernel.get(key, {}), subject, collected)
    rows.sort(key=lambda row: row.kernel)
    return RulesView(tuple(rows), _summary(rows))


def subjects(run: Run) -> dict[str, Subject]:
    """Return the profiled kernels, by id, as both ncu and prof judge them."""
    context = context_of(run)
    judged = {text(kernel.row["kernel_id"]): kernel for kernel in judge(run)}
    measured = _measured(run)
    found = {}
    for row in profiled(run):
        key = text(row["kernel_id"])
        found[key] = Subject(row, judged.get(key), context, measured.get(key, {}))
    return found


def _measured(run: Run) -> dict[str, dict[str, float]]:
    """Return how busy each unit was (the rules rest on it), of the launch in `counters`."""
    names = run.metrics["metric"]
    wanted = run.metrics[names.str.endswith(ELAPSED)]
    wanted = wanted[wanted["profile"].isin(_chosen(run))]
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for row in records(wanted):
        found[text(row["kernel_id"])][text(row["metric"])] = number(row["value"])
    return found


def _chosen(run: Run) -> set[int]:
    return set(run.joins.loc[run.joins["chosen"].fillna(False), "profile"].dropna())


def _results_of_rules(run: Run) -> dict[str, dict[str, list[tuple[Topic, Row]]]]:
    """Return the results of rules by kernel and topic, of the launch that `counters` shows."""
    chosen = run.ncu_rules[run.ncu_rules["profile"].isin(_chosen(run))]
    found: dict[str, dict[str, list[tuple[Topic, Row]]]] = defaultdict(lambda: defaultdict(list))
    for row in records(chosen):
        for topic in topics_of(text(row["rule"]), text(row["message"])):
            found[text(row["kernel_id"])][topic.key].append((topic, row))
    return found


def _rows(
    kernel: int, results_by_rule: Mapping[str, list[tuple[Topic, Row]]], subject: Subject
) -> Iterable[RuleRow]:
    for results in results_by_rule.values():
        topic, first = results[0]
        largest = max((row for _, row in results), key=lambda row: _estimate(row))
        verdict = compare(topic, [text(row["message"]) for _, row in results], subject)
        yield RuleRow(
            kernel=kernel,
            about=topic.about,
            rules=tuple(dict.fromkeys(text(row["rule"]) for _, row in results)),
            message=short(text(first["message"])),
            speedup=known(number(largest["speedup_pct"]) / 100),
            speedup_of=text(largest["speedup_of"]),
            verdict=verdict.state,
            answer=verdict.answer,
            reason=verdict.reason,
            gain=known(verdict.gain),
            abstained=verdict.abstained,
        )


def _alone(
    kernel: int,
    results_by_rule: Mapping[str, list[tuple[Topic, Row]]],
    subject: Subject,
    collected: set[str],
) -> Iterable[RuleRow]:
    """Tell of the cause that explains a kernel for prof where ncu's rule for it is silent."""
    cause = subject.judged.cause if subject.judged is not None else None
    if cause is None:
        return
    asked = [t for t in topics() if t.silent and _is_about(t, cause.key) and t.section in collected]
    if not asked or any(
        _is_about(t, cause.key) for group in results_by_rule.values() for t, _ in group
    ):
        return
    silent = reason("silent", asks=Word(asked[0].silent))
    gain = known(cause.gain)
    yield RuleRow(
        kernel, asked[0].about, (), "", None, "", DIFFERS, in_english(cause.clause), silent, gain
    )


def _is_about(topic: Topic, cause: str) -> bool:
    return cause in topic.causes or (topic.compare == "stall" and cause == STALL_RULE)


def _summary(rows: list[RuleRow]) -> tuple[RuleSummary, ...]:
    by_matter: dict[str, list[RuleRow]] = defaultdict(list)
    for row in rows:
        by_matter[row.about].append(row)
    found = [
        RuleSummary(
            about=about,
            rules=tuple(dict.fromkeys(rule for row in group for rule in row.rules)),
            agrees=_kernels(group, AGREES),
            differs=_kernels(group, DIFFERS),
            contradicts=_kernels(group, CONTRADICTS),
        )
        for about, group in by_matter.items()
    ]
    return tuple(sorted(found, key=lambda s: -len({*s.agrees, *s.differs, *s.contradicts})))


def _kernels(group: list[RuleRow], state: str) -> tuple[int, ...]:
    return tuple(sorted({row.kernel for row in group if row.verdict == state}))


def _estimate(row: Row) -> float:
    value = number(row["speedup_pct"])
    # What the whole kernel would gain tells more than what one unit would.
    return -1.0 if math.isnan(value) else value + 1000 * (text(row["speedup_of"]) == "global")


def short(message: str) -> str:
    """Return the first sentences of a message, whole ones up to LENGTH characters."""
    sentences = _SENTENCE.split(message)
    shortened = sentences[0]
    for sentence in sentences[1:]:
        if len(shortened) + len(sentence) >= LENGTH:
            return shortened
        shortened = f"{shortened} {sentence}"
    return shortened
