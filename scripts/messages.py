#!/usr/bin/env python3
"""Keeps the translations of the messages of reports: reports/words/<language>/<part>.po.

    scripts/messages.py            finds the messages in the code, and updates the files
    scripts/messages.py --check    fails where they are not up to date, or a translation is wrong

A message is the first argument of `Text(...)`, a literal, and a second one its plural (also in
`partial(Text, ...)`); in a template those of `_(...)`. What a figure says, why a number is
`missing` and what a file holds (`FileFact`) are messages without values. Each study, family of
findings and other package of `reports` has a file of its own, and so have the templates, the
questions of the bundled recipes, the glossary, labels of data, and what tables and manifests keep:
the first argument of `stored(...)` (parsers.run.sentences). All strings of `sentences.yaml` of a
study are messages. Needs Babel (pip install '.[dev]').
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import yaml
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

from nsight_prof.orchestrator.ranks.folder import QUESTION
from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.parsers.nsys.rows.memory_events import GRAPH, SET
from nsight_prof.parsers.nsys.rows.summaries import COPY_KINDS
from nsight_prof.parsers.packaged import LOADER
from nsight_prof.parsers.run.directory import StepState
from nsight_prof.reports.analysis.evidence import thresholds
from nsight_prof.reports.analysis.padding import NO_PADDING
from nsight_prof.reports.cases.rows import NOT_COUNTED
from nsight_prof.reports.findings.ncu.topics import reasons, topics
from nsight_prof.reports.findings.program.rule import WORDS as DECLARED
from nsight_prof.reports.page import charts
from nsight_prof.reports.page.catalogue import ENGLISH, LANGUAGES, STORED
from nsight_prof.reports.page.figure_models import COPIES, GRAPHS, IDLE
from nsight_prof.reports.page.values import has_words, placeholders
from nsight_prof.reports.plots.bars import NAMES as COLUMN_NAMES
from nsight_prof.reports.plots.overview import CLOCK
from nsight_prof.reports.plots.palette import families
from nsight_prof.reports.plots.roofline.axes import ORIGINS
from nsight_prof.reports.profile.figure_views import (
    NO_FLOPS,
    NO_FLOPS_COUNTED,
    NO_INTENSITY,
    PANELS,
)
from nsight_prof.reports.profile.time_views import CAUSES, COSTS
from nsight_prof.reports.profile.views import TIERS
from nsight_prof.reports.studies.roofline.charts import PATTERNS
from nsight_prof.reports.trace_view.assets import messages as trace_words
from nsight_prof.reports.trace_view.page import ALT, TITLES

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "reports"
WORDS = REPORTS / "words"
WORDS_OF = ("alt", "missing")
OF_PICTURES = ("title", "subtitle", "x_label", "y_label", "value_label", "label", "group", "text",
               "texts", "marks", "levels", "groups", "axis")  # fmt: skip
PLACES = {
    "FileFact": (0,), "Figure": (1, 2, 3, 4), "Series": (0, 6), "Panel": (0, 2), "Bar": (0, 4, 5),
    "Stack": (0, 2), "HeatRow": (0,), "Slice": (3,), "Span": (2, 3), "Key": (0,), "Head": (0, 1, 3),
    "line": (0,),
}  # fmt: skip
"""Where literals that are messages stand among the arguments of a class, for those of pictures also
the keywords OF_PICTURES. Of a class of reports.page.charts the fields that are Words are found."""
Messages = dict[str, str]
"""Message -> its plural, "" for none."""


def part_of(path: Path) -> str:
    """Return the file, without its suffix, that the messages of a module go to."""
    inside = path.relative_to(REPORTS).with_suffix("").parts
    divided = {"studies": 1, "findings": 2}  # what each package, or module, has a file for
    return inside[1] if len(inside) > divided.get(inside[0], len(inside)) else inside[0]


def found() -> dict[str, Messages]:
    """Return the messages of each part; raises SystemExit where one is no literal."""
    parts: dict[str, Messages] = defaultdict(dict)
    for path in sorted(REPORTS.rglob("*.py")):
        for message, plural in messages(path):
            parts[part_of(path)][message] = plural
    for path in sorted([*REPORTS.glob("findings/[kpv]*/*.yaml"), *REPORTS.glob("verdicts/*.yaml")]):
        words = of_data(yaml.load(path.read_text("utf-8"), LOADER))
        parts[part_of(path)] |= dict.fromkeys(filter(has_words, words), "")
    for path in sorted(REPORTS.glob("studies/*/sentences.yaml")):
        words = strings(yaml.load(path.read_text("utf-8"), LOADER))
        parts[part_of(path)] |= dict.fromkeys(filter(has_words, words), "")
    for path in sorted((ROOT / "templates").glob("*.j2")):
        parts["templates"] |= dict(of_template(path))
    for path in sorted((ROOT / "recipes").glob("*.yaml")):
        question = yaml.load(path.read_text("utf-8"), LOADER).get("question")
        parts["questions"] |= {question: ""} if question else {}
    parts["questions"] |= {QUESTION: ""}
    for entry in yaml.load((REPORTS / "glossary.yaml").read_text("utf-8"), LOADER):
        parts["glossary"] |= {entry["term"]: "", entry["meaning"]: ""}
    parts["labels"] |= dict.fromkeys(labels(), "")
    for package in ("parsers", "orchestrator", "reports"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts[STORED] |= dict.fromkeys(stored(path), "")
    columns = catalogue().columns.values()
    why_empty = sorted({why for c in columns for why in (*c.empty, c.unclear) if why})
    parts[STORED] |= dict.fromkeys(why_empty, "")
    return dict(parts)


def labels() -> Iterator[str]:
    """Yield fixed words that reports take from data: of bounds, counters, stalls and idle time."""
    yield from LABELS.values()
    yield from (column.label for column in catalogue().columns.values())
    yield from CAUSES.values()
    yield from COSTS.values()
    yield from TIERS
    yield from (limit["source"] for limit in thresholds().values())
    yield from (*TITLES.values(), *ALT.values())
    yield from (topic.about for topic in topics())
    yield from (topic.silent for topic in topics() if topic.silent)
    yield from reasons().values()
    yield from (
        f"L2 {work}, {how}" for work in ("read", "write", "copy") for how in PATTERNS.values()
    )
    yield from (*NO_PADDING, NOT_COUNTED)
    yield from (*(f"copy {kind}" for kind in COPY_KINDS.values()), SET, GRAPH)
    yield from trace_words()
    yield from (state.value for state in StepState)
    yield from (*families().values(), IDLE, COPIES, GRAPHS, CLOCK, "run", "GPU time")
    yield from (*ORIGINS.values(), *COLUMN_NAMES.values(), *PANELS.values())
    yield from (NO_FLOPS, NO_FLOPS_COUNTED, NO_INTENSITY)
    yield from ("agrees", "differs", "contradicts", "nothing to do (launches, host)", "wall time")


def of_data(data: Any) -> Iterator[str]:
    """Yield the messages in rows of rules that are data."""
    if isinstance(data, list):
        yield from (words for row in data for words in of_data(row))
    elif isinstance(data, dict):
        for name, value in data.items():
            if name in DECLARED and isinstance(value, str):
                yield value
            yield from of_data(value)


def strings(data: Any) -> Iterator[str]:
    """Yield all strings in data."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, list | dict):
        items = data.values() if isinstance(data, dict) else data
        yield from (words for item in items for words in strings(item))


