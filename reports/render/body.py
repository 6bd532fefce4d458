"""Markdown of a report to the body of an HTML page: headings to go to, figures and pages within.

What the text says stays as it is. Links to other files of the report lead to their place on the
page where the page carries them, else to the HTML file of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape, unescape

from markdown_it import MarkdownIt
from markdown_it.token import Token

from nsight_prof.reports.page.html import Fragment, Heading

PICTURES = (".svg", ".png")
TAKEN = ("top", "main", "page", "theme", "fold", "contents", "folds", "tip", "stakeholder-summary")
"""Ids of the page around the text (templates/report.html.j2)."""
_ID, _ID_ENDS = '<a id="', '">'
_SECTION, _SECTION_ENDS = '<div data-section="', '"></div>'


def dressed(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield the tokens with tables as they stand on a page; nothing is known of them to sort by."""
    for token in tokens:
        if token.type in ("th_open", "td_open"):
            number = "right" in str(token.attrGet("style"))
            token.attrs = {"class": "n"} if number else {}
        if token.type == "table_open":
            yield Token("html_block", "", 0, content='<div class="wide">')
        yield token
        if token.type == "table_close":
            yield Token("html_block", "", 0, content="</div>\n")


def plain_text(inline: Token) -> str:
    """Return the text of an inline token without its markup."""
    kinds = ("text", "code_inline", "softbreak")
    return "".join(t.content or " " for t in inline.children or [] if t.type in kinds).strip()


@dataclass(frozen=True)
class Carried:
    """What a page carries within: each by the name of the file that a link names.

    `figures` are SVG elements by the name of the picture without its suffix, `folds` the files
    whose table unfolds where the link stands (reports.html.folds), `places` ids of the page.
    `sections`, and tables, stand where `placeholder` of their key is a block of its own.
    """

    figures: Mapping[str, str] = field(default_factory=dict)
    folds: frozenset[str] = frozenset()
    places: Mapping[str, str] = field(default_factory=dict)
    sections: Mapping[str, Fragment] = field(default_factory=dict)


def placeholder(key: str) -> str:
    """Return the block of a markdown text whose place a section takes that is HTML already."""
    return f"{_SECTION}{escape(key)}{_SECTION_ENDS}"


@dataclass(frozen=True)
class Body:
    """The HTML of a text and its headings in order."""

    html: str
    headings: tuple[Heading, ...]


def body(text: str, carried: Carried, prefix: str = "", deeper: int = 0) -> Body:
    """Return the HTML of a markdown text.

    `prefix` begins the ids of its headings, whose levels are `deeper` by so many.
    """
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    tokens = list(dressed(markdown.parse(text)))
    marks = {placeholder(key): fragment for key, fragment in carried.sections.items()}
    taken = [*TAKEN, *_ids(tokens)]
    taken += [heading.id for fragment in marks.values() for heading in fragment.headings]
    headings = _name_headings(tokens, prefix, deeper, taken, marks)
    tokens = list(_placed(list(_labelled(tokens)), carried))
    for token in tokens:
        _lead(token.children or [], carried)
    html = markdown.renderer.render(tokens, markdown.options, {})
    before, *pieces = html.split(_SECTION)
    written = [before]
    for piece in pieces:
        key, _, after = piece.partition(_SECTION_ENDS)
        written += [carried.sections[unescape(key)].html, after]
    return Body("".join(written), tuple(headings))


def _ids(tokens: Iterable[Token]) -> Iterator[str]:
    """Yield the ids that a text gives its places."""
    for token in tokens:
        for child in token.children or []:
            if child.type == "html_inline" and child.content.startswith(_ID):
                yield child.content.removeprefix(_ID).removesuffix(_ID_ENDS)


