"""How a report is written: languages, formats, and a folder of the user's own templates."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from nsight_prof.parsers.errors import UsageError
from nsight_prof.reports.page.catalogue import ENGLISH, LANGUAGES

SUFFIX = ".j2"
MARKDOWN, HTML = FORMATS = ("md", "html")


@dataclass(frozen=True)
class Style:
    """How a report is written: folder of the user's templates, languages, formats.

    All pages are there in English; each of `languages` gets files of its own. `formats`
    are those of the pages: "md" (with picture files) and "html" (one file each). `png`: the
    pictures of markdown are there as PNG files, too.
    """

    templates: Path | None = None
    languages: tuple[str, ...] = ()
    formats: tuple[str, ...] = FORMATS
    png: bool = False

    @property
    def all_languages(self) -> tuple[str, ...]:
        """Languages of the pages: English, and those that were asked for."""
        return tuple(dict.fromkeys((ENGLISH, *self.languages)))


def style_of(recipe: Mapping[str, Any], given: Style | None = None) -> Style:
    """Return the style that a recipe asks for; what is `given` goes first.

    A recipe names languages here and no templates: it may be that of a run that somebody sent.
    Templates are always `given`.

    Raises:
        UsageError: there is no such folder or language, or a template of it replaces none.
    """
    chosen = given or Style()
    languages = chosen.languages or tuple(str(name) for name in recipe.get("languages") or ())
    style = replace(chosen, languages=tuple(dict.fromkeys(languages)))
    check_style(style)
    return style


def check_style(style: Style) -> None:
    """Refuse a style that could not be followed; raises as `style_of`."""
    for language in style.languages:
        if language not in LANGUAGES:
            raise UsageError(
                f"no report is written in the language {language!r}",
                f"choose from: {', '.join(LANGUAGES)}",
            )
    if style.templates is not None:
        _check_folder(style.templates)


def _check_folder(folder: Path) -> None:
    if not os.path.isdir(folder):
        raise UsageError(
            f"{folder} is no folder of templates", "give an existing folder with --templates DIR"
        )
    bundled = sorted(path.name for path in templates_folder().glob(f"*{SUFFIX}"))
    custom = sorted(path.name for path in folder.glob(f"*{SUFFIX}"))
    for name in custom:
        if name not in bundled and not name.startswith("_"):
            raise UsageError(
                f"{folder / name} takes the place of no template{did_you_mean(name, bundled)}",
                f"templates are: {', '.join(bundled)}; the name of a part that only your own "
                "templates include begins with _",
            )
    if not custom:
        raise UsageError(
            f"{folder} holds no template",
            f"put a changed copy of one there: {', '.join(bundled)}",
        )


def did_you_mean(name: str, known: list[str]) -> str:
    """Return the known name that is nearest to a wrong one, as the end of a message."""
    close = get_close_matches(name, known, 1)
    return f": did you mean {close[0]}?" if close else ""


def templates_folder() -> Path:
    """Folder of the bundled templates."""
    return Path(__file__).resolve().parents[2] / "templates"
