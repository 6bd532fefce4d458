"""Renders a run to its report folder: report.md, details.md, summaries, metrics.json, pictures.

Beside each of these texts lies the same as one HTML file.
A run that served something has results.json, too.

The folder is written beside the old one and takes its place when it is whole, so that a reader
sees the old report or the new one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsight_prof.parsers.errors import StepFailed
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.substeps import substep
from nsight_prof.parsers.whole_file import as_utf8
from nsight_prof.parsers.whole_folder import put_in_place
from nsight_prof.reports.page import Section, Table, Text
from nsight_prof.reports.page.catalogue import ENGLISH, NAMES, file_in, knowing, language_of
from nsight_prof.reports.page.frame import Places
from nsight_prof.reports.page.html import section_html
from nsight_prof.reports.page.markdown import section_in_two, section_markdown
from nsight_prof.reports.page.section import leading_figure, slug
from nsight_prof.reports.page.writer import InTemplate, Writer
from nsight_prof.reports.profile.pages import Render, kernel_file, marked_pages, profile_pages
from nsight_prof.reports.render import gallery
from nsight_prof.reports.render.drawing import Draw, Drawing, draw_here, together
from nsight_prof.reports.render.style import HTML, MARKDOWN, Style, style_of, templates_folder

# What only some reports need, or the text alone, is imported where it is used: until the pictures
# are asked for, the process that draws them waits.
if TYPE_CHECKING:
    from nsight_prof.reports.engine.ranks import JobView
    from nsight_prof.reports.predict.view import PredictionView
    from nsight_prof.reports.render.folds import Folds
    from nsight_prof.reports.studies.models import BenchReport, BenchSummary
    from nsight_prof.reports.summary.models import SummaryView
    from nsight_prof.reports.sweep.section import SweepView

__all__ = ["ReportPaths", "render_report", "render_sweep", "render_template", "templates_folder"]

REPORT, SUMMARY, METRICS = "report.md", "stakeholder_summary.md", "metrics.json"
RESULTS, PAGE = "results.json", "report.html"
HEADLINE = 3
PLAIN = Style()


@dataclass(frozen=True)
class ReportPaths:
    """Files of a rendered report; `pictures` are the files of the figures, `page` is report.html.

    `report` is report.html where no markdown is written, and `page` is not there where no HTML is.
    `headline`: at most three sentences that a reader should know first.
    """

    folder: Path
    report: Path
    page: Path
    summary: Path | None
    metrics: Path | None
    pictures: tuple[Path, ...]
    headline: tuple[str, ...]


@dataclass(frozen=True)
class _Html:
    """What HTML pages are made of: markdown `texts` by file name, with marks.

    `tables` are those of the marks, by language. `elements` is HTML that stands on the page in
    place of pictures, by language and their name, `rooflines` the data of those that can be zoomed,
    `sections` are those for which report.md of `texts` has places, `folds` the tables that it
    unfolds, by language.
    """

    texts: Mapping[str, str]
    tables: Mapping[str, Sequence[Table[Any]]]
    elements: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rooflines: Mapping[str, str] = field(default_factory=dict)
    sections: tuple[Section, ...] = ()
    folds: Mapping[str, Folds] = field(default_factory=dict)


def render_report(run: Run, given: Style | None = None, draw: Draw = draw_here) -> ReportPaths:
    """Render the report of `run` into its report folder, in the style of its recipe or `given`.

    `draw` makes its pictures.

    Raises:
        ArtifactUnreadable: a table or a template cannot be used; the template and line are named.
        StepFailed: the folder cannot be written.
        UsageError: the style names templates or languages that there are not.
    """
    style = style_of(run.manifest.recipe, given)
    with knowing(run.sentences):
        return _rendered(run, style, draw)


def _rendered(run: Run, style: Style, draw: Draw) -> ReportPaths:
    substep("findings and text")
    if run.is_bench:
        return _render_bench(run, style, draw)
    if run.is_prediction:
        from nsight_prof.reports.predict.view import prediction_view
        from nsight_prof.reports.render.metrics_json import render_prediction_metrics

        prediction = prediction_view(run)
        metrics = {METRICS: render_prediction_metrics(prediction, run)}
        return _render_prediction(run, prediction, "prediction.md.j2", metrics, style, draw)
    if run.is_imported_operators:
        from nsight_prof.reports.predict.view import operators_view

        return _render_prediction(run, operators_view(run), "operators.md.j2", {}, style, draw)
    return _render_program(run, style, draw)


def _render_program(run: Run, style: Style, draw: Draw) -> ReportPaths:
    """Render the report of a profiled program."""
    from nsight_prof.reports.profile.kernel_rows import kernel_figures

    of_kernels = gallery.kernel_pictures(kernel_figures(run))
    drawn = draw(of_kernels, style)  # now: a second process has the more to do
    # All findings take a while to import; measured cases and predictions have none of these.
    from nsight_prof.reports.engine.operators.section import FILE as OPERATORS
    from nsight_prof.reports.engine.operators.section import operators_page
    from nsight_prof.reports.profile.links import page_links
    from nsight_prof.reports.profile.overview import overview
    from nsight_prof.reports.profile.provenance import provenance
    from nsight_prof.reports.profile.views import report_view, section_anchors, section_verdicts
    from nsight_prof.reports.render.folds import counter_columns
    from nsight_prof.reports.render.metrics_json import render_metrics
    from nsight_prof.reports.render.page_tables import TABLES
    from nsight_prof.reports.summary.summary import summarise
    from nsight_prof.reports.trace_view.histograms import (
        Histogram,
        duration_histograms,
        roof_histogram,
    )
    from nsight_prof.reports.trace_view.live_roofline import live_rooflines
    from nsight_prof.reports.trace_view.page import TracePart, trace_parts
    from nsight_prof.reports.trace_view.tracks import copies_and_graphs, read_trace
    from nsight_prof.reports.verdicts.ranking import headline

    view = report_view(run)
    of_view = gallery.pictures(view)
    drawn = together(drawn, draw(of_view[len(of_kernels) :], style))
    events = read_trace(run)
    first = gallery.overview_pictures(overview(run, view, copies_and_graphs(run, events[0])))
    drawings = [*first, *of_view]
    drawn = together(drawn, draw(first, style))
    sources = provenance(run)
    links = page_links(run, view, sources)
    summary = summarise(view)
    picture = first[0].name if first else ""
    summary = replace(summary, first=replace(summary.first, picture=picture))
    numbers = {kernel.kernel_id: kernel.number for kernel in view.kernels}
    trace = trace_parts(run, numbers, events)
    histograms, by_roof = duration_histograms(run, view.kernels), roof_histogram(view)
    elements: dict[str, TracePart | Histogram] = {element.name: element for element in trace}
    elements |= {f"counters/kernel-{n}-durations": found for n, found in histograms.items()}
    elements |= {} if by_roof is None else {"time-by-roof": by_roof}
    svgs = {
        file_in(f"{name}.svg", language): element.svg(language)
        for name, element in elements.items()
        for language in (style.all_languages if MARKDOWN in style.formats else ())
    }
    verdicts, anchors = view.answer, view.answer_anchors
    if summary.first.actions:
        verdicts, anchors = section_verdicts(view.sections), section_anchors(view.sections)
    counters = cache(TABLES["counters"])  # one table for all languages
    content = {
        **{"view": view, "pictures": drawings, "sources": sources},
        **{"links": links, "trace": trace, "summary": summary},
        **{"histograms": histograms, "by_roof": by_roof},
        "table": {**TABLES, "counters": lambda heading, rows: counters(heading, tuple(rows))},
        "leads": list(zip(verdicts, anchors, strict=True)),
    }
    all_operators = operators_page(run)
    markdown: dict[str, str] = {}
    texts: dict[str, str] = {}
    tables: dict[str, list[Table[Any]]] = {language: [] for language in style.all_languages}
    for language, in_page in tables.items():
        sections = [section_in_two(s, language, markup=InTemplate()) for s in view.sections]
        others = _others(REPORT, language, style)
        write = partial(_marked, style=style, language=language, in_page=in_page)
        given = {**content, "sections": sections, "others": others}
        pages = profile_pages(view, given, write, in_page)
        summaries = {
            SUMMARY: _summary("stakeholder_summary.md.j2", summary, write, language, style)
        }
        if all_operators is not None:
            pages.markdown[OPERATORS] = section_markdown(all_operators, language, level=1)
        pages_in = _in_language({**pages.markdown, **summaries}, language)
        markdown |= marked_pages(pages_in, in_page, language)
        texts |= _in_language({**pages.html, **summaries}, language)
    files = {
        **markdown,
        METRICS: render_metrics(view, links, run.gaps),
        **_results(run, view.sections),
        **svgs,
    }
    first_of = section_verdicts(view.sections)[: HEADLINE - 1]
    known = headline(run, [*first_of, *summary.first.in_short])
    rooflines = {f"roofline-{slug(key)}": data for key, data in live_rooflines(view).items()}
    folds = {
        language: {
            file_in(kernel_file(kernel), language): counter_columns(source.raw, language)
            for kernel in view.kernels
            if (source := sources.get(kernel.kernel_id)) and source.raw
        }
        for language in style.all_languages
    }
    inline = {
        language: {name: element.html(language) for name, element in elements.items()}
        for language in (style.all_languages if HTML in style.formats else ())
    }
    html = _Html(texts, tables, inline, rooflines, folds=folds)
    return _write(run.directory.report, files, drawn, known, style, html)


def _render_bench(run: Run, style: Style, draw: Draw) -> ReportPaths:
    """Render the report of a benchmark run: its sections instead of kernels."""
    # All studies take a while to import; the report of a program has none.
    from nsight_prof.reports.render.metrics_json import render_bench_metrics
    from nsight_prof.reports.studies.models import leading
    from nsight_prof.reports.studies.registry import bench_report
    from nsight_prof.reports.studies.summary import bench_summary

    view = bench_report(run)
    drawings = gallery.bench_pictures(view.sections)
    drawn = draw(drawings, style)
    lead, studies = leading_figure(view.sections)
    sections = (*studies, view.trust)
    summary = bench_summary(view)
    given = {"view": view, "pictures": drawings, "lead": lead}
    given |= _first_screen(view, summary.answer)
    markdown, texts, tables = _section_pages(
        "bench.md.j2", sections, lambda w: {**given, "sections": w[:-1], "trust": w[-1]}, style
    )
    _add_summary(summary, (markdown, texts), tables, style)
    files = {
        **markdown,
        METRICS: render_bench_metrics(view, run.bench, run.gaps),
        **_results(run, view.sections),
    }
    first = [Writer().text(finding.verdict) for finding in leading(view.sections, HEADLINE)]
    html = _Html(texts, tables, sections=sections)
    return _write(run.directory.report, files, drawn, first[:HEADLINE], style, html)


def _first_screen(view: BenchReport, answer: Sequence[Text]) -> dict[str, Any]:
    """Return the answer, what else was found, and how sure it is: numbers lead to their rows."""
    places = {f"section-{section.key}": Places(section) for section in view.sections}
    pairs = zip(view.leading, view.answer_anchors, strict=True)
    leads = [(f.verdict, places[anchor].linked(f.verdict, f), anchor) for f, anchor in pairs]
    linked_in_answer = {text: with_links for text, with_links, _ in leads}
    basis = [
        places[f"section-{section.key}"].linked(item.text)
        for section in view.sections
        for item in section.basis
    ]
    return {
        "headline": [linked_in_answer.get(text, text) for text in answer],
        "leads": [(text, anchor) for verdict, text, anchor in leads if verdict not in answer],
        "sure": [*basis, *(caveat.text for caveat in view.caveats[len(basis) :])],
    }


def _render_prediction(
    run: Run,
    view: PredictionView,
    template: str,
    files: Mapping[str, str],
    style: Style,
    draw: Draw,
) -> ReportPaths:
    """Render a prediction, or what predictions are made from; `files` are further ones."""
    drawn = draw(gallery.bench_pictures(view.sections), style)
    lead, sections = leading_figure(view.sections)
    answer = [*map(Places(sections[0]).linked, view.answer)]
    given = {"view": view, "lead": lead, "answer": answer}
    markdown, texts, tables = _section_pages(
        template, sections, lambda written: {**given, "sections": written}, style
    )
    if view.subject is not None:
        _add_summary(_prediction_summary(view), (markdown, texts), tables, style)
    first = [Writer().text(sentence) for sentence in view.answer]
    html = _Html(texts, tables, sections=sections)
    return _write(run.directory.report, {**markdown, **files}, drawn, first, style, html)


def _prediction_summary(view: PredictionView) -> BenchSummary:
    """Return half a page about a prediction: its answer, and what it takes for granted."""
    from nsight_prof.reports.profile.method_view import summary_terms
    from nsight_prof.reports.studies.models import RESERVATIONS, BenchSummary

    summary = BenchSummary(
        title=view.title, question=view.question or "", subject=view.subject or "",
        machine=str(view.asked.get("gpu") or ""), answer=view.answer[:1], rows=view.facts,
        to_do=(), learned=view.answer[1:], reservations=view.notes[-RESERVATIONS:], predicted=True,
    )  # fmt: skip
    return replace(summary, terms=summary_terms(summary.words))


def _section_pages(
    template: str,
    sections: Sequence[Section],
    content: Callable[[Sequence[str]], dict[str, Any]],
    style: Style,
) -> tuple[dict[str, str], dict[str, str], dict[str, list[Table[Any]]]]:
    """Return a page of sections in each language, as markdown and as what its HTML is made from.

    That has marks of tables, which come last. `content` is what the template is given where the
    sections are written so.
    """
    from nsight_prof.reports.render.body import placeholder

    markdown: dict[str, str] = {}
    texts: dict[str, str] = {}
    tables: dict[str, list[Table[Any]]] = {language: [] for language in style.all_languages}
    for language, in_page in tables.items():
        others = {"others": _others(REPORT, language, style)}
        for written, pages in (
            ([section_markdown(section, language) for section in sections], markdown),
            ([placeholder(section.key) for section in sections], texts),
        ):
            text = _marked(template, others | content(written), style, language, in_page)
            pages |= _in_language({REPORT: text}, language)
        page = _in_language({REPORT: ""}, language)
        markdown |= marked_pages({name: markdown[name] for name in page}, in_page, language)
    return markdown, texts, tables


def _in_language(pages: Mapping[str, str], language: str) -> dict[str, str]:
    """Return pages under their names in a language."""
    return {file_in(name, language): text for name, text in pages.items()}


def _others(name: str, language: str, style: Style) -> list[tuple[str, str]]:
    """Return the names of the other languages of a page, and its files in them."""
    return [(NAMES[o], file_in(name, o)) for o in style.all_languages if o != language]


def _summary(
    template: str, view: SummaryView | BenchSummary, write: Render, language: str, style: Style
) -> str:
    """Return a summary in a language, with marks."""
    localized = replace(view, others=tuple(_others(SUMMARY, language, style)))
    return write(template, {"view": localized})


def _add_summary(
    summary: BenchSummary,
    pages: tuple[dict[str, str], dict[str, str]],
    tables: Mapping[str, list[Table[Any]]],
    style: Style,
) -> None:
    """Add a summary in each language to `pages`: markdown, and what HTML is made of."""
    markdown, texts = pages
    for language, in_page in tables.items():
        write = partial(_marked, style=style, language=language, in_page=in_page)
        text = _summary("bench_summary.md.j2", summary, write, language, style)
        written = _in_language({SUMMARY: text}, language)
        markdown |= marked_pages(written, in_page, language)
        texts |= written


def _results(run: Run, sections: Iterable[Section]) -> dict[str, str]:
    """Return results.json of a run that served something."""
    if run.serving_points.empty:
        return {}
    from nsight_prof.reports.render.results_json import render_results

    return {RESULTS: render_results(run, sections)}


def render_sweep(view: SweepView, folder: Path, style: Style = PLAIN) -> ReportPaths:
    """Render the comparison of a sweep's variants into `folder`; raises as `render_report`."""
    from nsight_prof.reports.render.metrics_json import render_section_metrics
    from nsight_prof.reports.sweep.section import page_texts, sweep_section

    section = sweep_section(view)
    given = {"view": view, **page_texts(view)}
    markdown, texts, tables = _section_pages(
        "sweep.md.j2", [section], lambda written: {**given, "section": written[0]}, style
    )
    files = {**markdown, METRICS: render_section_metrics("sweep", view, section)}
    html = _Html(texts, tables, sections=(section,))
    first = [Writer().text(finding.verdict) for finding in section.findings]
    drawn = draw_here(gallery.bench_pictures([section]), style)
    return _write(folder, files, drawn, first, style, html)


