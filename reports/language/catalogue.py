"""Reads the catalogues of sentences: reports/language/<language>.yaml, one a language.

Section `page` holds the fixed words of the page, `summary` the sentences that the summary makes,
`sentences` and `words` what other parts of a report say in English, `questions` those of the
bundled recipes. English of `kinds`, `limits`, `causes`, `advice` and `terms` stands where reports
use it: plain_words.yaml, findings.yaml, kernel_rules.yaml and glossary.yaml.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.reports.findings.program.backends import BACKENDS
from nsight_prof.reports.findings.program.rules import RULES as PROGRAM_RULES
from nsight_prof.reports.page.writer import Writer

ENGLISH = "en"
LANGUAGES = ("en", "ko", "zh")
RULES = ("findings.yaml", "kernel_rules.yaml", "kernel_words.yaml")
"""Files with advice: a section `advice`, or an `advice` in each rule of a section."""
RULE_SECTIONS = ("rules", "backends", "waits")

Sections = dict[str, dict[str, str]]


@cache
def catalogue(language: str) -> Sections:
    """Return the sections of a language, key to text; terms have their name and meaning in two.

    Raises:
        UsageError: there is no such language.
    """
    if language not in LANGUAGES:
        raise UsageError(
            f"no summary is written in the language {language!r}",
            f"choose from: {', '.join(LANGUAGES)}",
        )
    loaded = _read(f"language/{language}.yaml")
    return english_sections() | loaded if language == ENGLISH else _flat_terms(loaded)


@cache
def english_sections() -> Sections:
    """Return the sections whose English stands in other files."""
    plain = _read("plain_words.yaml")
    terms = {entry["term"]: entry["meaning"] for entry in _read("glossary.yaml")}
    return {
        **{name: dict(plain[name]) for name in ("kinds", "limits", "causes")},
        "advice": _advice(),
        "terms": {term: term for term in terms},
        "meanings": terms,
    }


def _advice() -> dict[str, str]:
    """Return all advice by the key of its rule."""
    found: dict[str, str] = {}
    for name in RULES:
        if not resources.files("nsight_prof.reports").joinpath(name).is_file():
            continue
        loaded = _read(name)
        found |= loaded.get("advice") or {}
        for section in RULE_SECTIONS:
            rules = (loaded.get(section) or {}).items()
            found |= {key: rule["advice"] for key, rule in rules if rule.get("advice")}
    advice = {rule.key: rule.advice for rule in PROGRAM_RULES}
    advice |= {key: backend.advice for key, backend in BACKENDS.items()}
    return found | {key: Writer().text(text) for key, text in advice.items() if text is not None}


def _flat_terms(loaded: dict[str, Any]) -> Sections:
    terms = loaded.pop("terms")
    names = {term: entry[0] for term, entry in terms.items()}
    return {**loaded, "terms": names, "meanings": {term: entry[1] for term, entry in terms.items()}}


def _read(name: str) -> Any:
    return packaged_yaml("nsight_prof.reports", name)
