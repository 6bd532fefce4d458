"""Renders the templates of reports: the bundled ones, and a user's own in place of single ones.

A template of the user's may build on the bundled one of the same name:
`{% extends "prof/report.md.j2" %}`. What templates may name is in docs/templates.md.

`_("Wall time")` in a template is a message (`reports.page.Text`) that the language of the page has
in its catalogues; scripts/messages.py finds it.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, is_dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2.bccache import Bucket
from jinja2.sandbox import ImmutableSandboxedEnvironment

from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.whole_file import whole_file
from nsight_prof.reports.page import (
    Document,
    Interval,
    Name,
    Number,
    Table,
    Text,
    Verbatim,
    formats,
)
from nsight_prof.reports.page.catalogue import ENGLISH, file_in
from nsight_prof.reports.page.marks import mark
from nsight_prof.reports.page.values import Word, Words
from nsight_prof.reports.page.writer import InTemplate, Writer, marks_of
from nsight_prof.reports.render.style import SUFFIX, did_you_mean, templates_folder

if TYPE_CHECKING:
    from nsight_prof.reports.profile.links import Links

PAGE_VALUES = (Text, Number, Interval, Name, Verbatim, Document)
"""What `Writer` makes words of, wherever a template writes it."""
IN_PAGE = "tables_in_page"
"""Name of the list of the tables that the templates of a page showed."""
BUNDLED = "prof"
"""Prefix of the bundled templates for a template of the user's that builds on one of them."""
# Not optimized: what stands in compiled templates is then the same in all languages.
SYNTAX = {
    "trim_blocks": True,
    "lstrip_blocks": True,
    "keep_trailing_newline": True,
    "optimized": False,
}
FAULTS = (
    *(jinja2.TemplateError, TypeError, ValueError, AttributeError, LookupError),
    *(ArithmeticError, RecursionError),
)


def render(
    name: str,
    content: Mapping[str, Any],
    custom: Path | None = None,
    finalize: Callable[[Any], Any] | None = None,
    language: str = ENGLISH,
) -> str:
    """Return the text of one template; one in the folder `custom` goes before the bundled one.

    Its tables and places are marks (reports.page.marks); its tables are added to the list that
    `content` has at `IN_PAGE`.

    Its messages, `_("…")`, and all `Text` that it is given are written in `language`.

    Raises:
        UsageError: a template of the user's (folder `custom`) names something that does not exist,
            prints a number without a format, or is not Jinja; the message says what, and where.
        ArtifactUnreadable: the same of a bundled template.
    """
    try:
        environment = _environment(templates_folder(), custom, finalize, language)
        return environment.get_template(name).render(content)
    except FAULTS as error:
        known = (
            "; what templates may name is in docs/templates.md in prof's repository"
            if custom is not None
            else ""
        )
        # Of templates of their own people hear as of any other option; the bundled ones are files.
        kind = ArtifactUnreadable if custom is None else UsageError
        raise kind(
            f"template {_location(name, error, custom)}: {_fault(error)}",
            f"correct the template, or take back your change to it{known}",
        ) from error


class _Sandbox(ImmutableSandboxedEnvironment):
    def getattr(self, obj: Any, attribute: str) -> Any:
        """Ask less of models, whose fields a report reads by the hundred thousand.

        They are none of the types of Python that lead out of the sandbox, nor lists or mappings.
        """
        if hasattr(type(obj), "__dataclass_fields__") and not attribute.startswith("_"):
            value = getattr(obj, attribute, jinja2.utils.missing)
            if value is not jinja2.utils.missing:
                return value
        return super().getattr(obj, attribute)


class _Compiled(jinja2.BytecodeCache):
    """Keeps the bundled templates compiled, in the folder where Python keeps compiled modules.

    Those of a user are compiled each time; where the folder cannot be written, all are.
    """

    def get_cache_key(self, name: str, filename: str | None = None) -> str:
        """Return the path of the compiled template, or "" for one that is not kept."""
        path = templates_folder() / name
        return importlib.util.cache_from_source(path) if filename == str(path) else ""

    def get_source_checksum(self, source: str) -> str:
        """Return the hash of all that the compiled template depends on."""
        return super().get_source_checksum(f"{jinja2.__version__} {SYNTAX} {source}")

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read a compiled template, if there is one."""
        with suppress(OSError):
            bucket.bytecode_from_string(Path(bucket.key).read_bytes())

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write a compiled template, unless Python may not write such files."""
        if not bucket.key or sys.dont_write_bytecode:
            return
        path = Path(bucket.key)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as partial_:
                partial_.write_bytes(bucket.bytecode_to_string())


@lru_cache(maxsize=8)
def _environment(
    folder: Path, custom: Path | None, finalize: Callable[[Any], Any] | None, language: str
) -> jinja2.Environment:
    """Return the environment of templates: they reach what they are given, and nothing else.

    It keeps compiled templates: a report renders the same one for each of its kernels.
    """
    bundled = jinja2.FileSystemLoader(folder)
    loaders: list[jinja2.BaseLoader] = [bundled, jinja2.PrefixLoader({BUNDLED: bundled})]
    if custom is not None:
        loaders.insert(0, jinja2.FileSystemLoader(custom))
    write = Writer(language, InTemplate())
    written = finalize or partial(_finalize, write)

    @jinja2.pass_context  # or constants would be written when the template is compiled
    def write_at_runtime(context: jinja2.runtime.Context, value: Any) -> Any:
        if isinstance(value, Table):
            tables = context[IN_PAGE]
            tables.append(value)
            return mark("table", str(len(tables) - 1))
        return value if isinstance(value, formats.Markdown) else written(value)

    environment = _Sandbox(
        loader=jinja2.ChoiceLoader(loaders),
        undefined=Absent,
        finalize=write_at_runtime,
        bytecode_cache=_Compiled(),
        **SYNTAX,
    )
    environment.filters.update(FILTERS)
    unmarked = Writer(language)
    environment.filters["translated"] = partial(_translated, unmarked)
    environment.filters["plain"] = unmarked.value
    environment.filters["page"] = partial(_page, language)
    environment.filters["escape_html"] = lambda value: formats.escape_html(_words(unmarked, value))
    environment.filters |= {name: partial(use, write) for name, use in WRITTEN.items()}
    environment.filters["linked"] = partial(linked, language)
    environment.globals["_"] = Text
    marks = asdict(marks_of(language)).items()
    environment.globals["marks"] = {key: formats.Markdown(value) for key, value in marks}
    return environment


