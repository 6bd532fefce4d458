"""Turns the bytes of a text that a tool wrote into text, whatever the encoding."""

from __future__ import annotations

import codecs


def decode(data: bytes, final: bool = True) -> str | None:
    """Return the text of `data` without its byte order mark, or None where it is no text.

    PowerShell's `>` writes UTF-16; programs write the code page of Windows beside a tool's UTF-8,
    and so may a tool itself (the no-break space that groups digits). `final`: `data` is not just
    the begin of a file, so that a character which is cut off is damage.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _utf16(data, final)
    if b"\0" in data:
        return None
    try:
        return codecs.getincrementaldecoder("utf-8-sig")().decode(data, final)
    except UnicodeDecodeError:
        return data.removeprefix(codecs.BOM_UTF8).decode("cp1252", "replace")


def _utf16(data: bytes, final: bool) -> str | None:
    try:
        text = codecs.getincrementaldecoder("utf-16")().decode(data, final)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
