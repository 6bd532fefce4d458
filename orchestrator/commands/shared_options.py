"""Options that commands share: --json and --quiet for scripts, --templates and --language."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nsight_prof.orchestrator.recipe.languages import LANGUAGES
from nsight_prof.orchestrator.terminal.say import say

if TYPE_CHECKING:
    from nsight_prof.reports.render.style import Style

ALL = "all"

as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else on stdout."
)


def quiet(remaining: str) -> Callable[..., Any]:
    """Give a command the option --quiet; `remaining` says what is printed all the same."""
    return click.option("-q", "--quiet", is_flag=True, help=f"For scripts: print {remaining}.")


def page(formats: Sequence[str], about: str) -> Callable[..., Any]:
    """Give a command that writes one page --format, --language and --output."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option("-o", "--output", type=click.Path(path_type=Path),
                         help="File; stdout else."),
            click.option("--language", type=click.Choice(LANGUAGES), default=LANGUAGES[0],
                         show_default=True, help="Language of the page; JSON is in English."),
            click.option("--format", "style", type=click.Choice(formats), default=formats[0],
                         show_default=True, help=about),
        ):  # fmt: skip
            command = option(command)
        return command

    return decorate


def say_page(
    write: Callable[..., str], style: str, output: Path | None, what: str, *, quiet: bool = False
) -> None:
    """Print a page, or write it to `output`; a terminal gets markdown without links."""
    from nsight_prof.parsers.whole_file import as_utf8, written_whole
    from nsight_prof.reports.page.writer import Plain

    is_plain = style == "md" and output is None and sys.stdout.isatty()
    text = write(Plain()).lstrip() if is_plain else write()
    if output is None and not quiet:
        say(text, nl=False)
    elif output is not None:
        with written_whole(output) as partial:
            partial.write_bytes(as_utf8(text))
        if not quiet:
            say(f"{what}: {output}", err=not output.is_file())


def say_json(data: Any, *, err: bool = False) -> None:
    """Print data as JSON; to stderr where stdout is taken by what the command writes."""
    say(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False), err=err)


on_cluster = click.option(
    "--on",
    "cluster",
    metavar="ray[:ADDRESS]",
    help="Of a job, let the nodes of a Ray cluster that runs do this, each the ranks whose files "
    "it has, and do again what a lost node did: nsight-prof[ray].",
)


def style(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options --templates and --language."""
    languages = click.option(
        "--language",
        "languages",
        multiple=True,
        type=click.Choice([*LANGUAGES, ALL]),
        help="Write all pages in this language too, as report.LANGUAGE.md and "
        "stakeholder_summary.LANGUAGE.md; those in English are always there. May be given often.",
    )
    templates = click.option(
        "--templates",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Folder with templates of your own; each takes the place of the bundled one of its "
        "name (docs/templates.md in prof's repository).",
    )
    return templates(languages(command))


def chosen(languages: Sequence[str]) -> tuple[str, ...]:
    """Return the languages of --language, each once."""
    return LANGUAGES if ALL in languages else tuple(dict.fromkeys(languages))


def given_style(
    templates: Path | None, languages: Sequence[str], formats: str = ALL, *, png: bool = False
) -> Style | None:
    """Return the style that the options ask for; None where they ask for nothing.

    Raises:
        UsageError: there is no such folder, or it replaces no template.
    """
    if templates is None and not languages and formats == ALL and not png:
        return None
    from nsight_prof.reports.render.style import FORMATS, Style, check_style

    pages = FORMATS if formats == ALL else (formats,)
    style = Style(templates.absolute() if templates else None, chosen(languages), pages, png)
    check_style(style)
    return style


def overrides(templates: Path | None, languages: Sequence[str]) -> tuple[str, ...]:
    """Return the options as overrides of a recipe, so that the run keeps them."""
    found = []
    if templates is not None:
        found.append(f"templates={json.dumps(str(templates.absolute()))}")
    if languages:
        found.append(f"languages=[{', '.join(chosen(languages))}]")
    return tuple(found)
