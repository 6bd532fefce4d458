"""Makes the parts of a report that say how the numbers came about."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

from nsight_prof.parsers.cells import known, records, text
from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.parsers.run.directory import StepRecord, StepState
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.run.sentences import joined
from nsight_prof.reports.analysis.gpu_times import gpu_of_launches
from nsight_prof.reports.page import Section, Text
from nsight_prof.reports.page.formats import byte_rate, clock, data_size
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profile.launch_choice import choice
from nsight_prof.reports.profile.view_models import (
    CommandRow,
    CounterFileRow,
    Fact,
    FailedJoin,
    GlossaryEntry,
    KernelRow,
    Method,
)


def environment(run: Run) -> tuple[Fact, ...]:
    """Return GPU, driver and software of the machine that captured, as label and value."""
    gpus = records(run.gpus)
    used = gpu_of_launches(run).nunique()
    facts = _all_gpu_facts([_gpu_facts(gpu) for gpu in gpus], used)
    if not gpus:
        facts = [Fact("GPU", text(gpu.get("name"))) for gpu in run.manifest.gpus if gpu.get("name")]
    known_facts = {fact.label.lower() for fact in facts}
    facts += [Fact(k, v) for k, v in run.manifest.software.items() if k.lower() not in known_facts]
    facts += [Fact(name, version) for name, version in run.manifest.tools.items()]
    facts.append(Fact("prof", run.manifest.prof_version))
    return tuple(fact for fact in facts if fact.value)


def _all_gpu_facts(each: list[list[Fact]], used: int) -> list[Fact]:
    """Return the facts of GPUs that are alike once, with their number and how many ran kernels.

    `used` is 0 where that is not known.
    """
    facts: list[Fact] = []
    for same, n in Counter(map(tuple, each)).items():
        name = f"{n} x {same[0].value}" if n > 1 else same[0].value
        if n == len(each) and 0 < used < n:
            name = f"{name}, {used} of them used"
        facts += [Fact(same[0].label, name), *same[1:]]
    return facts


def _gpu_facts(gpu: dict[str, Any]) -> list[Fact]:
    values = {
        "SMs": _formatted(gpu["sm_count"], lambda v: f"{v:.0f}"),
        "Compute capability": text(gpu["compute_capability"]),
        "Maximum SM clock": _formatted(gpu["clock_hz"], clock),
        "Memory": _formatted(gpu["memory_bytes"], data_size),
        "Memory bandwidth (datasheet)": _formatted(gpu["memory_bandwidth"], byte_rate),
        "L2 cache": _formatted(gpu["l2_bytes"], data_size),
    }
    name = f"{text(gpu['name'])} ({text(gpu['chip'])})".replace(" ()", "")
    return [Fact("GPU", name), *(Fact(label, value) for label, value in values.items())]


def _formatted(value: Any, show: Any) -> str:
    return "" if known(value) is None else str(show(value))


def method(run: Run, kernels: tuple[KernelRow, ...]) -> Method:
    """Return commands, versions and settings, exactly as the manifest has them."""
    recipe = run.manifest.recipe
    counters = recipe.get("counters") or {}
    passes = [int(p) for p in run.counters["passes"].dropna()]
    return Method(
        commands=tuple(
            _command(run, step)
            for step in run.manifest.steps
            if step.state is not StepState.RUNNING  # this report itself
        ),
        versions=tuple(Fact(name, value) for name, value in run.manifest.tools.items()),
        clock_control=str(counters.get("clock_control", "")),
        cache_control=str(counters.get("cache_control", "")),
        sets=tuple(str(s) for s in counters.get("sets") or ()),
        passes=(min(passes), max(passes)) if passes else None,
        choice=choice(run, kernels),
        profiled_kernels=sum(row.profiled for row in kernels),
        total_kernels=len(run.kernels),
    )


def _command(run: Run, step: StepRecord) -> CommandRow:
    """Show a step; how long a replay took to copy a recorded step tells nobody anything."""
    notes = [step.error, step.hint, *step.warnings]
    return CommandRow(
        step.name,
        step.state.value,
        shlex.join(step.argv),
        None if run.manifest.replayed_from else step.seconds,
        step.exit_code,
        joined("; ", notes),
        step.directory if step.directory and (run.path / step.directory).is_dir() else "",
    )


def failed_joins(run: Run) -> tuple[FailedJoin, ...]:
    """Return the launches that fit no kernel of the trace, and chosen kernels without one."""
    lost = run.joins[run.joins["method"].fillna("none") == "none"]
    return tuple(
        FailedJoin(text(r["name"]), text(r["grid"]), text(r["block"]), text(r["reason"]))
        for r in records(lost)
    )


def counter_files(run: Run) -> tuple[CounterFileRow, ...]:
    """Return what each file of ncu adds, where several were imported."""
    names = [field.name for field in fields(CounterFileRow)]
    return tuple(CounterFileRow(**row) for row in records(run.counter_files[names]))


@cache
def _glossary() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = packaged_yaml("nsight_prof.reports", "glossary.yaml")
    return entries


def glossary(used: str, page: str = "report") -> tuple[GlossaryEntry, ...]:
    """Return the terms that the text `used` contains, in plain words.

    A term is left out where a word of its `unless` shows that the text means something else, or
    where it is for readers of the other `page` ("report" or "summary") only.
    """
    exact, small = _words(used), _words(used.lower())

    def has(terms: Iterable[str]) -> bool:
        return any(_contains(exact if t.isupper() else small, t) for t in terms)

    return tuple(
        GlossaryEntry(entry["term"], entry["meaning"])
        for entry in _glossary()
        if has(entry.get("words", [entry["term"]]))
        and not has(entry.get("unless", ()))
        and entry.get("only", page) == page
    )


def summary_terms(used: str) -> tuple[GlossaryEntry, ...]:
    """Return the terms of a summary, and those that the explanations of these use."""
    meanings = " ".join(entry.meaning for entry in glossary(used, "summary"))
    return glossary(f"{used} {meanings}", "summary")


def _words(text: str) -> str:
    """Return the words of a text, of letters, digits and underscores, with a space on each side."""
    words = "".join(c if c.isalnum() or c == "_" else " " for c in text).split()
    return f" {' '.join(words)} "


def _contains(words: str, term: str) -> bool:
    """Return whether words hold a term, or its plural; only one in capitals minds their case."""
    term = _words(term if term.isupper() else term.lower()).rstrip()
    return f"{term} " in words or f"{term}s " in words


def section_words(studies: Sequence[Section], always: str) -> str:
    """Return the words of the sections whose terms the glossary explains, and those of `always`."""
    every = (item for section in studies for item in section.all_blocks())
    texts = [item for item in every if isinstance(item, Text)]
    texts += [finding.verdict for section in studies for finding in section.findings]
    texts += [c.heading for section in studies for table in section.tables for c in table.columns]
    return " ".join([always, *map(Writer().text, texts)])
