"""From a claim of a report to its number: every link has a target, and it is the right row."""

import html
import json
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.stages import ALL
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.page import Evidence, Name, Number, Ref, Text
from nsight_prof.reports.page.rows import Rows, Shown
from nsight_prof.reports.profile import pages
from nsight_prof.reports.profile.links import Links, Place
from nsight_prof.reports.profile.pages import marked_pages
from nsight_prof.reports.profile.shown_rows import row_anchor
from nsight_prof.reports.profile.views import report_view
from nsight_prof.reports.render.body import slug
from nsight_prof.reports.render.report import render_report
from nsight_prof.reports.render.templating import linked
from tests.recorded import REPLAYED, whole_report

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "docs").glob("example*/**/*.md"))
PROGRAMS = [
    name
    for name in REPLAYED
    if not {"bench:", "extends: vllm-serve"}
    & set((ROOT / f"recipes/{name.removeprefix('h200-')}.yaml").read_text("utf-8").splitlines())
]
ID = re.compile(r'<a id="([^"]+)"></a>')
LINK = re.compile(r"\]\(([^)\s]+)\)")
CELL = re.compile(r"(?<!\\)\|")
UNIT = re.compile(r"s|(?:FLOP|B)(?:/s|/B)?|Hz|W|(?:tokens|requests)/s")
NUMBER = re.compile(
    r"(?<![\w.`-])(-?\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?)"
    rf"(?: ?(%|points|x|[pnumkMGTP]?(?:{UNIT.pattern}))(?![\w/]))?"
)
TOLD = re.compile(r"\[((?:&lt;)?-?\d[^\]]*)\]\(#([^)]+)\)")
"""A number that leads somewhere."""
LED = re.compile(r"\[([^\]]*\d (?:%|x|[num]?s)[^\]]*|[\d.]+x)\]\(([\w.]*)#([^)]+)\)")
"""Words with a number and its unit that lead somewhere, on whatever page."""
VERDICT = re.compile(
    r'<a id="(?:finding|overview)-[\w-]+"></a>\n\n<details><summary>.*?</summary>\n\n(.*?)\n'
)
PLACE = re.compile(r"(?:kernel|finding)-\d+")
"""Where the number of a kernel or a finding leads to."""
PREFIXES = {
    "p": 1e-12,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
}


def page(text: str) -> str:
    """A text with marks as a page of its own."""
    return marked_pages({"page.md": text}, [], "en")["page.md"]


