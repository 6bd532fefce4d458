"""The pages of recorded runs, judged by axe: nothing that keeps anybody from reading them."""

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.render.report import render_report

Ask = Callable[..., Any]
# Of what holds axe would look up selectors for thousands of elements, most of its time.
FOUND = 'resultTypes: ["violations"]'
COLOURS = 'runOnly: ["color-contrast", "link-in-text-block"], '


@pytest.mark.parametrize("name", ["h200-gemm-staircase", "h200-vllm-kernels", "h200-vllm-serve"])
def test_axe_finds_nothing_serious(
    name: str, in_browser: Ask, recorded_run_of: Callable[[str], Run]
) -> None:
    axe = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    pages = render_report(recorded_run_of(name))
    for page in (pages.page, pages.page.with_name("stakeholder_summary.html")):
        for theme in ("0", "1"):  # dark, where colours alone are other ones; light
            rules = COLOURS if theme == "0" else ""
            violations = in_browser(
                page.read_text(encoding="utf-8"),
                axe.replace("</script", "<\\/script") + """
      document.querySelectorAll("details").forEach((one) => { one.open = true; });
      const { violations } = await axe.run(document, { """ + rules + FOUND + """ });
      return violations.map((one) => [one.id, one.impact, one.nodes.map((node) => node.html)]);
    """,
                f"--blink-settings=preferredColorScheme={theme}", "--virtual-time-budget=60000",
            )  # fmt: skip
            assert [one for one in violations if one[1] in ("serious", "critical")] == []
