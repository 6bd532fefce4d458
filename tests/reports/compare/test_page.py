"""The HTML file of a comparison, in a real browser where there is one."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reports.compare.page import page
from reports.compare.sides import Side
from reports.compare.view import compare

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PROBE = """
<script>
const table = [...document.querySelectorAll("table[data-sort]")].find(
  (t) => t.tHead.textContent.includes("Of program"));
const at = [...table.tHead.rows[0].cells].findIndex((c) => c.textContent === "A");
const head = table.tHead.rows[0].cells[at];
const order = () => [...table.tBodies[0].rows].map((r) => r.cells[0].textContent).join(",");
head.click();
const down = order();
head.click();
const up = order();
document.getElementById("theme").click();
document.body.dataset.probe = [down, up, document.documentElement.dataset.theme].join(" ");
</script></body>"""


@pytest.fixture
def html(make_run: Callable[..., Side], recorded: list[Any]) -> str:
    changed = [x.lasting(x.duration * (1.5 if i % 3 else 1)) for i, x in enumerate(recorded)]
    return page(compare(make_run("A", recorded), make_run("B", changed)))


def test_the_page_is_one_file_without_network(html: str) -> None:
    assert not re.search(r"(?:src|href)=", html)
    assert "@import" not in html
    assert html.count("<svg") == html.count("</svg>") == 1
    assert html.count("<table") == html.count("</table>")


def test_names_of_kernels_cannot_break_the_page(
    make_run: Callable[..., Side], recorded: list[Any]
) -> None:
    evil = type(recorded[0])("", "k<script>alert(1)</script>&|`_x_`", "1x1x1", 1e6)
    text = page(compare(make_run("A", [evil] * 3), make_run("B", [evil.lasting(3e6)] * 3)))
    assert "alert(1)</script>" not in text


def test_tables_sort_and_the_theme_switches(html: str, tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chromium on this machine")
    path = tmp_path / "compare.html"
    path.write_text(html.replace("</body>", PROBE), encoding="utf-8")
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
         f"--user-data-dir={tmp_path}/profile", path.as_uri()],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    found = re.search(r'data-probe="([\d,]+) ([\d,]+) (dark|light)"', done.stdout)
    assert found, done.stderr[-500:]
    down, up = (found[i].split(",") for i in (1, 2))
    assert sorted(down) == sorted(up)
    assert down != up
    assert len(down) > 5