def render_job(view: JobView, folder: Path, style: Style = PLAIN) -> ReportPaths:
    """Render the report of a job of several ranks into `folder`; raises as `render_report`."""
    from nsight_prof.reports.engine.ranks import job_section
    from nsight_prof.reports.render.metrics_json import render_section_metrics
    from nsight_prof.reports.studies.summary import job_summary

    section, summary = job_section(view), job_summary(view)
    places = Places(section)
    of_text = {f.lay_verdict or f.verdict: f for f in section.findings}
    answer = [places.linked(text, of_text.get(text)) for text in summary.answer]
    given = {"view": view, "summary": summary, "answer": answer, "key": section.key}
    markdown, texts, tables = _section_pages(
        "ranks.md.j2", [section], lambda written: {**given, "section": written[0]}, style
    )
    _add_summary(summary, (markdown, texts), tables, style)
    files = {**markdown, METRICS: render_section_metrics("ranks", view, section)}
    html = _Html(texts, tables, sections=(section,))
    first = [Writer().text(finding.verdict) for finding in section.findings]
    drawn = draw_here(gallery.bench_pictures([section]), style)
    return _write(folder, files, drawn, first, style, html)


def render_template(
    name: str, content: Mapping[str, Any], style: Style = PLAIN, language: str = ENGLISH
) -> str:
    """Return one template as a page; raises as `nsight_prof.reports.render.templating.render`."""
    in_page: list[Table[Any]] = []
    text = _marked(name, content, style, language, in_page)
    return marked_pages({name: text}, in_page, language)[name]


