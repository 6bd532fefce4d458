"""Renders a run to its report folder: report.md, stakeholder_summary.md, metrics.json, pictures.

A run that served something has results.json, too.

The folder is written beside the old one and takes its place when it is whole, so that a reader
sees the old report or the new one.
"""

from __future__ import annotations

import os
import shutil
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from parsers.errors import ArtifactUnreadable, StepFailed
from reports import formats
from reports.bench.models import Section
from reports.bench.summary import bench_summary
from reports.bench.view import bench_view, leading
from reports.bound import LABELS
from reports.caveats import labelled
from reports.findings import headline
from reports.footnotes import Footnotes
from reports.load import Run
from reports.metrics_json import render_bench_metrics, render_metrics, render_sweep_metrics
from reports.plots.gallery import Picture, bench_pictures, pictures, sweep_pictures
from reports.plots.style import render_png, render_svg
from reports.provenance import Provenance, provenance
from reports.results_json import render_results
from reports.sweep_models import SweepView
from reports.view_models import ReportView
from reports.views import report_view, section_sentences, summary_view

REPORT, SUMMARY, METRICS = "report.md", "stakeholder_summary.md", "metrics.json"
RESULTS = "results.json"
HEADLINE = 3


@dataclass(frozen=True)
class ReportPaths:
    """Files of a rendered report; `pictures` are the SVG and PNG files.

    `headline`: at most three sentences that a reader should know first.
    """

    folder: Path
    report: Path
    summary: Path | None
    metrics: Path | None
    pictures: tuple[Path, ...]
    headline: tuple[str, ...]


def render_report(run: Run) -> ReportPaths:
    """Render the report of `run` into its report folder.

    Raises:
        ArtifactUnreadable: a table or a template cannot be used; the template and line are named.
        StepFailed: the folder cannot be written.
    """
    if run.is_bench:
        return _render_bench(run)
    view = report_view(run)
    shown = pictures(view)
    sources = provenance(run)
    content = {"view": view, "pictures": shown, "sources": sources, "notes": Footnotes()}
    files = {
        REPORT: render_template("report.md.j2", content),
        SUMMARY: render_template("stakeholder_summary.md.j2", {"view": summary_view(run)}),
        METRICS: render_metrics(view, run.gaps),
        **_counter_pages(view, sources),
        **_results(run, view.sections),
    }
    told = section_sentences(view.sections)[: HEADLINE - 1]
    first = [*told, *headline(run)][:HEADLINE]
    return _write(run.directory.report, files, shown, first)


def _render_bench(run: Run) -> ReportPaths:
    """Render the report of a benchmark run: its sections instead of kernels."""
    view = bench_view(run)
    shown = bench_pictures(view.sections)
    files = {
        REPORT: render_template("bench.md.j2", {"view": view, "pictures": shown}),
        SUMMARY: render_template("bench_summary.md.j2", {"view": bench_summary(view)}),
        METRICS: render_bench_metrics(view, run.bench, run.gaps),
        **_results(run, view.sections),
    }
    first = [finding.sentence for finding in leading(view.sections, HEADLINE)]
    return _write(run.directory.report, files, shown, first[:HEADLINE])


def _results(run: Run, sections: Iterable[Section]) -> dict[str, str]:
    """Return results.json of a run that served something."""
    return {} if run.serving_points.empty else {RESULTS: render_results(run, sections)}


def _counter_pages(view: ReportView, sources: Mapping[str, Provenance]) -> dict[str, str]:
    """Return a page of all counters for each kernel that has some."""
    return {
        f"counters/kernel-{kernel.number}.md": render_template(
            "counters.md.j2", {"kernel": kernel, "source": sources[kernel.kernel_id]}
        )
        for kernel in view.kernels
        if kernel.kernel_id in sources and sources[kernel.kernel_id].raw
    }


def render_sweep(view: SweepView, folder: Path) -> ReportPaths:
    """Render the comparison of a sweep's variants into `folder`; raises as `render_report`."""
    shown = sweep_pictures(view)
    text = render_template("sweep.md.j2", {"view": view, "pictures": shown})
    files = {REPORT: text, METRICS: render_sweep_metrics(view)}
    return _write(folder, files, shown, view.answer)


def render_template(name: str, content: Mapping[str, Any]) -> str:
    """Return the text of one template.

    Raises:
        ArtifactUnreadable: the template names something that does not exist, prints a number
            without a format, or is not Jinja; the message says in which line.
    """
    try:
        text = _environment().get_template(name).render(content)
    except (jinja2.TemplateError, TypeError, ValueError, AttributeError, LookupError) as error:
        raise ArtifactUnreadable(
            f"template {_place(name, error)}: {error}",
            "correct the template, or take back your change to it",
        ) from error
    return _tidy(text)


def templates_folder() -> Path:
    """Folder of the templates: inside the package when installed, beside it in a checkout."""
    inside = Path(__file__).resolve().parent / "templates"
    return inside if inside.is_dir() else inside.parent.parent / "templates"


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_folder()),
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(formats.FILTERS)
    environment.filters["labelled"] = labelled
    environment.filters["bound_label"] = lambda bound: LABELS.get(bound, bound)
    return environment


def _finalize(value: Any) -> Any:
    """Escape all that a template writes, unless a filter made it markdown on purpose."""
    return value if isinstance(value, jinja2.Undefined) else formats.shown(value)


def _place(name: str, error: Exception) -> str:
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"{error.name or name}, line {error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(".j2")]
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else name


def _tidy(text: str) -> str:
    """Leave at most one empty line between two blocks, outside of code blocks."""
    lines: list[str] = []
    fence = ""
    for line in text.rstrip().splitlines():
        start = line[: len(line) - len(line.lstrip("`"))]
        if len(start) >= 3 and (not fence or line == fence):
            fence = "" if fence else start
        if fence or line.strip() or (lines and lines[-1]):
            lines.append(line if fence else line.rstrip())
    return "\n".join(lines) + "\n"


def _write(
    folder: Path, files: Mapping[str, str], shown: Iterable[Picture], first: Iterable[str]
) -> ReportPaths:
    partial, old = (
        folder.with_name(f"{folder.name}.partial"),
        folder.with_name(f"{folder.name}.old"),
    )
    drawn: list[str] = []
    try:
        for stale in (partial, old):
            shutil.rmtree(stale, ignore_errors=True)
        partial.mkdir(parents=True)
        for picture in shown:
            drawn += _draw(picture, partial)
        for name, text in files.items():
            (partial / name).parent.mkdir(exist_ok=True)
            (partial / name).write_text(text, encoding="utf-8")
        if folder.exists():
            os.rename(folder, old)
        os.rename(partial, folder)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise StepFailed(
            f"the report cannot be written to {folder}: {error.strerror or error}",
            "free space or choose a run directory that can be written, then: prof report RUN",
        ) from error
    return ReportPaths(
        folder,
        folder / REPORT,
        folder / SUMMARY if SUMMARY in files else None,
        folder / METRICS if METRICS in files else None,
        tuple(folder / name for name in drawn),
        tuple(first),
    )


def _draw(picture: Picture, folder: Path) -> list[str]:
    figure = picture.draw()
    names = [f"{picture.name}.svg", f"{picture.name}.png"]
    for name, data in zip(names, (render_svg(figure), render_png(figure)), strict=True):
        (folder / name).write_bytes(data)
    return names