def _words(write: Writer, value: Any) -> Any:
    """Return a text or number as words of a language; anything else as it is."""
    return write.value(value) if isinstance(value, PAGE_VALUES) else value


def _translated(write: Writer, words: Words) -> str:
    """Return words, as of a fixed set ("medium", "DRAM bandwidth"), in the language of the page."""
    return write.value(Word(words) if isinstance(words, str) else words)


def _page(language: str, name: str) -> formats.Markdown:
    """Return the name of a file of the report ("report.md") in the language of the page."""
    return formats.Markdown(file_in(name, language))


def linked(language: str, text: Text | str, links: Links, anchor: str = "") -> formats.Markdown:
    """Return a sentence of the finding at `anchor` with links from names and numbers to rows."""
    write = Writer(language, InTemplate(), lambda value: links.lead(value, anchor))
    return formats.Markdown(write.value(text))


def _link(write: Writer, content: Any, target: str) -> formats.Markdown:
    """Return a text as a link to an id of the report ("#caveats") or a file beside it."""
    return formats.Markdown(write.markup.link(str(_words(write, content)), target))


def _id(write: Writer, name: str) -> formats.Markdown:
    """Return the id of a place of the report, to which `link("#name")` leads from all its pages."""
    return formats.Markdown(write.markup.anchor(name))


def _capital(write: Writer, value: Any) -> formats.Markdown:
    """Return a text with a capital at its start, as a cell of a table begins."""
    text = str(_finalize(write, value))
    return formats.Markdown(text[:1].upper() + text[1:])


def _sentence(write: Writer, value: Any) -> formats.Markdown:
    """Return a text or the value of a fact; a sentence that is there in English only says so."""
    if write.language == ENGLISH or isinstance(value, Text) and write.translates(value):
        return formats.Markdown(write.value(value))
    if isinstance(value, str) and write.has_sentence(value):
        return formats.Markdown(write.value(value))
    if isinstance(value, (Text, str)):
        value = Text("{sentence} [in English]", sentence=value)
    return formats.Markdown(write.value(value))


def _sentences(write: Writer, texts: Sequence[Text]) -> formats.Markdown:
    """Return texts as one paragraph."""
    return formats.Markdown(write.marks.sentence.join(_sentence(write, text) for text in texts))


WRITTEN: dict[str, Callable[..., Any]] = {
    **{"link": _link, "capital": _capital, "sentence": _sentence},
    **{"sentences": _sentences, "id": _id},
}
"""Filters that write in the language of the page."""
FILTERS: dict[str, Callable[..., str]] = {
    **formats.FILTERS,
    **{"linked": linked, "translated": str, "plain": str, "page": _page},
    **WRITTEN,
}
"""What templates may send a value through."""


class Absent(jinja2.StrictUndefined):
    """A name that does not exist; whoever uses it is told what the nearest existing one is."""

    @property
    def _undefined_message(self) -> str:
        owner, name = self._undefined_obj, self._undefined_name
        # A name that a loop or a macro left undefined has no owner: Jinja says that well itself.
        if self._undefined_hint or owner is jinja2.utils.missing or not isinstance(name, str):
            return str(super()._undefined_message)
        return f"{type(owner).__name__} has no {name!r}{did_you_mean(name, _names(owner))}"

    __slots__ = ()


def _names(owner: Any) -> list[str]:
    """Return what a template may name of an object."""
    if is_dataclass(owner):
        return [field.name for field in fields(owner)]
    return [str(key) for key in owner] if isinstance(owner, Mapping) else []


def _finalize(write: Writer, value: Any) -> Any:
    """Escape all that a template writes, unless a filter made it markdown on purpose."""
    if isinstance(value, (*PAGE_VALUES, formats.Quantity)):
        return write.value(value)
    if isinstance(value, str) and not isinstance(value, formats.Markdown):
        value = Writer(write.language).sentence(value)
    return value if isinstance(value, jinja2.Undefined) else formats.template_text(value)


def _fault(error: Exception) -> str:
    """Return what is wrong, where the words of Jinja and Python alone would not say it."""
    if isinstance(error, RecursionError):
        return f"it takes itself in without end; the bundled template is {BUNDLED}/NAME"
    if isinstance(error, jinja2.TemplateNotFound):
        return f"there is no template {error.message}"
    return str(error)


def _location(name: str, error: Exception, custom: Path | None) -> str:
    """Return the template and line of a fault; the whole path of a template of the user's."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"{_file(error.filename or error.name or name)}, line {error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(SUFFIX)]
    if frames:
        return f"{_file(frames[-1].filename)}, line {frames[-1].lineno}"
    return str(custom / name) if custom is not None and (custom / name).is_file() else name


def _file(path: str) -> str:
    inside = Path(path).parent == templates_folder() or not Path(path).is_absolute()
    return Path(path).name if inside else path
