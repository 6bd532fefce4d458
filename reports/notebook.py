"""A run in a notebook: its findings as a table, its figures as SVG, and a first screen as HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from nsight_prof.parsers.build import load
from nsight_prof.parsers.build.bound import LABELS
from nsight_prof.parsers.cells import known, records, text
from nsight_prof.parsers.errors import ProfError, UsageError
from nsight_prof.parsers.run.run import Run, once
from nsight_prof.parsers.tables import parquet_file, tables
from nsight_prof.reports.page import Section
from nsight_prof.reports.page.formats import NA, counted, duration, share, shorten
from nsight_prof.reports.page.html import table_html
from nsight_prof.reports.page.writer import InHtml, Writer

SENTENCES, ACTIONS, KERNELS, LONGEST_NAME = 3, 3, 5, 60
"""What the first screen shows: sentences, things to do, kernels, characters of a kernel's name."""
COLUMNS = {
    "run": "string", "rank": "Int64", "title": "string", "sentence": "string", "action": "string",
    "gain_ns": "float64", "gain_program": "float64", "gain_of": "string", "share": "float64",
    "confidence": "string", "kernel_ids": "object", "stage": "string", "cause": "string",
    "disprove": "string",
}  # fmt: skip
NUMBERS = ("gain_ns", "gain_program", "gain_of", "share", "confidence", "kernel_ids", "stage")
"""Columns that are fields of a finding; the others are its texts."""


@dataclass(frozen=True)
class Figure:
    """Figures of a report by name, as SVG; a notebook shows them below each other."""

    svgs: dict[str, str]

    def _repr_html_(self) -> str:
        return "".join(f"<div>{svg[svg.index('<svg') :]}</div>" for svg in self.svgs.values())

    def _repr_svg_(self) -> str | None:
        return next(iter(self.svgs.values())) if len(self.svgs) == 1 else None

    def __repr__(self) -> str:
        return f"Figure({', '.join(self.svgs)})"


class NotebookRun(Run):
    """A run as the API hands it out: besides its tables, what its report says and draws."""

    def __repr__(self) -> str:
        recipe = text(self.manifest.recipe.get("name"))
        return f"<Run {shorten(' · '.join(filter(None, (recipe, _facts(self)))), 160)}>"

    def _repr_html_(self) -> str:
        return _first_screen(self)

    @cached_property
    def variants(self) -> dict[str, Run]:
        """Runs of a sweep by name, each opened as this one; empty for any other run."""
        return {name: NotebookRun(run.path, run.manifest) for name, run in super().variants.items()}

    @cached_property
    def findings(self) -> pd.DataFrame:
        """What the report says, one row per finding, in its order.

        docs/notebooks.md has the columns.

        Raises:
            ArtifactUnreadable: a table that it needs is damaged.
        """
        rows = [row for name, member in _members(self).items() for row in _rows(member, name)]
        frame = pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)
        has_members = bool(self.manifest.ranks or self.manifest.variants)
        return frame if has_members else frame.drop(columns="run")

    @cached_property
    def figures(self) -> list[str]:
        """Names of the figures that `figure` draws."""
        return list(_figures(self))

    def figure(self, name: str) -> Figure:
        """Return a figure of the report, which a notebook shows as SVG; `.svgs` has its text.

        Args:
            name: one of `figures`, or a group of them: "roofline" is that of every pipe.

        Raises:
            UsageError: this run has no such figure; the message lists those that it has.
        """
        return _figure(self, name)


def load_run(path: Path | str) -> NotebookRun:
    """Open the run directory `path`; a run that has no tables yet gets them first.

    A sweep has its tables in its variants: `load_run(path).variants`. A job has tables `ranks` and
    `rank_kernels`; `load_run(path / "ranks" / "0003")` is the run of one rank.

    Raises:
        UsageError: the folder is not a run directory.
        ArtifactUnreadable: the manifest is damaged.
        SchemaTooNew: a newer version of prof wrote it.
        StepFailed: the tables are missing and cannot be written.
    """
    run = load.load_run(path)
    return NotebookRun(run.path, run.manifest)


