"""From a claim of a report to its number: every link has a target, and it is the right row."""

import dataclasses
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from nsight_prof.reports.evidence import Evidence
from nsight_prof.reports.findings.model import Finding, verbatim
from nsight_prof.reports.formats import escape, quantity
from nsight_prof.reports.html.body import slug
from nsight_prof.reports.links import evidence_value, linked, places
from nsight_prof.reports.load import Run
from nsight_prof.reports.places import Place, Places
from nsight_prof.reports.render import render_report
from nsight_prof.reports.view_models import KernelRow
from nsight_prof.reports.views import report_view
from tests.recorded import REPLAYED, whole_report

pytestmark = pytest.mark.xdist_group("captures")

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "docs").glob("example*/**/*.md"))
PROGRAMS = [
    name
    for name in REPLAYED
    if "bench:" not in (ROOT / f"recipes/{name.removeprefix('h200-')}.yaml").read_text("utf-8")
]
ID = re.compile(r'<a id="([^"]+)"></a>')
LINK = re.compile(r"\]\(([^)\s]+)\)")


def ids(text: str) -> list[str]:
    """The ids of a page, those of headings as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return [*ID.findall(text), *(slug(heading) for heading in headings)]


def rows(text: str) -> dict[str, str]:
    """The line of each id."""
    return {name: line for line in text.splitlines() for name in ID.findall(line)}


def dead(text: str, folder: Path) -> list[str]:
    """The links of a page without a target."""
    known, lost = set(ids(text)), []
    for link in LINK.findall(text):
        file, _, anchor = link.partition("#")
        if link.startswith("http"):
            continue
        there = known if not file else _ids_of(folder / file)
        if there is None or (anchor and anchor not in there):
            lost.append(link)
    return lost


def dead_links(folder: Path) -> dict[str, list[str]]:
    """The links without a target of each page of a report that has some."""
    pages = {p: p.read_text(encoding="utf-8") for p in sorted(folder.rglob("*.md"))}
    lost = {str(p.relative_to(folder)): dead(text, p.parent) for p, text in pages.items()}
    return {name: links for name, links in lost.items() if links}


@cache
def _ids_of(path: Path) -> set[str] | None:
    """The ids of a page; none of what is no text; None where there is no such file."""
    if not path.exists():
        return None
    return set(ids(path.read_text(encoding="utf-8"))) if path.suffix == ".md" else set()


def kernel(view_row: KernelRow, number: int, name: str) -> KernelRow:
    return dataclasses.replace(view_row, number=number, short_name=name)


@pytest.fixture
def named(run: Run) -> Callable[..., list[KernelRow]]:
    some = report_view(run).kernels[0]
    return lambda *names: [kernel(some, place, name) for place, name in enumerate(names, 1)]


def test_the_name_of_a_kernel_leads_to_its_section(named: Callable[..., list[KernelRow]]) -> None:
    made = linked("It is soft_max, fp32 that waits.", named("soft_max, fp32"))
    assert made == r"It is [soft\_max, fp32](#kernel-1) that waits."


def test_kernels_of_one_name_are_told_apart_by_number(
    named: Callable[..., list[KernelRow]],
) -> None:
    kernels = named("copy a", "mul b", "copy a", "copy a")
    assert linked("copy a 3.7 %", kernels) == (
        "copy a ([1](#kernel-1), [3](#kernel-3), [4](#kernel-4)) 3.7 %"
    )
    assert linked("copy a (2 shapes)", kernels, [3, 4]) == (
        "copy a ([3](#kernel-3), [4](#kernel-4); 2 shapes)"
    )
    assert linked("copy a", kernels, [3]) == "[copy a](#kernel-3)"


def test_the_longest_name_is_meant_and_one_that_goes_on_is_another(
    named: Callable[..., list[KernelRow]],
) -> None:
    kernels = named("copy, bf16", "copy, bf16, strided")
    assert linked("copy, bf16, strided", kernels) == "[copy, bf16, strided](#kernel-2)"
    assert linked("copy, bf16, wide and Xcopy, bf16", kernels) == "copy, bf16, wide and Xcopy, bf16"


def test_a_plain_word_is_a_kernel_at_the_start_only(
    named: Callable[..., list[KernelRow]],
) -> None:
    made = linked("copy takes long: a copy of bytes", named("copy"))
    assert made == "[copy](#kernel-1) takes long: a copy of bytes"


def test_a_value_leads_to_the_row_that_holds_it() -> None:
    on_page = Places({"k": 1}, {"k": frozenset({"c"})}, frozenset(), (), None, {}, {})
    finding = Finding("a_rule", verbatim("It is slow."), kernel_ids=("k",))
    seen = Evidence("DRAM busy", 12.0, "%", "", "ncu", ("c",))
    assert evidence_value(seen, finding, on_page) == "[12.0 %](#kernel-1-c)"
    assert evidence_value(Evidence("DRAM busy", 12.0, "%"), finding, on_page) == "12.0 %"
    where = (Place("a.b"), Place("c", "kernel-1-c"))
    assert places(where) == "`a.b`, [`c`](#kernel-1-c)"
    assert places(()) == "–"


def test_what_kernels_could_save_adds_up_to_the_answer(run: Run) -> None:
    view = report_view(run)
    (bounds,) = [finding for finding in view.findings if finding.key == "bounds"]
    assert sum(row.gain_program or 0.0 for row in view.kernels) == pytest.approx(
        bounds.gain_program
    )
    assert view.saved_ns == pytest.approx(bounds.gain_ns)
    whole = [row.gain or 0.0 for row in view.bound_shares if row.stage == "(all)"]
    assert sum(whole) == pytest.approx(bounds.gain_program)


def test_kinds_of_kernels_add_up_to_the_gpu_time(run: Run) -> None:
    view = report_view(run)
    assert view.kinds is not None
    assert sum(row.total_ns for row in view.kinds.rows) == pytest.approx(view.gpu_time_ns)
    assert view.kinds.total.total_ns == pytest.approx(view.gpu_time_ns)
    for place, stage in enumerate(view.kinds.stages):
        (row,) = [row for row in view.stages if row.stage == stage]
        spent = sum(kind.by_stage[place] or 0.0 for kind in view.kinds.rows)
        assert spent == pytest.approx(row.kernel_ns, rel=1e-6)


def test_kernels_without_counters_are_the_same_number_everywhere(run: Run) -> None:
    view = report_view(run)
    unmeasured = [r.kernels for r in view.bound_shares if r.bound == "unmeasured"][:1]
    without = view.method.total_kernels - view.method.profiled_kernels
    assert [without] == unmeasured
    assert sum(row.kernels for row in view.left_out) in (0, without)


def test_no_link_of_a_report_is_dead(run: Run) -> None:
    paths = render_report(run)
    assert dead_links(paths.folder) == {}
    text = whole_report(paths.folder)
    assert len(ID.findall(text)) == len(set(ID.findall(text)))


@pytest.mark.parametrize("path", EXAMPLES, ids=[str(p.relative_to(ROOT)) for p in EXAMPLES])
def test_no_link_of_a_rendered_example_is_dead(path: Path) -> None:
    assert dead(path.read_text(encoding="utf-8"), path.parent) == []


@pytest.mark.parametrize("recorded", REPLAYED)
def test_every_claim_of_a_recorded_run_leads_to_a_number(
    replay: Callable[[str], Path], recorded: str
) -> None:
    folder = replay(recorded.removeprefix("h200-")) / "report"
    text = whole_report(folder)
    told = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert dead_links(folder) == {}
    known = ids(text)
    assert len(ID.findall(text)) == len(set(ID.findall(text)))
    assert len(told["answer"]) == len(told["answer_anchors"])
    assert set(told["answer_anchors"]) <= set(known)
    for finding in told.get("findings", ()):
        rank, key = finding["rank"], finding["key"]
        anchor = f"overview-{key}" if rank is None else f"finding-{rank}"
        block = text[text.index(f'<a id="{anchor}"></a>') :].split("</details>")[0]
        assert re.search(r"\]\(#(?!kernel-\d+\))", block), finding["title"]


@pytest.mark.parametrize("recorded", PROGRAMS)
def test_the_first_page_of_a_recorded_program_is_short(
    replay: Callable[[str], Path], recorded: str
) -> None:
    page = replay(recorded.removeprefix("h200-")) / "report" / "report.md"
    assert len(page.read_text(encoding="utf-8").splitlines()) <= 400
    assert page.stat().st_size <= 60_000


@pytest.mark.parametrize("recorded", REPLAYED)
def test_what_to_do_is_in_the_order_of_what_it_gains(
    replay: Callable[[str], Path], recorded: str
) -> None:
    folder = replay(recorded.removeprefix("h200-")) / "report"
    told = json.loads((folder / "metrics.json").read_text(encoding="utf-8")).get("findings", ())
    to_do = [finding for finding in told if finding["rank"] is not None]
    assert [finding["rank"] for finding in to_do] == list(range(1, len(to_do) + 1))
    known = [finding["gain_ns"] for finding in to_do if finding["gain_ns"] is not None]
    assert known == sorted(known, reverse=True)
    overview = [finding["key"] for finding in told if finding["rank"] is None]
    assert overview == [finding["key"] for finding in told][: len(overview)]
    assert set(overview) <= {"time", "bounds"}


@pytest.mark.parametrize("recorded", REPLAYED)
def test_the_row_of_a_counter_holds_the_value_of_the_evidence(
    replay: Callable[[str], Path], recorded: str
) -> None:
    folder = replay(recorded.removeprefix("h200-")) / "report"
    told = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    shown = rows(whole_report(folder))
    for finding in told.get("findings", ()):
        for seen in finding["evidence"]:
            names = [place["name"] for place in seen["where"]]
            value = escape(quantity(seen["value"], seen["unit"]))
            if seen["anchor"].startswith(("kernel-", "idle-", "stage-", "roof-")):
                assert value in shown[seen["anchor"]] or "grid" in seen["anchor"], seen
            if seen["metric"].endswith(" busy") and len(names) == 1:
                assert value in shown[seen["where"][0]["anchor"]], (finding["title"], seen)
