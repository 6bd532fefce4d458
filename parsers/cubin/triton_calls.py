"""Lines of a Triton kernel that call functions of Triton's own modules, such as `tl.rand`.

Triton 3.6 writes no calls into its line table. Where one line alone of the kernel calls a function,
its instructions are of that line. Texts of whole files are in the report of ncu (2025.3.1), made
with `--import-source yes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

MODULE = re.compile(r"/triton/language/\w+\.py$")
DEFINED = re.compile(r"def (\w+)\(")
Line = tuple[str, int]
"""File and number of a line."""


def embedded_texts(data: bytes, paths: Iterable[str]) -> dict[str, list[str]]:
    """Return the lines of files that a report of ncu holds: a path, and the text behind it."""
    found = {}
    for path in paths:
        name = path.encode()
        at = data.find(b"\n" + _number(len(name)) + name + b"\x12")
        if at >= 0:
            size, start = _size(data, at + len(_number(len(name))) + len(name) + 2)
            found[path] = data[start : start + size].decode(errors="replace").splitlines()
    return found


def calling_lines(lines: Iterable[Line], texts: Mapping[str, Sequence[str]]) -> dict[Line, Line]:
    """Return the line of the kernel that calls the function of each line of Triton's modules.

    `lines` are those of the kernel's instructions. A function that several lines of the kernel
    call, itself or through others, or none, is left out.
    """
    of_kernel = {line for line in lines if not MODULE.search(line[0])}
    candidates = _of_functions(of_kernel, texts)
    found = {}
    for line in {*lines} - of_kernel:
        names = _calling(line, texts.get(line[0], ()))
        call = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\(") if names else None
        calls = [at for at in candidates if call and call.search(_text(texts, at))]
        if len(calls) == 1:
            found[line] = calls[0]
    return found


def _calling(line: Line, text: Sequence[str]) -> set[str]:
    """Return the name of the function around a line, and of those of its file that use it."""
    bodies: dict[str, str] = {}
    name = around = ""
    for at, words in enumerate(text, 1):
        defined = DEFINED.match(words)
        name = defined[1] if defined else name
        bodies[name] = bodies.get(name, "") + ("" if defined else words.partition("#")[0] + "\n")
        around = name if at == line[1] else around
    names = {around} - {""}
    while more := {
        user
        for user, body in bodies.items()
        if user not in names and any(re.search(rf"\b{used}\b", body) for used in names)
    } - {""}:
        names |= more
    return names


def _of_functions(of_kernel: Iterable[Line], texts: Mapping[str, Sequence[str]]) -> set[Line]:
    """Return the lines of the functions that lines stand in, without their heads."""
    found = set()
    for file, number in of_kernel:
        text = texts.get(file, ())
        begin = end = min(number, len(text))
        while begin > 0 and _inside(text[begin - 1]):
            begin -= 1
        while end < len(text) and _inside(text[end]):
            end += 1
        found |= {(file, at) for at in range(begin + 1, end + 1)}
    return found


def _inside(text: str) -> bool:
    return not text.strip() or text[0] in " \t)#"


def _text(texts: Mapping[str, Sequence[str]], line: Line) -> str:
    return texts[line[0]][line[1] - 1].partition("#")[0]


def _number(value: int) -> bytes:
    """Return a number as protocol buffers write it."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _size(data: bytes, at: int) -> tuple[int, int]:
    """Return a number as protocol buffers write it, and where it ends."""
    value = shift = 0
    for end in range(at, min(at + 10, len(data))):
        value |= (data[end] & 127) << shift
        shift += 7
        if data[end] < 128:
            return value, end + 1
    return 0, at
