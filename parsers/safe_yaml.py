"""Reads YAML that users write or send, in bounded time and memory.

An alias stands for all that its anchor holds: twelve lines may be a billion values once somebody
walks them. Such texts, those that hold themselves, and those that nest without end are refused
before any value is made of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

LONGEST = 1 << 20  # bytes of a file
MOST = 50_000  # values, each alias counted as what it stands for
DEEPEST = 50  # levels


class _Refused(yaml.MarkedYAMLError):
    """YAML that no reader should walk."""


class _Loader(yaml.SafeLoader):
    _level = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Stop before the scanner, whose time grows with the square of the depth, goes on."""
        self._level += 1
        if self._level > DEEPEST:
            raise _Refused(problem=f"it nests deeper than {DEEPEST} levels")
        try:
            return super().compose_node(parent, index)
        finally:
            self._level -= 1


def parse(text: str) -> tuple[yaml.Node | None, Any]:
    """Return the nodes of a YAML text, which know their lines, and its plain data.

    Raises:
        yaml.YAMLError: no YAML; a value that nobody can have (a 13th month, an integer of 5,000
            digits, half a character); more than MOST values or DEEPEST levels; an alias inside of
            its own anchor.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, None
        _size(node, {}, ())
        return node, loader.construct_document(node)
    except yaml.YAMLError:
        raise
    except (ValueError, OverflowError) as error:
        raise _Refused(problem=str(error)) from error
    finally:
        loader.dispose()


def read(path: Path) -> tuple[yaml.Node | None, Any]:
    """Return `parse` of a file.

    Raises:
        OSError, UnicodeDecodeError: it cannot be read.
        yaml.YAMLError: as `parse`; or it is longer than LONGEST bytes.
    """
    with path.open("rb") as stream:
        data = stream.read(LONGEST + 1)
    if len(data) > LONGEST:
        raise _Refused(problem=f"it is longer than {LONGEST >> 20} MiB")
    return parse(data.decode("utf-8-sig"))


def _size(node: yaml.Node, known: dict[int, int], around: tuple[int, ...]) -> int:
    """Return how many values `node` holds, aliases written out."""
    if id(node) in around:
        raise _Refused(
            problem="an alias stands inside of its own anchor", problem_mark=node.start_mark
        )
    if id(node) not in known:
        inner: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            inner = [child for pair in node.value for child in pair]
        elif isinstance(node, yaml.SequenceNode):
            inner = node.value
        else:
            node.value.encode()  # half a character, "\ud83d", can be written nowhere
        known[id(node)] = 1 + sum(_size(child, known, (*around, id(node))) for child in inner)
    if known[id(node)] > MOST:
        raise _Refused(
            problem=f"it holds more than {MOST:,} values once its aliases are written out",
            problem_mark=node.start_mark,
        )
    return known[id(node)]