def _marked(
    name: str,
    content: Mapping[str, Any],
    style: Style,
    language: str,
    in_page: list[Table[Any]],
) -> str:
    """Return the text of one template with marks; the tables of these are added to `in_page`."""
    from nsight_prof.reports.render.templating import IN_PAGE, render

    given = {"table": _Tables(), **content, IN_PAGE: in_page}
    return _tidy(render(name, given, style.templates, language=language))


class _Tables(Mapping[str, Callable[..., Table[Any]]]):
    """The tables that templates may show: predictions have none of them, and import none."""

    def __getitem__(self, name: str) -> Callable[..., Table[Any]]:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def _all(self) -> Mapping[str, Callable[..., Table[Any]]]:
        from nsight_prof.reports.render.page_tables import TABLES

        return TABLES


def _tidy(text: str) -> str:
    """Leave at most one empty line between two blocks, outside of code blocks."""
    lines: list[str] = []
    fence = ""
    for line in text.rstrip().splitlines():
        if line.startswith("```") and (not fence or line == fence):
            fence = "" if fence else line[: len(line) - len(line.lstrip("`"))]
        if fence or line.strip() or (lines and lines[-1]):
            lines.append(line if fence else line.rstrip())
    return "\n".join(lines) + "\n"


def _write(
    folder: Path,
    files: Mapping[str, str],
    pictures: Drawing,
    first: Iterable[str],
    style: Style,
    html: _Html,
) -> ReportPaths:
    """Write a report; `html` is what its HTML pages are made of."""
    svgs = (name for name in files if name.endswith(".svg") and language_of(name) == ENGLISH)
    drawn_already = {name.removesuffix(".svg") for name in svgs}
    names = {*pictures.names, *drawn_already, *(Path(name).name for name in drawn_already)}
    files = {
        name: _with_pictures_in(language_of(name), text, names) for name, text in files.items()
    }
    new = folder.with_name(f"{folder.name}.partial")
    drawn: list[str] = []
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        pages = _html_pages(html, pictures.names, style) if HTML in style.formats else {}
        for picture in pictures.drawn:
            pages = {
                name: text.replace(_mark(picture.name), picture.html[language_of(name)])
                for name, text in pages.items()
            }
            drawn += picture.files
            for name, data in picture.files.items():
                (new / name).write_bytes(data)
        for name, text in {**_written(files, style), **pages}.items():
            (new / name).parent.mkdir(exist_ok=True)
            (new / name).write_bytes(as_utf8(text))
        put_in_place(new, folder)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        raise StepFailed(
            f"the report cannot be written to {folder}: {error.strerror or error}",
            "free space or choose a run directory that can be written, then: prof report RUN",
        ) from error
    return ReportPaths(
        folder,
        folder / (REPORT if MARKDOWN in style.formats else PAGE),
        folder / PAGE,
        folder / SUMMARY if SUMMARY in _written(files, style) else None,
        folder / METRICS if METRICS in files else None,
        tuple(folder / name for name in drawn),
        tuple(first),
    )