def _labelled(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens; an id alone above a fold becomes that of the fold."""
    index = 0
    while index < len(tokens):
        fold = tokens[index + 3] if index + 3 < len(tokens) else None
        if fold is not None and fold.content.startswith("<details>"):
            ids = list(_ids(tokens[index + 1 : index + 2]))
            if ids and len(tokens[index + 1].children or []) == 2:
                fold.content = fold.content.replace("<details>", f'<details id="{ids[0]}">', 1)
                index += 3
        yield tokens[index]
        index += 1


def _name_headings(
    tokens: Sequence[Token],
    prefix: str,
    deeper: int,
    taken: Iterable[str],
    marks: Mapping[str, Fragment],
) -> Iterable[Heading]:
    """Give every heading an id as GitHub does; one that is `taken` gets a number.

    Sections that take the place of their `marks` have named theirs.
    """
    uses = dict.fromkeys(taken, 0)
    found: list[Heading] = []
    for index, token in enumerate(tokens):
        if token.type == "heading_close":
            token.tag = f"h{min(int(token.tag[1]) + deeper, 6)}"
        if token.type == "html_block" and token.content.strip() in marks:
            found += marks[token.content.strip()].headings
        if token.type != "heading_open":
            continue
        words = plain_text(tokens[index + 1])
        level = min(int(token.tag[1]) + deeper, 6)
        token.tag = f"h{level}"
        name = prefix + slug(words)
        uses[name] = uses.get(name, -1) + 1
        token.attrSet("id", name + (f"-{uses[name]}" if uses[name] else ""))
        found.append(Heading(level, words, str(token.attrGet("id"))))
    return found


def slug(words: str) -> str:
    """Return the id of a heading: small letters of any script, digits and dashes."""
    words_alone = "".join(c for c in words.lower() if c.isalnum() or c in " -_")
    return words_alone.strip().replace(" ", "-") or "section"


def _placed(tokens: Sequence[Token], carried: Carried) -> Iterable[Token]:
    """Yield the tokens with paragraphs of a picture or of a page alone replaced by these."""
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.type == "paragraph_open" and not token.hidden:
            inside = _instead(tokens[index + 1], carried)
            if inside is not None:
                block = Token("html_block", "", 0)
                block.content = inside
                yield block
                index += 3
                continue
        yield token
        index += 1


def _instead(inline: Token, carried: Carried) -> str | None:
    """Return what stands for a paragraph; None: the paragraph itself."""
    children = [t for t in inline.children or [] if t.content.strip() or t.type != "text"]
    links = [str(t.attrGet("href")) for t in children if t.type == "link_open"]
    images = [t for t in children if t.type == "image"]
    if len(children) == 1 and images:
        drawn = carried.figures.get(_stem(str(images[0].attrGet("src"))))
        return None if drawn is None else f"<figure>{drawn}</figure>\n"
    # The line that leads to the files of a picture, which is on the page itself.
    if links and all(h.endswith(PICTURES) and _stem(h) in carried.figures for h in links):
        return ""
    alone = len(links) == 1 and len(children) == 3 and children[0].type == "link_open"
    if alone and links[0] in carried.folds:
        title, file = escape(plain_text(inline)), escape(links[0])
        name = (
            f"<p><code>{file}</code></p>"  # what a page without scripts tells; no browser shows it
        )
        return f'<details data-fold="{file}"><summary>{title}</summary>{name}</details>\n'
    return None


def _stem(path: str) -> str:
    for suffix in PICTURES:
        path = path.removesuffix(suffix)
    return path


def _lead(children: Sequence[Token], carried: Carried) -> None:
    """Let links lead to their places on the page, or to the HTML file of the same name.

    A picture that the page does not carry becomes a link: a page asks for no other file.
    """
    for token in children:
        if token.type == "image":
            source, words = str(token.attrGet("src")), escape(token.content)
            source = escape(_target(source, carried))
            token.type, token.content = "html_inline", f'<a href="{source}">{words or source}</a>'
        if token.type == "link_open":
            token.attrSet("href", _target(str(token.attrGet("href")), carried))


def _target(href: str, carried: Carried) -> str:
    file, mark, anchor = href.partition("#")
    if file in carried.places:
        return f"#{anchor or carried.places[file]}"
    if ":" in file or not file.endswith(".md"):
        return href
    return f"{file.removesuffix('.md')}.html{mark}{anchor}"
