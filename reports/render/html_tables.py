"""Tables that a markdown text has itself, as those of a user's templates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from markdown_it.token import Token


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