def of_template(path: Path) -> Iterator[tuple[str, str]]:
    """Yield message and plural of each `_(...)` of a template that has words to translate."""
    parsed = jinja2.Environment().parse(path.read_text("utf-8"))
    for node in parsed.find_all(jinja2.nodes.Call):
        if getattr(node.node, "name", "") == "_":
            if not all(isinstance(arg, jinja2.nodes.Const) for arg in node.args) or not node.args:
                sys.exit(f"{path}:{node.lineno}: a message is a literal")
            message, plural = [*(str(arg.as_const()) for arg in node.args), ""][:2]
            if has_words(message):
                yield message, plural


def messages(path: Path) -> Iterator[tuple[str, str]]:
    """Yield message and plural of each `Text(...)` of a module that has words to translate."""
    nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
    yield from ((words, "") for words in fixed_words(nodes))
    for node in nodes:
        if not isinstance(node, ast.Call) or _called(node) not in ("Text", "partial"):
            continue
        args = node.args
        if _called(node) == "partial":  # partial(Text, ...) lacks its values yet
            if getattr(args[0], "id", "") != "Text":
                continue
            args = args[1:]
        literals = [arg.value for arg in args if isinstance(arg, ast.Constant)]
        if len(literals) != len(args) or not literals:
            sys.exit(f"{path}:{node.lineno}: the message of a Text is a literal")
        message, plural = [*map(str, literals), ""][:2]
        if has_words(message):
            yield message, plural


def stored(path: Path) -> Iterator[str]:
    """Yield the message of each `stored(...)` of a module."""
    text = path.read_text("utf-8")
    for node in ast.walk(ast.parse(text)) if "stored(" in text else ():
        if isinstance(node, ast.Call) and _called(node) == "stored":
            if not isinstance(node.args[0], ast.Constant):
                sys.exit(f"{path}:{node.lineno}: the message of a sentence is a literal")
            if has_words(message := str(node.args[0].value)):
                yield message


