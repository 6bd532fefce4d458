"""The pages of recorded runs, judged by axe: nothing that keeps anybody from reading them."""

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.render.report import render_report
from nsight_prof.reports.render.style import HTML, Style

Ask = Callable[..., Any]
HTML_ALONE = Style(formats=(HTML,))
# Hundreds of rows are made of the same elements with the same classes, which is all that rules see;
# thousands of points of pictures have no text.
# In dark, where the page begins, colours alone are other ones than in light, where it is switched.
JUDGED = r"""
document.querySelectorAll("details").forEach((one) => { one.open = true; });
const seen = new Set();
for (const row of document.querySelectorAll("tbody > tr")) {
  const made = row.closest("table").className + row.outerHTML
    .replace(/ (href|id|title|aria-label|data-[a-z]+)="[^"]+"/g, " $1")
    .replace(/>[^<]*[^<\s][^<]*/g, ">x");
  if (seen.has(made)) row.remove();
  seen.add(made);
}
document.querySelectorAll("svg :is(circle, use)").forEach((one) => one.remove());
const found = [];
for (const rules of [{ runOnly: ["color-contrast", "link-in-text-block"] }, {}]) {
  // Of what holds axe would look up selectors for thousands of elements, most of its time.
  const { violations } = await axe.run(document, { ...rules, resultTypes: ["violations"] });
  found.push(...violations);
  document.getElementById("theme").click();
}
return found.map((one) => [one.id, one.impact, one.nodes.map((node) => node.html)]);
"""


def test_what_to_do_needs_no_scrolling(
    in_browser: Ask, recorded_run_of: Callable[[str], Run], no_pictures: None
) -> None:
    page = render_report(recorded_run_of("h200-top-kernels"), HTML_ALONE).page
    for one in (page, page.with_name("stakeholder_summary.html")):
        hidden = in_browser(one.read_text(encoding="utf-8"), """
          const box = document.querySelector(".cards").closest(".wide");
          return box.scrollWidth - box.clientWidth;
        """, size=(1280, 1000))  # fmt: skip
        assert hidden <= 0


@pytest.mark.parametrize(
    "name",
    [
        "h200-vllm-kernels",
        pytest.param("h200-gemm-staircase", marks=pytest.mark.every_run),
        pytest.param("h200-vllm-serve", marks=pytest.mark.every_run),
    ],
)
def test_axe_finds_nothing_serious(
    name: str, in_browser: Ask, recorded_run_of: Callable[[str], Run]
) -> None:
    axe = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    pages = render_report(recorded_run_of(name), HTML_ALONE)
    for page in (pages.page, pages.page.with_name("stakeholder_summary.html")):
        violations = in_browser(
            page.read_text(encoding="utf-8"),
            axe.replace("</script", "<\\/script") + JUDGED,
            dark=True,
        )
        assert [one for one in violations if one[1] in ("serious", "critical")] == []
