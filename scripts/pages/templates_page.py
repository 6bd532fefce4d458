"""Makes docs/templates.md: what a user's templates may name, from the view models themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args, get_type_hints

from matplotlib.figure import Figure

from nsight_prof.reports.engine.ranks import JobView
from nsight_prof.reports.page.catalogue import NAMES
from nsight_prof.reports.page.layout import Layout
from nsight_prof.reports.predict.view import PredictionView
from nsight_prof.reports.profile.links import Links
from nsight_prof.reports.profile.provenance import Provenance
from nsight_prof.reports.profile.view_models import KernelRow, ReportView
from nsight_prof.reports.render.gallery import Picture
from nsight_prof.reports.render.page_tables import TABLES
from nsight_prof.reports.render.templating import FILTERS
from nsight_prof.reports.studies.models import BenchReport, BenchSummary
from nsight_prof.reports.summary.models import SummaryView
from nsight_prof.reports.sweep.section import SweepView
from nsight_prof.reports.trace_view.histograms import Histogram
from nsight_prof.reports.trace_view.page import TracePart


@dataclass(frozen=True)
class Page:
    """A template that is rendered by itself: the file it makes, and the names that it is given.

    A type stands for one object, a text for what is no view model.
    """

    template: str
    makes: str
    names: Mapping[str, type | str]


LEAD = "the first figure (its `file` without .svg, its `alt`), or None; no section repeats it"
SECTIONS = "list of text: the sections of the view, as markdown"
OTHERS = "list of (language, file): the same page in other languages"
PICTURES = "list of Picture"
SOURCES = "Provenance by kernel id"
OF_A_RUN: Mapping[str, type | str] = {
    "view": ReportView,
    "pictures": PICTURES,
    "sources": SOURCES,
    "links": Links,
    "summary": SummaryView,
    "layout": Layout,
    "histograms": "Histogram by number of the kernel",
    "by_roof": "Histogram or None",
    "trace": "list of TracePart",
    "sections": "list of the sections of the view, each with its markdown `head` and `tables`",
    "leads": "list of (sentence, id of what it rests on): what stands below the first screen",
    "others": OTHERS,
}
PAGES = (
    Page("report.md.j2", "report.md of a profile run", OF_A_RUN),
    Page("tables.md.j2", "all tables of details.md", OF_A_RUN),
    Page("details.md.j2", "details.md of a profile run",
         {"view": ReportView, "tables": "markdown of `tables.md.j2`",
          "folds": "markdown of `kernels.md.j2`"}),
    Page("kernel.md.j2", "what is known of one kernel",
         {"kernel": KernelRow, "view": ReportView, "sources": SOURCES, "links": Links}),
    Page("kernels.md.j2", "kernels one below the other",
         {"kernels": "list of KernelRow", "whole": "whether these are all kernels of the report",
          "blocks": "markdown of `kernel.md.j2` by number",
          "sources": SOURCES, "histograms": "Histogram by number of the kernel"}),
    Page("kernel_page.md.j2", "counters/kernel-N.md",
         {"kernel": KernelRow, "source": Provenance, "block": "markdown of `kernel.md.j2`",
          "counters": "markdown of `counters.md.j2`", "histogram": "Histogram or None"}),
    Page("stakeholder_summary.md.j2", "stakeholder_summary*.md of a profile run",
         {"view": SummaryView}),
    Page("bench.md.j2", "report.md of a benchmark or a serving run",
         {"view": BenchReport, "pictures": PICTURES, "lead": LEAD,
          "headline": "tuple of Text: the sentences that the summary begins with",
          "leads": "list of (sentence of the answer, id of its section)",
          "sure": "list of sentences: how sure the numbers are, the caveats among them",
          "sections": SECTIONS,
          "trust": "text: its section `trust`, as markdown",
          "others": OTHERS}),
    Page("bench_summary.md.j2", "stakeholder_summary*.md of a benchmark or a serving run",
         {"view": BenchSummary}),
    Page("counters.md.j2", "all counters of a kernel", {"kernel": KernelRow, "source": Provenance}),
    Page("prediction.md.j2", "report.md of a prediction",
         {"view": PredictionView, "lead": LEAD, "sections": SECTIONS, "others": OTHERS}),
    Page("operators.md.j2", "report.md of imported operators",
         {"view": PredictionView, "lead": LEAD, "sections": SECTIONS, "others": OTHERS}),
    Page("sweep.md.j2", "report.md of a sweep",
         {"view": SweepView, "section": "text: the section of the sweep, as markdown",
          "title": "text", "reports": "text: what stands before the links to the variants",
          "others": OTHERS}),
    Page("ranks.md.j2", "report.md of a job of several ranks",
         {"view": JobView, "section": "text: the section of the job, as markdown"}),
    Page("report.html.j2", "the HTML file of each of these",
         {"title": "text", "language": "text", "style": "CSS", "script": "JavaScript",
          "script_hash": "base64 of its SHA-256", "contents": "HTML: list of headings",
          "body": "HTML of the markdown", "summary": "HTML of the summary, empty without",
          "folds": "packed counters, empty without"}),
)  # fmt: skip
ALSO: tuple[type, ...] = (Picture, Provenance, TracePart, Histogram)

INTRO = """# Templates and languages

## A template of your own

