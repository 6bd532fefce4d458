"""The page in a real browser: it sorts, unfolds, switches, tells, and asks nobody for anything."""

from collections.abc import Callable
from typing import Any

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.profile.provenance import RawCounter
from nsight_prof.reports.render.folds import counter_columns
from nsight_prof.reports.render.html_page import html_page
from nsight_prof.reports.render.report import render_report

Ask = Callable[..., Any]


MADE: list[str] = []


@pytest.fixture
def page(run: Run) -> str:
    """The page of a made-up run, rendered once."""
    if not MADE:
        MADE.append(render_report(run).page.read_text(encoding="utf-8"))
    return MADE[0]


def test_a_column_sorts_by_value_both_ways_and_back(page: str, in_browser: Ask) -> None:
    orders = in_browser(page, """
      const table = [...document.querySelectorAll("table.sortable")].find(
        (t) => t.tHead.textContent.includes("Median"));
      const head = [...table.tHead.rows[0].cells].find((c) => c.textContent === "Total");
      const found = [];
      for (let turn = 0; turn < 3; turn++) {
        head.querySelector("button").click();
        found.push([head.getAttribute("aria-sort"), [...table.tBodies[0].rows].map(
          (row) => row.cells[head.cellIndex].dataset.v ?? row.cells[head.cellIndex].textContent)]);
      }
      return found;
    """)  # fmt: skip
    assert [way for way, _ in orders] == ["descending", "ascending", None]
    down, up, back = ([float(v) for v in values if v] for _, values in orders)
    assert down == sorted(down, reverse=True)
    assert up == down[::-1]
    assert sorted(back) == up
    assert len(set(down)) > 3


def test_the_theme_follows_the_system_and_the_switch(page: str, in_browser: Ask) -> None:
    script = """
      const back = () => getComputedStyle(document.body).backgroundColor;
      const plot = () => getComputedStyle(document.querySelector("svg path")).fill;
      const found = [[back(), plot()]];
      document.getElementById("theme").click();
      found.push([back(), plot()]);
      return found;
    """
    light, dark = in_browser(page, script)
    assert light == ["rgb(255, 255, 255)", "rgb(255, 255, 255)"]
    assert dark[0] == dark[1] != light[0]
    first, second = in_browser(page, script, dark=True)
    assert (first, second) == (dark, light)


def test_keys_reach_what_is_wider_than_a_narrow_page(page: str, in_browser: Ask) -> None:
    wide, unreached = in_browser(page, """
      const wide = [...document.querySelectorAll(".wide, figure")].filter(
        (one) => one.scrollWidth > one.clientWidth && !one.querySelector("a[href], button"));
      return [wide.length, wide.filter((one) => one.tabIndex < 0).length];
    """, size=(500, 800))  # fmt: skip
    assert wide > 0
    assert unreached == 0


def test_a_spot_tells_its_number_and_leads_to_the_kernel(page: str, in_browser: Ask) -> None:
    told, hidden, target, opened = in_browser(page, """
      const spot = document.querySelector(".spots circle");
      spot.dispatchEvent(new PointerEvent("pointermove", { bubbles: true }));
      const tip = document.getElementById("tip");
      const told = tip.innerText;
      document.body.dispatchEvent(new PointerEvent("pointermove", { bubbles: true }));
      const href = spot.parentNode.getAttribute("href");
      location.hash = href;
      await new Promise((done) => setTimeout(done, 100));
      const target = document.querySelector(":target");
      return [told, tip.hidden, [target.tagName, `#${target.id}` === href], target.open];
    """)  # fmt: skip
    assert "FLOP/s" in told
    assert "FLOP/B" in told
    assert hidden
    assert target == ["DETAILS", True]
    assert opened


def test_counters_unfold_from_what_is_packed(in_browser: Ask) -> None:
    name = "counters/kernel-1.md"
    counters = [RawCounter("dram__bytes.sum", 77.0, "", "B"), RawCounter("a<b>", 1.0, "", "")]
    folds = {name: counter_columns(counters, "en")}
    page = html_page(f"# Report\n\n[All 2 counters]({name})\n", folds=folds)
    cells = in_browser(page, f"""
      const one = document.querySelector('details[data-fold="{name}"]');
      one.open = true;
      for (let turn = 0; turn < 50 && !one.querySelector("table"); turn++)
        await new Promise((done) => setTimeout(done, 20));
      return [...one.querySelectorAll("tr")].map((row) => [...row.cells].map((c) => c.textContent));
    """)  # fmt: skip
    assert cells == [["Counter", "Value"], ["dram__bytes.sum", "77 B"], ["a<b>", "1"]]


def test_on_paper_the_evidence_is_open_and_all_is_light(page: str, in_browser: Ask) -> None:
    before, during, after = in_browser(page, """
      const open = () => document.querySelectorAll("main details[open]").length;
      const found = [open()];
      dispatchEvent(new Event("beforeprint"));
      found.push(open());
      dispatchEvent(new Event("afterprint"));
      return [...found, open()];
    """)  # fmt: skip
    assert before == after < during


def test_on_paper_nothing_is_wider_than_the_page(page: str, in_browser: Ask) -> None:
    """A browser shrinks all text of a print to the width of the widest table."""
    long = ["model.layers.0.self_attn.qkv_proj", f"{'x' * 90}.{'y' * 90}", "7"]
    many = ["decode", long[0], "8192 x 37888 x 3584", *["730 TFLOP/s", "83.4 %", "28"] * 4]
    tables = [
        f"|{'|'.join(f'Time {n}' for n in range(len(row)))}\n"
        f"|{'--|' * 3}{'--:|' * (len(row) - 3)}\n|{'|'.join(row)}|\n"
        for row in (long, many)
    ]
    text = "\n".join(["# run\n", *tables])
    for html in (page, html_page(text)):
        paper = html.replace("@media print", "@media all").replace(
            "@media screen", "@media not all"
        )
        shown, beyond = in_browser(paper, """
          dispatchEvent(new Event("beforeprint"));
          const sheet = document.getElementById("page");
          sheet.style.width = "186mm"; // A4 less the margins
          const edge = sheet.getBoundingClientRect().right + 1;
          const boxes = [...document.querySelectorAll("table, p, li, pre, figure, svg")].map(
            (one) => [one.getBoundingClientRect(), one.textContent]).filter(([box]) => box.width);
          return [boxes.length, boxes.filter(([box]) => box.right > edge).map(([, text]) => text)];
        """)  # fmt: skip
        assert shown >= 2
        assert beyond == []
