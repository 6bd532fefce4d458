"""What a notebook shows of a run: a short first screen, findings as a table, figures as SVG."""

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.run import run as tables_of
from nsight_prof.reports.notebook import NotebookRun as Run
from nsight_prof.reports.notebook import load_run
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profile.views import report_view
from nsight_prof.reports.summary.summary import summarise
from nsight_prof.reports.verdicts.ranking import findings
from tests.reports.programs import english

SCREEN = 4000
"""Characters of a first screen, tags included."""


class Text(HTMLParser):
    """Collects the text and checks that every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture
def run(run: tables_of.Run) -> Run:
    return Run(run.path, run.manifest)


def shown(run: Run) -> str:
    html = run._repr_html_()
    assert len(html) < SCREEN
    return " ".join(Text(html).texts).replace("\N{NO-BREAK SPACE}", " ")


def test_a_run_is_half_a_screen(run: Run) -> None:
    text = shown(run)
    first = summarise(report_view(run)).first
    assert Writer().text(first.verdict) in text
    assert first.actions
    for action in first.actions[:3]:
        assert Writer().text(action.do)[1:40] in text
    for name in run.kernels["short_name"].head(3):
        assert name[:20] in text
    assert f"kernels ({len(run.kernels)})" in text
    assert len(repr(run)) < 200
    assert run.manifest.run_id in repr(run)
    assert "\n" not in repr(run)


def test_names_are_text_and_no_markup(run: Run) -> None:
    named = run.kernels.assign(short_name="f<T&>(<script>alert(1)</script>)")
    tables.write(named, "kernels", run.directory.tables)
    html = load_run(run.path)._repr_html_()
    assert "<script" not in html
    assert "f&lt;T&amp;&gt;(&lt;script&gt;" in html


def test_findings_are_those_of_the_report_in_its_order(run: Run) -> None:
    found = run.findings
    assert list(found["sentence"]) == [english(one.verdict) for one in findings(run)]
    ranks = found["rank"].dropna()
    assert list(ranks) == list(range(1, len(ranks) + 1))
    assert set(found.explode("kernel_ids")["kernel_ids"].dropna()) <= set(run.kernels["kernel_id"])
    assert found["gain_ns"].isna().any()  # unknown is empty; 0 is known to be the end
    nothing = found.loc[found["gain_ns"] == 0, "sentence"]
    assert nothing.str.contains("at most").all()


def test_a_figure_is_shown_as_svg(run: Run) -> None:
    one = run.figure("time")
    assert ElementTree.fromstring(one._repr_svg_() or "").tag.endswith("svg")
    assert repr(one) == "Figure(time)"
    roofline = run.figure("roofline")
    assert list(roofline.svgs) == ["roofline-tensor", "roofline-vector"]
    assert roofline._repr_html_().count("<svg") == 2
    assert "<?xml" not in roofline._repr_html_()
    assert roofline._repr_svg_() is None


def test_a_figure_that_there_is_not_is_an_error_with_the_names(run: Run) -> None:
    with pytest.raises(UsageError) as caught:
        run.figure("rooflin")
    for name in run.figures:
        assert name in caught.value.message


@pytest.mark.parametrize("table", ["kernels", "counters", "stages", "idle_gaps"])
def test_a_damaged_table_is_told_and_the_rest_is_shown(run: Run, table: str) -> None:
    (run.directory.tables / f"{table}.parquet").write_bytes(b"PAR1 damaged")
    text = shown(load_run(run.path))
    assert run.manifest.run_id in text
    assert "not available: " in text
    assert f"{table}.parquet" in text
    assert f"cannot be read: {table} " in text
    with pytest.raises(ArtifactUnreadable):
        _ = load_run(run.path).findings


def test_a_benchmark_has_findings_and_figures_of_its_sections(
    replay: Callable[[str], Path],
) -> None:
    run = load_run(replay("gemm-staircase"))
    assert run.findings["sentence"].str.len().min() > 0
    assert run.findings["rank"].isna().all()
    assert run.findings["sentence"].iloc[0] in shown(run)
    assert ElementTree.fromstring(run.figure(run.figures[0])._repr_svg_() or "").tag.endswith("svg")


def test_a_sweep_has_the_findings_of_its_variants(
    make_run: Callable[..., Any], tmp_path: Path
) -> None:
    sweep = tmp_path / "sweep"
    for name in ("batch=1", "batch=2"):
        path = make_run()
        (sweep / "variants").mkdir(parents=True, exist_ok=True)
        path.rename(sweep / "variants" / name)
    manifest = load_run(sweep / "variants" / "batch=1").manifest
    manifest.variants = ["batch=1", "batch=2"]
    manifest.steps = []
    from nsight_prof.parsers.run.directory import RunDir, write_manifest

    write_manifest(RunDir(sweep), manifest)
    run = load_run(sweep)
    assert set(run.findings["run"]) == {"batch=1", "batch=2"}
    assert "2 variants" in shown(run)
    assert run.figures == ["sweep"]
