"""Turns a mangled C++ name into the demangled one, with the C++ runtime that is already loaded."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from functools import cache

# Itanium names carry each identifier as its length and its text: `5saxpy`.
_LENGTH = re.compile(r"\d+")
_UNNAMED = "_GLOBAL__N_"
_RUNTIMES = ("libstdc++.so.6", "libc++abi.so.1", "libc++abi.dylib")


@cache
def _runtime() -> ctypes.CDLL | None:
    for name in _RUNTIMES:
        try:
            library = ctypes.CDLL(name)
            library.__cxa_demangle.restype = ctypes.c_void_p
            library.free.argtypes = [ctypes.c_void_p]
        except (OSError, AttributeError):
            continue
        return library
    return None


def demangle(name: str) -> str:
    """Return the demangled form of `name`, or `name` itself where it is not mangled.

    Where no C++ runtime is found, or the name is cut off, the result is the qualified name of the
    function, with the other identifiers as its template arguments: enough to tell the library.
    """
    if not name.startswith(("_Z", "__Z")):
        return name
    return _with_runtime(name) or _without_runtime(name) or name


def _with_runtime(name: str) -> str:
    library = _runtime()
    if library is None:
        return ""
    status = ctypes.c_int(0)
    pointer = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not pointer or status.value != 0:
        return ""
    try:
        return ctypes.string_at(pointer).decode(errors="replace")
    finally:
        library.free(pointer)


def _without_runtime(mangled: str) -> str:
    """Return the function's qualified name and, in brackets, the other identifiers."""
    program_frames: list[str] = []
    others: list[str] = []
    last = None  # where the function's name ends so far: its identifiers follow on each other
    for start, end, word in _identifiers(mangled):
        frames = program_frames if last in (None, start) and not others else others
        last = end
        if not word.startswith(_UNNAMED):
            frames.append(word)
    return "::".join(program_frames) + (f"<{', '.join(others)}>" if others else "")


def identifiers(mangled: str) -> list[str]:
    """Return the identifiers of a mangled name, outermost first."""
    return [word for _, _, word in _identifiers(mangled) if not word.startswith(_UNNAMED)]


def _identifiers(mangled: str) -> Iterator[tuple[int, int, str]]:
    """Yield where each identifier starts (with its length) and ends, and the identifier."""
    position = 0
    while match := _LENGTH.search(mangled, position):
        end = match.end() + int(match[0])
        word = mangled[match.end() : end]
        position = match.end()
        if len(word) == int(match[0]) and word.isidentifier():
            yield match.start(), end, word
            position = end
