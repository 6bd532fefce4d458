"""Reads the rules of the whole program (program_rules.yaml) and makes findings with their words."""

from __future__ import annotations

from functools import cache
from typing import Any

from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.reports.findings.model import Finding, verbatim

OLD_NAMES = {"sentence": "verdict", "cause": "rule", "advice": "plain", "disprove": "disproof"}
TEXTS = ("title", "headline", "verdict", "action", "plain", "disproof")


@cache
def _data() -> dict[str, Any]:
    loaded: dict[str, Any] = packaged_yaml("nsight_prof.reports", "program_rules.yaml")
    return loaded


def program_rules() -> dict[str, dict[str, Any]]:
    """Return the rules by key: asks, needs, thresholds, action, advice, disprove."""
    rules: dict[str, dict[str, Any]] = _data()["rules"]
    return rules


def backends() -> dict[str, dict[str, Any]]:
    """Return the kernels of which a better one is usual, by key."""
    found: dict[str, dict[str, Any]] = _data()["backends"]
    return found


def listing(name: str) -> frozenset[str]:
    """Return a list of names: `fusible`, `fused_libraries` or `moves_only`."""
    return frozenset(_data()[name])


def moves() -> dict[str, dict[str, str]]:
    """Return the kinds of kernels that only move data: name (a pattern), what, needed."""
    found: dict[str, dict[str, str]] = _data()["moves"]
    return found


def limit(rule: str, name: str) -> float:
    """Return a threshold of a rule."""
    return float(program_rules()[rule]["thresholds"][name]["value"])


def source_of(rule: str, name: str) -> str:
    """Return where a threshold of a rule comes from."""
    return str(program_rules()[rule]["thresholds"][name]["source"])


def finding(rule: str, **fields: Any) -> Finding:
    """Return a finding of a rule of the program, with its action, advice and disproof.

    `fields` are those of Finding; the key, the rule and the headline (the title) are given where
    they differ only. Texts may be finished sentences, and have their names of before then.
    """
    words = program_rules()[rule]
    given = {"key": rule, "rule": rule, "headline": fields["title"]}
    told = {name: str(words.get(name, "")) for name in ("action", "advice", "disprove")}
    given |= {OLD_NAMES.get(name, name): value for name, value in {**told, **fields}.items()}
    texts = {name: given.get(name) for name in TEXTS}
    given |= {name: verbatim(text) for name, text in texts.items() if isinstance(text, str)}
    return Finding(**given)