def ids(text: str) -> list[str]:
    """The ids of a page, those of headings as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return [*ID.findall(text), *(slug(heading) for heading in headings)]


def rows(text: str) -> dict[str, tuple[str, list[str]]]:
    """What stands behind each id, and the units that the headings of its table give to columns."""
    found: dict[str, tuple[str, list[str]]] = {}
    units: list[str] = []
    before = ""
    for line in text.splitlines():
        in_table = line.startswith("|")
        if in_table and not before.startswith("|"):
            ends = (head.strip().rpartition(", ")[2] for head in CELL.split(line))
            units = [end if NUMBER.fullmatch(f"1 {end}") else "" for end in ends]
        for mark in ID.finditer(line):
            behind = line[mark.end() :].partition("; <a id=")[0]
            found[mark[1]] = (line, units) if in_table else (behind, [])
        before = line
    return found


def quantities(text: str, unit: str = "") -> list[tuple[float, str, float]]:
    """The numbers of a text in base units, their units, and half of their last digits.

    `unit` is that of numbers without one, as in a column with a unit.
    """
    found = []
    for number, own in NUMBER.findall(text):
        shown = own or unit
        scale = PREFIXES.get(shown[:1], 1.0) if UNIT.fullmatch(shown[1:]) else 1.0
        digits, _, power = number.replace(",", "").lstrip("-").partition("e")
        whole, _, part = digits.partition(".")
        zeros = min(len(whole) - len(whole.rstrip("0")), max(len(whole) - 2, 0))
        half = 0.5 * 10.0 ** (int(power or 0) + (-len(part) if part else zeros))
        base = shown if scale == 1.0 else shown[1:]
        found.append((float(number.replace(",", "")) * scale, base, half * scale))
    return found


def shows(row: str, units: list[str], told: str) -> bool:
    """Whether a row of a table, or a line, shows the number of a sentence, with its unit."""
    if told.startswith("&lt;"):
        return told in row
    if len(quantities(told)) > 1:
        return told in row  # what the counters showed of a roof leads to the row that has it
    ((value, unit, half),) = quantities(told)
    cells = CELL.split(row)
    columns = units if len(units) == len(cells) else [""] * len(cells)
    there = (one for cell, of in zip(cells, columns, strict=True) for one in quantities(cell, of))
    return any(
        of == unit and abs(value - other) <= (half + least) * 1.001 for other, of, least in there
    )


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


COPY = Ref("counters", "k1", "dram_pct")
LINKS = Links(
    {"k1": 1, "k2": 2},
    {
        Ref("kernels", "k1"): "kernel-1",
        COPY: "kernel-1-dram_pct",
        Ref("kernels", "k2"): "kernel-2",
        Ref("stages", "decode"): "stage-decode",
        Ref("launches", ""): "launches",
    },
    Rows(
        [
            Shown("kernel-1-dram_pct", Number(12.0, "%"), frozenset({"k1"})),
            Shown("kernel-2-dram_pct", Number(12.34567, "%"), frozenset({"k2"})),
            Shown("whole-run", Number(4321e3, "ns")),
        ]
    ),
)


def test_the_name_of_a_kernel_leads_to_its_section() -> None:
    words = Text("{one} and {two}", one=Name("a", Ref("kernels", "k1")), two=Name("b"))
    assert page(linked("en", words, LINKS)) == "[`a`](#kernel-1) and `b`"


def test_a_cell_is_looked_for_in_its_row_and_then_in_its_table() -> None:
    assert LINKS.target(COPY) == "kernel-1-dram_pct"
    assert LINKS.target(Ref("stages", "decode", "idle_ns")) == "stage-decode"
    assert LINKS.target(Ref("launches", "", "start_ns")) == "launches"
    assert LINKS.target(Ref("gpus", "", "sm_count")) == ""


def test_a_value_leads_to_the_row_that_shows_it() -> None:
    busy = Evidence(Text("DRAM busy"), Number(12.0, "%", (COPY,)), source=Text("ncu"))
    assert LINKS.cell(busy) == "kernel-1-dram_pct"
    assert LINKS.places(busy) == (Place("dram_pct", "kernel-1-dram_pct"),)


def test_no_value_leads_to_a_row_that_shows_another_or_that_of_another_kernel() -> None:
    other = Evidence(Text("DRAM busy"), Number(13.0, "%", (COPY,)))
    neighbour = Evidence(Text("DRAM busy"), Number(12.34567, "%", (COPY,)))
    assert LINKS.cell(other) == LINKS.cell(neighbour) == ""


def test_only_digits_that_tell_it_from_others_lead_a_number_of_no_row_somewhere() -> None:
    assert LINKS.rows.find(Number(4321e3, "ns")) == "whole-run"
    assert LINKS.rows.find(Number(0.1234567, "fraction")) == "kernel-2-dram_pct"
    assert LINKS.rows.find(Number(12.0, "%")) == ""
    assert LINKS.rows.find(Number(4.321e-3, "s")) == "whole-run"  # the same time


def test_a_derived_value_leads_to_the_columns_it_is_made_of() -> None:
    refs = (COPY, Ref("counters", "k2", "dram_pct"), Ref("gpus", "", "sm_count"))
    mean = Evidence(Text("mean"), Number(11.0, "%", refs))
    assert LINKS.cell(mean) == ""
    assert LINKS.places(mean) == (
        Place("dram_pct", "kernel-1-dram_pct", 1),
        Place("dram_pct", "", 2),
        Place("gpus.sm_count"),
    )


def test_a_sentence_leads_to_the_evidence_where_no_table_shows_its_number() -> None:
    half, other = Number(6.0, "%", (COPY,)), Number(7.0, "%")
    verdict = Text("It takes {half}, {other}.", half=half, other=other)
    finding = Finding("a_rule", verdict, evidence=(Evidence(Text("half"), half),), rank=1)
    found = LINKS.leading([finding], ())
    assert (
        page(linked("en", verdict, found, "finding-1")) == "It takes [6.0 %](#finding-1-1), 7.0 %."
    )
    assert page(linked("en", verdict, found, "finding-2")) == "It takes 6.0 %, 7.0 %."


def test_only_what_findings_lead_to_gets_an_id() -> None:
    busy = Evidence(Text("DRAM busy"), Number(12.0, "%", (COPY,)))
    finding = Finding("a_rule", Text("It is slow."), evidence=(busy,))
    found = LINKS.leading([finding], ())
    assert page(found.mark("kernel-1-dram_pct")) == '<a id="kernel-1-dram_pct"></a>'
    assert found.mark("kernel-1-l2_pct") == ""


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
    times = {kernel.kernel_id: kernel.total_ns or 0.0 for kernel in view.kernels}
    largest = [times[row.kernel_ids[0]] for row in view.kinds.rows[:3]]
    assert largest == [max(times[key] for key in row.kernel_ids) for row in view.kinds.rows[:3]]
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


def test_no_link_of_a_report_is_dead(run: Run, no_pictures: None) -> None:
    paths = render_report(run)
    assert dead_links(paths.folder) == {}
    text = whole_report(paths.folder)
    assert len(ID.findall(text)) == len(set(ID.findall(text)))


def test_a_page_that_would_be_too_long_shows_less_of_each_list(
    run: Run, no_pictures: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = len(render_report(run).report.read_text(encoding="utf-8").splitlines())
    monkeypatch.setattr(pages, "LINES", whole - 1)
    paths = render_report(run)
    assert len(paths.report.read_text(encoding="utf-8").splitlines()) < whole
    assert dead_links(paths.folder) == {}


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
def test_every_number_with_a_unit_in_a_verdict_leads_somewhere(
    replay: Callable[[str], Path], recorded: str
) -> None:
    text = whole_report(replay(recorded.removeprefix("h200-")) / "report")
    verdicts = VERDICT.findall(text)
    assert verdicts
    alone = [re.sub(r"\[[^\]]*\]\([^)]*\)", "", verdict) for verdict in verdicts]
    assert [found for one in alone for found in NUMBER.findall(one) if found[1]] == []


def test_every_number_with_a_unit_in_a_verdict_of_an_engine_leads_somewhere(
    replay: Callable[[str], Path],
) -> None:
    text = whole_report(replay("vllm-kernels") / "report")
    verdicts = re.findall(r"^\d+\. \*\*(.+)\*\*$", text, re.MULTILINE)
    # Shapes ("8192 x 3584") and thresholds are no measured quantities.
    no_values = re.compile(r"\[[^\]]*\]\([^)]*\)|\(\d+ x [^)]*\)|within [\d.]+ %")
    alone = [no_values.sub("", verdict) for verdict in verdicts]
    assert len(verdicts) > 10
    assert [found for one in alone for found in NUMBER.findall(one) if found[1]] == []


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
    known = [finding for finding in to_do if finding["gain_ns"] is not None]
    # A cause stands before what follows from it in the same stage, whatever it gains by itself.
    causes = [
        first["rank"]
        for first, second in pairwise(known)
        if (first["key"], first["stage"]) == (second["key"], second["stage"])
        and first["gain_ns"] < second["gain_ns"]
    ]
    gains = [finding["gain_ns"] for finding in known if finding["rank"] not in causes]
    assert gains == sorted(gains, reverse=True)
    overview = [finding["key"] for finding in told if finding["rank"] is None]
    assert overview == [finding["key"] for finding in told][: len(overview)]
    assert set(overview) <= {"time", "bounds"}


@pytest.mark.parametrize("recorded", REPLAYED)
def test_every_number_that_leads_somewhere_leads_to_a_row_that_shows_it(
    replay: Callable[[str], Path], recorded: str
) -> None:
    text = whole_report(replay(recorded.removeprefix("h200-")) / "report")
    there = rows(text)
    wrong = [
        (told, anchor, there.get(anchor))
        for told, anchor in TOLD.findall(text)
        if not PLACE.fullmatch(anchor) and not (anchor in there and shows(*there[anchor], told))
    ]
    assert wrong == []


@pytest.mark.parametrize("recorded", REPLAYED)
def test_on_a_page_no_id_is_used_twice_and_all_that_is_led_to_is_there(
    replay: Callable[[str], Path], recorded: str
) -> None:
    folder = replay(recorded.removeprefix("h200-")) / "report"
    pages = {p.name: p.read_text(encoding="utf-8") for p in folder.glob("*.html")}
    ids = {name: re.findall(r'\sid="([^"]+)"', text) for name, text in pages.items()}
    assert pages
    for name, text in pages.items():
        assert [i for i, times in Counter(ids[name]).items() if times > 1] == [], name
        lost = []
        for target in set(re.findall(r'<a [^>]*?href="([^"]+)"', text)):
            file, _, anchor = unquote(html.unescape(target)).partition("#")
            if anchor and html.escape(anchor) not in ids.get(file or name, ()):
                lost.append(target)
            elif file.endswith(".md") or not (file in ("", *pages) or (folder / file).exists()):
                lost.append(target)  # a browser shows no markdown
        assert lost == [], name


@pytest.mark.parametrize("recorded", REPLAYED)
def test_what_a_section_works_out_of_rows_has_its_formula(
    replay: Callable[[str], Path], recorded: str
) -> None:
    text = whole_report(replay(recorded.removeprefix("h200-")) / "report")
    text = re.sub(r"\[((?:[^\[\]]|\\[\[\]])*)\]\([^)]*\)|`([^`]*)`|<code>.*?</code>", "row", text)
    made = re.findall(r'<a id="evidence-[^"]*"></a>(?:row|[^;:]*?) from (row[^;\n]*)', text)
    assert [how for how in made if ": " not in how] == []


def test_names_that_differ_in_a_sign_alone_have_places_of_their_own() -> None:
    stages = ("aten::add", "aten::add_", "aten--add", "add", "a b", "a+b", "all", ALL)
    assert len({row_anchor("stage", stage) for stage in stages}) == len(stages)
    assert len({Ref("operators", stage).anchor for stage in stages}) == len(stages)


@pytest.mark.parametrize("recorded", PROGRAMS)
def test_what_is_worked_out_for_a_sentence_has_its_formula(
    replay: Callable[[str], Path], recorded: str
) -> None:
    text = whole_report(replay(recorded.removeprefix("h200-")) / "report")
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    made = re.findall(r"derived value in the text \| (.+?) \| .*? \| .*? \| (.*?) \|\n", text)
    assert made
    assert [told for told, formula in made if formula == "–"] == []
    for told, formula in made:
        parts = re.fullmatch(r"(1 - )?(\S+ \S+) / (\S+ \S+)( - 1)?", formula)
        if parts is None or not told.endswith("%"):
            continue
        ((above, _, _),), ((below, _, _),) = (quantities(parts[n]) for n in (2, 3))
        ratio = above / below
        ratio = 1 - ratio if parts[1] else ratio - bool(parts[4])
        ((stated, _, half),) = quantities(told)
        assert 100 * ratio == pytest.approx(stated, abs=1.1 * half), formula


def test_a_floor_leads_to_the_table_of_floors_and_a_run_to_its_files(
    replay: Callable[[str], Path],
) -> None:
    report = replay("vllm-kernels") / "report"
    text = whole_report(report)
    floors = re.findall(r"its floor of \[[\d.]+ ms\]\(([^)]*)\): it ", text)
    assert floors
    assert all("#row-stages-floors-" in link for link in floors)
    files = re.findall(r"\]\((\.\./steps/[^)]*)\)", text)
    assert {"../steps/1-trace", "../steps/3-counters"} <= set(files)
    assert all((report / link).is_dir() for link in files)
    assert (
        "The measured roofs are those of another NVIDIA H200." in (report / "report.md").read_text()
    )


@pytest.mark.parametrize("recorded", PROGRAMS)
def test_every_number_of_the_first_screen_stands_where_it_leads(
    replay: Callable[[str], Path], recorded: str
) -> None:
    report = replay(recorded.removeprefix("h200-")) / "report"
    pages = {p.name: p.read_text(encoding="utf-8") for p in report.glob("*.md")}
    first = pages["report.md"].partition("\n## ")[0]
    headline_and_tables = [line for line in first.splitlines() if line.startswith(("**", "| "))]
    wrong, followed = [], 0
    for told, file, anchor in LED.findall("\n".join(headline_and_tables)):
        page = pages[file or "report.md"]
        behind, units = rows(page).get(anchor, ("", []))
        if PLACE.fullmatch(anchor):
            behind, units = page.partition(f'<a id="{anchor}"></a>')[2].split("</details>")[0], []
        for number, unit in NUMBER.findall(told):
            followed += 1
            if not shows(behind, units, f"{number} {unit}".strip()):
                wrong.append((told, anchor))
    assert followed
    assert wrong == []
