"""docs/rules.md tells every rule, with what would disprove it."""

import re

from nsight_prof.reports.findings.kernels.roofs import ROOFS
from nsight_prof.reports.findings.kernels.rules import BY_KEY
from scripts.pages.rules_page import PROGRAM_RULES, rules_page
from tests.reports.programs import english


def test_the_page_has_every_rule() -> None:
    page = rules_page()
    headings = re.findall(r"^### (\w+)$", page, re.M)
    assert headings == [*BY_KEY, *(rule.key for rule in PROGRAM_RULES)]
    assert all(english(rule.disproof) in page for rule in BY_KEY.values())
    assert all(roof.key in page for roof in ROOFS.values())


def test_links_of_the_tables_lead_to_a_section() -> None:
    page = rules_page()
    links = re.findall(r"\]\(#(\w+)\)", page)
    assert links == re.findall(r"^### (\w+)$", page, re.M)


def test_no_placeholder_is_left() -> None:
    assert not re.search(r"\{\w*\}", rules_page())
