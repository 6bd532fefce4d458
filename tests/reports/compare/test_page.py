"""The HTML file of a comparison, in a real browser where there is one."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from nsight_prof.reports.compare.answer import findings
from nsight_prof.reports.compare.comparison import compare
from nsight_prof.reports.compare.section import html as page
from nsight_prof.reports.compare.section import markdown, section
from nsight_prof.reports.compare.sides import Side
from nsight_prof.reports.page.writer import Writer

PROBE = """
const table = [...document.querySelectorAll("table.sortable")].find(
  (t) => t.tHead.textContent.includes("Effect on the program"));
const at = [...table.tHead.rows[0].cells].findIndex((c) => c.textContent === "A");
const button = table.tHead.rows[0].cells[at].querySelector("button");
const order = () => [...table.tBodies[0].rows].map((r) => r.cells[0].textContent);
button.click();
const down = order();
button.click();
const up = order();
document.getElementById("theme").click();
return [down, up, document.documentElement.dataset.theme];
"""


@pytest.fixture
def html(make_run: Callable[..., Side], recorded: list[Any]) -> str:
    changed = [x.lasting(x.duration * (1.5 if i % 3 else 1)) for i, x in enumerate(recorded)]
    return page(compare(make_run("A", recorded), make_run("B", changed)))


def test_the_page_is_one_file_without_network(html: str) -> None:
    assert not re.search(r"src=|href=\"(?!#)", html)
    assert "@import" not in html
    assert html.count("<svg") == html.count("</svg>") == 1
    assert html.count("<table") == html.count("</table>")


def test_the_first_screen_is_the_verdict_what_changed_and_a_chart(html: str) -> None:
    order = [html.index(mark) for mark in ("B is slower", 'id="table-what-changed"', "<svg ",
                                           'id="section-details"', "<summary>Stages")]  # fmt: skip
    assert order == sorted(order)
    found = re.search(r'viewBox="0 0 (\d+)', html)
    assert found
    assert int(found[1]) <= 900


@pytest.mark.parametrize("language", ["ko", "zh"])
def test_every_message_of_a_page_is_translated(
    language: str, make_run: Callable[..., Side], recorded: list[Any]
) -> None:
    changed = [x.lasting(x.duration * (1.5 if i % 3 else 1)) for i, x in enumerate(recorded)]
    view = compare(make_run("A", recorded), make_run("B", changed))
    write = Writer(language)
    texts = [finding.verdict for finding in findings(view)]
    texts += [table.title for table in section(view).tables]
    texts += [column.heading for table in section(view).tables for column in table.columns]
    assert [text.message for text in texts if not write.translates(text)] == []
    assert markdown(view, language) != markdown(view)


def test_names_of_kernels_cannot_break_the_page(
    make_run: Callable[..., Side], recorded: list[Any]
) -> None:
    evil = type(recorded[0])("", "k<script>alert(1)</script>&|`_x_`", "1x1x1", 1e6)
    text = page(compare(make_run("A", [evil] * 3), make_run("B", [evil.lasting(3e6)] * 3)))
    assert "alert(1)</script>" not in text


def test_tables_sort_and_the_theme_switches(html: str, in_browser: Callable[..., Any]) -> None:
    down, up, theme = in_browser(html, PROBE)
    assert theme in ("dark", "light")
    assert sorted(down) == sorted(up)
    assert down != up
    assert len(down) > 5