Reports are [Jinja](https://jinja.palletsprojects.com/templates/) templates. Put a changed copy of
one into a folder; it takes the place of the bundled one of its name, and all others stay:

```text
prof report RUN --templates my-templates
prof run top-kernels --templates my-templates
```

or `templates: my-templates` in a recipe, beside the recipe or in the current folder. A template may
take the bundled one into itself, and parts of your own whose names begin with `_`:

```jinja
{% include "_head.md.j2" %}
{% include "prof/stakeholder_summary.md.j2" %}
```

A name that does not exist fails with the template, the line and the nearest name that exists; the
old report stays. So does a number without a filter: numbers are in base units (ns, B, B/s, FLOP/s,
Hz), shares are 0 to 1, and `none` is unknown: filters show it as n/a, never as 0. All text is
escaped for markdown; `| markdown` leaves it as it is.

`{{ table.kernels(view, view.kernels) }}` is a whole table of the report, which the HTML page sorts
by its numbers (the names are below); a table that a template writes itself is not sorted.
`{{ "caveats" | id }}` gives a place an id, and `{{ "see there" | link("#caveats") }}` leads to it
from whatever page.

```jinja
{% for kernel in view.kernels %}
| {{ kernel.number }} | {{ kernel.short_name }} | {{ kernel.share | share }} |
{% endfor %}
```
"""


def templates_page() -> str:
    """Return the page as markdown."""
    parts = [INTRO, _languages(), "## What a template is given\n", _given()]
    parts += ["## Tables\n", _table(["table", "meaning"], _tables())]
    parts += ["## Filters\n", _table(["filter", "meaning"], _filters())]
    parts.append("## View models\n")
    parts += [_model(model) for model in models()]
    return "\n".join(parts).rstrip() + "\n"


def models() -> list[type]:
    """Return all view models that templates reach, each before those inside of it."""
    found: dict[type, None] = {}
    for page in PAGES:
        for given in page.names.values():
            if isinstance(given, type) and is_dataclass(given):
                found |= dict.fromkeys(_reached(given, found))
    for model in ALSO:
        found |= dict.fromkeys(_reached(model, found))
    return list(found)


def _reached(model: type, known: Mapping[type, None]) -> Iterator[type]:
    if model in known:
        return
    seen = {**known, model: None}
    yield model
    for hint in _hints(model).values():
        for inner in _types(hint):
            for reached in _reached(inner, seen):
                seen[reached] = None
                yield reached


def _hints(model: type) -> dict[str, Any]:
    return get_type_hints(model, localns={"Figure": Figure})


def _types(hint: Any) -> Iterator[type]:
    """Return the view models that a type hint names."""
    if isinstance(hint, type) and _is_model(hint):
        yield hint
    for part in get_args(hint):
        yield from _types(part)


def _is_model(hint: type) -> bool:
    named = is_dataclass(hint) or issubclass(hint, tuple) and hasattr(hint, "_fields")
    # Sections are written by reports.page: templates are given their markdown.
    inside = hint.__module__.startswith("nsight_prof.reports.")
    return named and inside and not hint.__module__.startswith("nsight_prof.reports.page.")


def _languages() -> str:
    names = ", ".join(f"`{name}` ({own})" for name, own in NAMES.items())
    return f"""\
## Languages

Pages are English. `--language` (`prof report`, `prof run`; `languages:` in a recipe) adds them in
other languages: `report.LANGUAGE.md`, `stakeholder_summary.LANGUAGE.md` and all that belongs to
them for {names}, or `all`. Numbers and units are the same in all of them;
pictures have the words of their language as SVG, as PNG those of English.
What is there in English only, such as the message of a tool, stays English.

`_("Wall time")` in a template is a message, `{{{{ _("{{n}} kernels", n=3) }}}}` one with values.
Their translations are in `reports/words/LANGUAGE/*.po`; a message of your own stays as it is.
"""


def _given() -> str:
    rows = [
        [f"`{page.template}`", page.makes, f"`{name}`", _link(given)]
        for page in PAGES
        for name, given in page.names.items()
    ]
    return _table(["template", "makes", "name", "is"], rows)


def _link(given: type | str) -> str:
    if isinstance(given, str):
        return re.sub("Picture|Provenance|TracePart", lambda m: _anchor(m[0]), given)
    return _anchor(given.__name__)


def _anchor(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _tables() -> list[list[str]]:
    return [
        [f"`table.{name}({', '.join(inspect.signature(make).parameters)})`",
         _plain(inspect.getdoc(make) or "").replace("\n", " ")]
        for name, make in sorted(TABLES.items())
    ]  # fmt: skip


def _filters() -> list[list[str]]:
    return [
        [f"`{name}`", _plain(inspect.getdoc(use) or "").partition("\n\n")[0].replace("\n", " ")]
        for name, use in sorted(FILTERS.items())
    ]


def _model(model: type) -> str:
    doc = _plain(inspect.getdoc(model) or "").strip()
    hints = _hints(model)
    names = [f.name for f in fields(model)] if is_dataclass(model) else list(hints)
    rows = [[f"`{name}`", _said(hints[name])] for name in names]
    return f"### {model.__name__}\n\n{doc}\n\n{_table(['field', 'type'], rows)}"


def _plain(doc: str) -> str:
    """Return a docstring in which markdown sees no HTML."""
    return doc.replace("<", "&lt;").replace(">", "&gt;")


def _said(hint: Any) -> str:
    """Return a type as readers of templates know it."""
    text = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    text = re.sub(r"[a-z_]+(?:\.[a-z_]+)*\.(?=[A-Za-z])", "", text)
    text = re.sub(r"tuple\[(.+), \.\.\.\]", r"list of \1", text)
    known = {model.__name__ for model in _types(hint)}
    return re.sub(r"\w+", lambda m: _anchor(m[0]) if m[0] in known else m[0], text)


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells) + "\n"