def _members(run: Run) -> dict[str, Run]:
    """Return the runs that have tables of a program: variants, ranks, or the run itself by ""."""
    if run.manifest.ranks:
        paths = [run.directory.rank(record.rank).path for record in run.manifest.ranks]
        return {path.name: load.load_run(path) for path in paths}
    return run.variants or {"": run}


def _rows(run: Run, name: str) -> Iterator[dict[str, Any]]:
    from nsight_prof.reports.verdicts.ranking import findings

    write = Writer()
    for section in _sections(run):
        for finding in section.findings:
            title, sentence = write.text(section.heading), write.text(finding.verdict)
            yield {"run": name, "title": title, "sentence": sentence}
    if run.is_bench:
        return
    for found in findings(run):
        texts = {
            **{"title": found.title, "sentence": found.verdict},
            **{"action": found.action, "disprove": found.disproof},
        }
        yield {
            **{"run": name, "rank": found.rank, "cause": found.rule},
            **{column: getattr(found, column) for column in NUMBERS},
            **{column: "" if text is None else write.text(text) for column, text in texts.items()},
        }


@once
def _sections(run: Run) -> tuple[Section, ...]:
    """Return the sections of a report that have findings of their own."""
    from nsight_prof.reports.profile.kernel_rows import kernel_rows
    from nsight_prof.reports.profile.views import engine_sections, savings
    from nsight_prof.reports.studies import registry
    from nsight_prof.reports.verdicts.ranking import findings

    if run.is_bench:
        return tuple(registry.sections(run))
    return engine_sections(run, savings(kernel_rows(run), findings(run)))


def _figure(run: Run, name: str) -> Figure:
    from nsight_prof.reports.plots.style import render_svg

    known_ones = _figures(run)
    chosen = [n for n, picture in known_ones.items() if n == name] or [
        n for n, picture in known_ones.items() if picture.group == name and not picture.stage
    ]
    if not chosen:
        names = ", ".join(known_ones)
        has = f"it has: {names}" if names else "it has none: nothing that was recorded makes one"
        raise UsageError(f"{run.path} has no figure {name!r}; {has}", "run.figures lists them")
    return Figure({n: render_svg(known_ones[n].draw()).decode() for n in chosen})


@once
def _figures(run: Run) -> dict[str, Any]:
    from nsight_prof.reports.render.gallery import bench_pictures, pictures

    if run.manifest.ranks:
        return {}
    if run.manifest.variants:
        drawings = bench_pictures([_sweep(run)])
    elif run.is_bench:
        drawings = bench_pictures(_sections(run))
    else:
        from nsight_prof.reports.profile.views import report_view

        drawings = pictures(report_view(run))
    return {picture.name: picture for picture in drawings}


class _Unlinked(InHtml):
    """HTML of a part of a report: the places that its links lead to are not there."""

    def link(self, label: str, _target: str) -> str:
        """Return what is shown."""
        return label


def _first_screen(run: Run) -> str:
    """Return what a run shows in a notebook, as HTML: what it is, what it says, where the rest is.

    A part whose tables cannot be read says so and why; nothing of prof's errors is raised.
    """
    recipe = run.manifest.recipe
    title = text(recipe.get("name")) or run.manifest.run_id
    blocks = [
        f"<p><b>{escape(title)}</b> {escape(text(recipe.get('question')))}<br>"
        f"<small>{escape(_facts(run))}</small></p>",
        _block("What it says", lambda: _what_it_says(run)),
        _block("Kernels", lambda: _kernels(run)),
        f"<p><small>{_more(run)}</small></p>",
    ]
    return f"<div>{''.join(blocks)}</div>"


def _facts(run: Run) -> str:
    gpus = dict.fromkeys(text(gpu.get("name")) for gpu in run.manifest.gpus)
    facts = [run.manifest.run_id, f"measured {run.manifest.created}", ", ".join(filter(None, gpus))]
    if run.manifest.ranks:
        facts.append(counted(len(run.manifest.ranks), "rank"))
    if run.manifest.variants:
        facts.append(counted(len(run.manifest.variants), "variant"))
    return " · ".join(filter(None, facts))


