"""docs/rules.md tells every rule, with what would disprove it."""

import re

from nsight_prof.reports.findings.program.rules import RULES
from nsight_prof.reports.rules import kernel_rules, saturated
from scripts.pages.rules_page import rules_page


def test_the_page_has_every_rule() -> None:
    page = rules_page()
    headings = re.findall(r"^### (\w+)$", page, re.M)
    assert headings == [*kernel_rules(), *(rule.key for rule in RULES)]
    assert all(rule.disprove in page for rule in kernel_rules().values())
    assert all(facts["key"] in page for facts in saturated().values())


def test_links_of_the_tables_lead_to_a_section() -> None:
    page = rules_page()
    links = re.findall(r"\]\(#(\w+)\)", page)
    assert links == re.findall(r"^### (\w+)$", page, re.M)


def test_no_placeholder_is_left() -> None:
    assert not re.search(r"\{\w*\}", rules_page())
