"""Reports: whole, linked, escaped, the same every time, and clear when a template is wrong."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import jinja2
import pandas as pd
import pytest
from jinja2 import nodes
from markdown_it import MarkdownIt

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.errors import ArtifactUnreadable, StepFailed
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.profile.view_models import Fact
from nsight_prof.reports.render import drawing, templating
from nsight_prof.reports.render.drawing import Drawn
from nsight_prof.reports.render.report import (
    ReportPaths,
    render_report,
    render_sweep,
    render_template,
    templates_folder,
)
from nsight_prof.reports.render.style import Style
from nsight_prof.reports.sweep.section import SweepCell, SweepRow, SweepView, VariantColumn
from tests.recorded import whole_report

Rendered = Callable[..., ReportPaths]
NASTY = "void a_b::c<float*, (X)3>(`T`|U, $y$, <b>__z__</b>) [clone]\n#1"


pytestmark = pytest.mark.usefixtures("no_pictures")


def rows(text: str) -> list[list[str]]:
    """Return each table of the text as its lines."""
    found: list[list[str]] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("|"):
            if not inside:
                found.append([])
            found[-1].append(line)
        inside = line.startswith("|")
    return found


def check_markdown(text: str, folder: Path) -> None:
    """Check tables, links, anchors and pictures of a report."""
    for table in rows(text):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table}
        assert len(widths) == 1, table[:3]
        assert widths.pop() <= 10
        assert re.fullmatch(r"[|:\- ]+", table[1])
    anchors = set(re.findall(r'<a id="([^"]+)"></a>', text))
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        elif not target.startswith("../variants/"):
            file, _, anchor = target.partition("#")
            assert (folder / file).exists(), target
            assert not anchor or f'<a id="{anchor}"></a>' in (folder / file).read_text(), target
    assert text.count("<details>") == text.count("</details>")
    # A block of HTML that touches markdown swallows it.
    assert not re.findall(r"\n[^\n]+\n</?details>", text)
    assert "\n\n\n" not in text
    assert "nan" not in re.findall(r"\b\w+\b", text)
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert html.count("<table>") == len(rows(text))


def test_a_run_becomes_a_linked_report_with_pictures(rendered: Rendered) -> None:
    paths = rendered()
    text = paths.report.read_text()
    check_markdown(text, paths.folder)
    assert {p.suffix for p in paths.pictures} == {".svg"}
    assert all(p.is_file() for p in paths.pictures)
    assert paths.summary is not None
    assert paths.metrics is not None
    check_markdown(paths.summary.read_text(), paths.folder)
    assert json.loads(paths.metrics.read_text())["kind"] == "report"
    run = paths.folder.parent
    assert (run / "manifest.json").is_file()
    assert [p.name for p in run.iterdir() if p.name.startswith("report")] == ["report"]


def test_the_answer_stands_before_everything_else(rendered: Rendered) -> None:
    text = rendered().report.read_text()
    assert text.index("\n**The ") < text.index("](overview.svg)") < text.index("| Do |")
    assert text.index("| Do |") < text.index("\n## ")
    order = ["## Findings", "## Where the time goes", "## What limits", "## How far to trust"]
    places = [text.index(title) for title in order]
    assert places == sorted(places)


def test_every_kernel_has_its_details_with_the_full_name(run: Run, rendered: Rendered) -> None:
    text = whole_report(rendered().folder)
    for place, name in enumerate(run.kernels["name"], 1):
        assert f'<a id="kernel-{place}"></a>' in text
        assert f"```text\n{name}\n```" in text


def test_the_same_run_gives_the_same_text(run: Run) -> None:
    first = render_report(run).report.read_text()
    assert render_report(run).report.read_text() == first


def test_a_trace_without_counters_says_so_and_shows_no_zero(trace_only_run: Run) -> None:
    paths = render_report(trace_only_run)
    text = paths.report.read_text()
    check_markdown(text, paths.folder)
    assert "No kernel has counters in this run" in text
    assert "the driver refuses access" in text
    assert {p.stem for p in paths.pictures} == {"overview", "time"}
    # That no time has counters is a true zero, in the head; below it, zeros would be unknowns.
    assert not re.search(r"\| 0(\.0+)? %? ?\|", text[text.index("## Findings") :])


def test_without_a_roofline_no_page_says_where_it_stands(run: Run) -> None:
    assert "\n### Rooflines\n" in render_report(run).report.read_text()
    frame = run.counters.assign(flops=float("nan"), flop_throughput=float("nan"))
    tables.write(frame, "counters", run.directory.tables)
    paths = render_report(load_run(run.path))
    text = paths.report.read_text()
    check_markdown(text, paths.folder)
    assert not any("roofline" in picture.stem for picture in paths.pictures)
    assert "Rooflines" not in text
    assert "stands at the head of this page" not in text


def test_a_value_that_is_not_available_leads_to_its_reason(run: Run) -> None:
    gaps = [
        ("counters", key, "dram_pct", "the roof is unknown") for key in run.counters["kernel_id"]
    ]
    frame = run.counters.assign(dram_pct=float("nan"))
    tables.write(frame, "counters", run.directory.tables)
    columns = list(tables.empty("gaps").columns)[:4]
    tables.write(pd.DataFrame(gaps, columns=columns).assign(kind=""), "gaps", run.directory.tables)
    text = whole_report(render_report(load_run(run.path)).folder)
    assert "| n/a (a) (" in text
    assert "- n/a (a): the roof is unknown" in text


def test_two_clicks_lead_from_a_claim_to_its_counter(run: Run) -> None:
    kernel_id = run.kernels["kernel_id"].iloc[1]
    metric = "sm__warps_active.avg.pct_of_peak_sustained_active"
    content: dict[str, list[tuple[object, ...]]] = {
        "metrics": [
            (kernel_id, 1, 0, metric, 24.000001, "", "%", "csv"),
            (kernel_id, 1, 0, "smsp__inst_executed.sum", 77.0, "", "inst", "csv"),
        ],
        "joins": [(0, kernel_id, 1, "a", "a", "1x1x1", "1x1x1", True, "mangled", "")],
    }
    for table, values in content.items():
        columns = list(tables.empty(table).columns)
        tables.write(pd.DataFrame(values, columns=columns), table, run.directory.tables)
    paths = render_report(load_run(run.path))
    text = paths.report.read_text()
    check_markdown(text, paths.folder)
    assert "[2](counters/kernel-2.md#kernel-2)" in text
    page = (paths.folder / "counters" / "kernel-2.md").read_text()
    check_markdown(page, paths.folder / "counters")
    block, _, counters = page.partition("## All 2 counters of this launch")
    assert f"| `{metric}` | 24.000001 % |" in block
    assert "| `smsp__inst_executed.sum` | 77 inst |" in counters
    html = paths.page.read_text()
    assert '<details data-fold="counters/kernel-2.md">' in html


def test_a_hostile_kernel_name_changes_nothing_but_itself(run: Run) -> None:
    kernels = run.kernels.assign(
        name=NASTY, short_name=NASTY, stage="pre|fill<b>", library="<i>", tile="`", grid="|"
    )
    tables.write(kernels, "kernels", run.directory.tables)
    paths = render_report(load_run(run.path))
    for page in paths.folder.rglob("*.md"):
        check_markdown(page.read_text(), page.parent)
    text = whole_report(paths.folder)
    assert "<b>__z__</b>" not in re.sub(r"```text\n.*?\n```", "", text, flags=re.DOTALL)
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert "<td>void a_b::c&lt;float*, (X)3&gt;(`T`|U, <span>$</span>y<span>$</span>," in html
    assert paths.summary is not None
    check_markdown(paths.summary.read_text(), paths.folder)


def test_an_empty_run_still_gives_a_report(run: Run) -> None:
    for file in run.directory.tables.iterdir():
        file.unlink()
    paths = render_report(load_run(run.path))
    text = paths.report.read_text()
    check_markdown(text, paths.folder)
    assert "No kernel was seen." in text
    assert paths.pictures == ()


def test_the_summary_is_half_a_page_and_explains_its_words(rendered: Rendered) -> None:
    paths = rendered()
    assert paths.summary is not None
    text = paths.summary.read_text()
    seen = text.partition('<a id="more-terms">')[0]
    shown = re.sub(r"\]\([^)]*\)|<[^>]*>", " ", seen)  # without the targets of links
    assert len(re.findall(r"\w+", shown)) < 460
    explained = set(re.findall(r"^- \*\*(.+?)\*\* – ", text, flags=re.MULTILINE))
    assert {"run", "GPU", "matrix units", "ms"} <= explained
    for word in explained & {"run", "GPU", "matrix units", "ms", "GPU time", "DRAM", "tile"}:
        assert re.search(rf"\b{word}\b", seen), word


def test_an_old_report_stays_when_the_new_one_fails(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = render_report(run).report.read_text()

    def full(picture: object, style: object) -> Drawn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(drawing, "_drawn", full)
    with pytest.raises(StepFailed, match="No space left on device"):
        render_report(run)
    assert (run.path / "report" / "report.md").read_text() == old
    assert not (run.path / "report.partial").exists()


def test_a_report_replaces_what_an_interrupted_one_left(run: Run) -> None:
    for name in ("report.partial", "report.old"):
        (run.path / name).mkdir()
        (run.path / name / "half.md").write_text("half")
    paths = render_report(run)
    assert not (paths.folder / "half.md").exists()
    assert [p.name for p in run.path.iterdir() if p.name.startswith("report")] == ["report"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("one\n{{ view.nothing }}", "bad.md.j2, line 2: .*nothing"),
        ("{{ missing }}", "bad.md.j2, line 1: 'missing' is undefined"),
        ("a\nb\n{% if %}", "bad.md.j2, line 3"),
        ("{{ 0.1 }}", "bad.md.j2.*0.1 has no format"),
        ("{{ none }}", "bad.md.j2.*None has no format"),
        ("{{ 1 | nofilter }}", "bad.md.j2, line 1: No filter named 'nofilter'"),
        ("{% include 'gone.md.j2' %}", "bad.md.j2, line 1: .*gone.md.j2"),
    ],
)
def test_a_wrong_template_is_refused_with_its_name_and_line(
    source: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.md.j2").write_text(source)
    monkeypatch.setattr(templating, "templates_folder", lambda: tmp_path)
    with pytest.raises(ArtifactUnreadable, match=words):
        render_template("bad.md.j2", {"view": Fact("a", "b")})


def test_what_a_template_writes_is_escaped_without_being_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.md.j2").write_text("{{ text }} {{ text | escape }} {{ 3 }} {{ 'a' | code }}")
    monkeypatch.setattr(templating, "templates_folder", lambda: tmp_path)
    assert render_template("one.md.j2", {"text": "a|<b>"}) == (
        "a\\|&lt;b&gt; a\\|&lt;b&gt; 3 `a`\n"
    )


@pytest.mark.parametrize("template", sorted(p.name for p in templates_folder().glob("*.j2")))
def test_a_template_does_no_arithmetic(template: str) -> None:
    environment = jinja2.Environment()
    tree = environment.parse((templates_folder() / template).read_text())
    sums = (nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow)
    assert list(tree.find_all(sums)) == []


def sweep() -> SweepView:
    variants = (
        VariantColumn("batch=1", (Fact("batch", "1"),), 1e6, 2e6, 0.5, 10, 1.0, 2e6, 1.0,
                      "GEMM | x", ""),
        VariantColumn("a b/c", (Fact("batch", "2"),), None, None, None, None, None, None, None, "",
                      "the target ended with exit code 1"),
    )  # fmt: skip
    cells = (SweepCell(1e6, 1.0, 10, 1.0, "dram"), SweepCell(None, None, None, None, ""))
    row = SweepRow(NASTY, cells)
    return SweepView("t", "q?", "", variants, (row,), (row,))


def test_a_sweep_becomes_a_comparison(tmp_path: Path) -> None:
    paths = render_sweep(sweep(), tmp_path / "report")
    text = paths.report.read_text()
    check_markdown(text, paths.folder)
    assert paths.summary is None
    assert paths.metrics is not None
    assert "../variants/a%20b/c/report/report.md" in text
    assert "| 1.00 ms | – | DRAM bandwidth |" in text
    assert "the target ended with exit code 1" in text
    assert [p.name for p in paths.pictures] == ["sweep.svg"]


def test_a_sweep_is_written_in_other_languages(tmp_path: Path) -> None:
    paths = render_sweep(sweep(), tmp_path / "report", Style(languages=("ko",)))
    text = (paths.folder / "report.ko.md").read_text()
    assert "../variants/a%20b/c/report/report.ko.md" in text
    assert "첫 변형과의 비교" in text


def test_a_sweep_without_any_result_has_no_picture(tmp_path: Path) -> None:
    view = sweep()
    view = dataclasses.replace(view, variants=(view.variants[1],), stages=(), kernels=())
    assert render_sweep(view, tmp_path / "report").pictures == ()


def test_a_block_of_a_kernel_calls_columns_by_their_labels(rendered: Rendered) -> None:
    text = whole_report(rendered().folder)
    missing = re.findall(r"\| Not available \| (.*) \|", text)
    assert missing
    assert not [line for line in missing if "_pct" in line]