def _block(what: str, make: Callable[[], str]) -> str:
    try:
        return make()
    except ProfError as error:
        return f"<p>{what}: not available: {escape(error.message)} ({escape(error.hint)})</p>"


def _what_it_says(run: Run) -> str:
    """Return the verdict and what to do, as its report begins; of others their first sentences."""
    if run.is_bench or run.manifest.ranks or run.manifest.variants:
        return _list(_headline(run))
    from nsight_prof.reports.profile.views import report_view
    from nsight_prof.reports.summary import tables as summary_tables
    from nsight_prof.reports.summary.summary import summarise

    first, write = summarise(report_view(run)).first, Writer(markup=_Unlinked())
    blocks = [f"<p>{write.text(first.line)}</p><p><b>{write.text(first.verdict)}</b></p>"]
    tables = []
    if first.actions:
        table = summary_tables.actions(first, ACTIONS)
        smaller = table.footer and replace(table.footer, cells=table.footer.cells[:-1])
        without_findings = replace(table, columns=table.columns[:-1], footer=smaller)
        tables.append(table_html(without_findings, write))
    if first.choices:
        tables.append(table_html(summary_tables.choices(first), write))
    blocks += tables
    return "".join(blocks)


def _headline(run: Run) -> list[str]:
    if run.manifest.ranks:
        from nsight_prof.reports.engine.ranks import job_section, job_view

        of_job = job_section(job_view(run.path)).findings
        return [Writer().text(finding.verdict) for finding in of_job[:SENTENCES]]
    if run.manifest.variants:
        of_sweep = _sweep(run).findings
        return [Writer().text(finding.verdict) for finding in of_sweep[:SENTENCES]]
    from nsight_prof.reports.studies.models import leading

    found = leading(_sections(run), SENTENCES)[:SENTENCES]
    return [Writer().text(finding.verdict) for finding in found]


def _sweep(run: Run) -> Section:
    from nsight_prof.reports.sweep.section import sweep_section
    from nsight_prof.reports.sweep.sweep import sweep_view

    return sweep_section(sweep_view(run.manifest, load.load_variants(run.directory)))


def _list(sentences: Iterable[str]) -> str:
    rows = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<ul>{rows}</ul>" if rows else ""


def _kernels(run: Run) -> str:
    """Return the kernels with the most GPU time; empty for a run without any."""
    frame = run.kernels.dropna(subset=["total_ns"])
    if frame.empty:
        return ""
    bounds = dict(zip(run.counters["kernel_id"], run.counters["bound_by"], strict=True))
    head = "".join(f"<th>{name}</th>" for name in ("kernel", "GPU time", "share", "bound by"))
    rows = []
    for row in records(frame.head(KERNELS)):
        cells = (
            shorten(text(row["short_name"]), LONGEST_NAME),
            duration(known(row["total_ns"])),
            share(known(row["share"])),
            LABELS.get(text(bounds.get(row["kernel_id"])), NA),
        )
        rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _more(run: Run) -> str:
    ways = ["<code>run.findings</code>", "<code>run.figures</code>, <code>run.figure(name)</code>"]
    if run.manifest.variants:
        ways.append("<code>run.variants</code>")
    filled, damaged = [], []
    for name in tables():
        path = run.directory.tables / f"{name}.parquet"
        if not path.is_file():
            continue
        try:
            with parquet_file(path) as file:
                filled += [f"{name} ({file.metadata.num_rows:,})"] * (file.metadata.num_rows > 0)
        except ProfError:
            damaged.append(name)
    ways += [f"tables (rows): <code>run.</code> {', '.join(filled)}"] * bool(filled)
    ways += [f"cannot be read: {', '.join(damaged)} (prof report makes them again)"] * bool(damaged)
    return "<br>".join(ways)