def _with_pictures_in(language: str, page: str, pictures: Iterable[str]) -> str:
    """Return a page of markdown that shows the pictures of its language."""
    if language != ENGLISH:
        for name in pictures:
            page = page.replace(f"({name}.svg)", f"({file_in(f'{name}.svg', language)})")
    return page


def _written(files: Mapping[str, str], style: Style) -> dict[str, str]:
    """Return the files that are written: markdown only where it is asked for."""
    with_markdown = MARKDOWN in style.formats
    return {name: text for name, text in files.items() if with_markdown or not name.endswith(".md")}


def _html_pages(html: _Html, names: Iterable[str], style: Style) -> dict[str, str]:
    """Return the HTML pages, with the mark of each picture in its place."""
    from nsight_prof.reports.render.html_page import html_pages

    substep("pages")
    marks = {name: _mark(name) for name in names}
    if html.rooflines:
        from nsight_prof.reports.trace_view.live_roofline import live

        marks |= {name: live(name, marks[name], data) for name, data in html.rooflines.items()}
    figures = {
        language: {**html.elements.get(language, {}), **marks} for language in style.all_languages
    }
    sections = {
        language: {s.key: section_html(s, figures[language], language) for s in html.sections}
        for language in style.all_languages
    }
    return html_pages(html.texts, figures, style.templates, sections, html.folds, html.tables)


def _mark(picture: str) -> str:
    """Return what stands for a picture in HTML until it is drawn; no text is written like it."""
    return f'<svg data-picture="{picture}"></svg>'