def fixed_words(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the literals that are given as `alt` or `missing`, or name what a file holds."""
    named = {
        target.id: node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in nodes:
        given: list[ast.expr] = []
        if isinstance(node, ast.keyword):
            given = [node.value] if node.arg in WORDS_OF else []
        elif isinstance(node, ast.Assign):
            given = [node.value] if getattr(node.targets[0], "id", "") in WORDS_OF else []
        elif isinstance(node, ast.Call) and (places := _places(_called(node))):
            given = [arg for place, arg in enumerate(node.args) if place in places]
            given += [word.value for word in node.keywords if word.arg in places]
        for value in given:
            literal = named.get(value.id, value) if isinstance(value, ast.Name) else value
            yield from filter(has_words, _literals(literal))


@cache
def _places(called: str) -> set[int | str]:
    """Return the positions and keywords of the arguments of a class that are messages."""
    listed = PLACES.get(_kind(called), ())
    cls = getattr(charts, called, None)
    if dataclasses.is_dataclass(cls):
        fields = {field.name: str(field.type) for field in dataclasses.fields(cls)}
    else:  # a NamedTuple, or no chart at all
        fields = {name: str(cls.__annotations__[name]) for name in getattr(cls, "_fields", ())}
    words = [(at, name) for at, (name, kind) in enumerate(fields.items()) if "Words" in kind]
    keywords = OF_PICTURES if listed or words else ()
    return {*listed, *keywords, *(place for pair in words for place in pair)}


def _literals(value: ast.expr) -> Iterator[str]:
    """Yield the strings that an expression may be, or that stand in its tuples."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.IfExp):
        yield from (*_literals(value.body), *_literals(value.orelse))
    elif isinstance(value, ast.Tuple | ast.List | ast.BoolOp):
        inside = value.values if isinstance(value, ast.BoolOp) else value.elts
        yield from (words for item in inside for words in _literals(item))


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "id", ""))


def _kind(called: str) -> str:
    return "Figure" if called.endswith("Figure") else called


@cache
def read(language: str, part: str) -> Catalog:
    """Return the file of a part in a language; empty where there is none yet."""
    path = WORDS / language / f"{part}.po"
    if not path.exists():
        return _empty(language)
    with path.open("rb") as file:
        return read_po(file, locale=language)


def _empty(language: str) -> Catalog:
    return Catalog(locale=language, project="prof", fuzzy=False)


def updated(language: str, wanted: Messages, known: Messages) -> Catalog:
    """Return a file with exactly the messages `wanted`, and their translations if `known`."""
    catalog = _empty(language)
    for message, plural in wanted.items():
        text = known.get(message, "")
        catalog.add((message, plural) if plural else message, (text,) if plural else text)
    return catalog


def translations(language: str) -> Messages:
    """Return message -> translation of all files of a language: messages move between files."""
    catalogs = [read(language, path.stem) for path in (WORDS / language).glob("*.po")]
    return {_singular(m.id): _singular(m.string) for c in catalogs for m in c if m.id and m.string}


def write(language: str, part: str, catalog: Catalog) -> None:
    """Write the file of a part."""
    path = WORDS / language / f"{part}.po"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        # Without a header: dates would change the file each time.
        write_po(file, catalog, width=100, omit_header=True)


def faults(language: str, parts: dict[str, Messages]) -> Iterator[str]:
    """Yield what is wrong with the files of a language."""
    for path in sorted((WORDS / language).glob("*.po")):
        if path.stem not in parts:
            yield f"{path}: there is no such part any more"
    for part, wanted in parts.items():
        file, catalog = f"{language}/{part}.po", read(language, part)
        known = {_singular(m.id): _singular(m.string or "") for m in catalog if m.id}
        for message in wanted.keys() - known.keys():
            yield f"{file} lacks {message!r}: run scripts/messages.py"
        for message in known.keys() - wanted.keys():
            yield f"{file} has {message!r}, which is stale: run scripts/messages.py"
        for message, text in known.items():
            if text and placeholders(text) != placeholders(message):
                yield f"{file}: {text!r} has other placeholders than {message!r}"


def _singular(key: str | tuple[str, ...] | list[str]) -> str:
    return key if isinstance(key, str) else key[0]


def main() -> int:
    """Update or check the files; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    given = parser.parse_args()
    languages = [language for language in LANGUAGES if language != ENGLISH]
    every = found()
    if given.check:
        wrong = [fault for language in languages for fault in faults(language, every)]
        print("\n".join(wrong), file=sys.stderr)
        return 1 if wrong else 0
    for language in languages:
        known = translations(language)
        for part, wanted in every.items():
            write(language, part, updated(language, wanted, known))
        for path in (WORDS / language).glob("*.po"):
            if path.stem not in every:
                path.unlink()
        for part, wanted in every.items():
            missing = [message for message in wanted if message not in known]
            if missing:
                file = f"{WORDS.relative_to(ROOT)}/{language}/{part}.po"
                print(f"{file}: {len(missing)} to translate, the empty msgstr")
    return 0


if __name__ == "__main__":
    sys.exit(main())
