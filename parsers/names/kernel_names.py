"""Turns the name of a CUDA kernel into one that a person can read, with library and dtype.

The rules lie in kernel_names.yaml, in order: the first rule that fits names the kernel. What no
rule knows gets its own name without templates, namespaces and parameters, and says "other".
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Any

from nsight_prof.parsers.names.demangle import demangle
from nsight_prof.parsers.packaged import packaged_yaml

MAX_LENGTH = 76  # the longest useful GEMM name is 74 characters
_READ = 1000, 3000  # characters of the function's name and of the head that rules look at

_CAST = re.compile(r"\((?!anonymous)[A-Za-z_][\w: ]*\)(?=-?\d)")  # nsys writes <(int)4, (bool)0>
_GREATER = re.compile(r"(\(\w+\))>(\(\w+\))|>(?=\d)")  # enable_if<(8)>(0)>: not a bracket
# ncu 2025.1 cuts namespaces off by the last "<" too: "unnamed>::f" for "at::native::<unnamed>::f".
_CUT_ARGUMENT = re.compile(r"(?<=\w)<unnamed>::")
_UNNAMED = re.compile(r"(?:<?unnamed>|\(anonymous namespace\)|\{anonymous\}|_GLOBAL__N_\w*)::")
_CLONE = re.compile(r"\s*\[clone [^\]]*\]")
_RANGE = re.compile(r"[^<(]*/")  # `nsys stats -r …:nvtx-name` puts the NVTX range before the name
_LAMBDA = re.compile(r"\[lambda\(([^()]*)\) \(instance (\d+)\)\]|\{lambda\(([^()]*)\)#(\d+)\}")
_FIELD = re.compile(r"\{(\w+)(?:\|(\w+))?\}")
_ALTERNATIVE = re.compile(r"_\d$")  # groups x and x_2 are alternatives of one field
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+")
_LAMBDA_OWNER = re.compile(
    r"(?<!\w)(\w+)(?:<[^()]*>)?\([^#]*?\)(?: const)?::lambda\([^()]*\)#(\d+)"
)


@dataclass(frozen=True)
class KernelName:
    """What the name of a kernel tells.

    `dtype` is the type of the inputs of a GEMM or attention kernel, and of the data otherwise;
    `tile` is MxNxK of a GEMM. Both are empty where the name does not tell.
    """

    short_name: str
    library: str = "other"
    category: str = "other"
    dtype: str = ""
    tile: str = ""
    details: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class _Rule:
    """One entry of kernel_names.yaml; `any` are literals, one of which must stand in the name."""

    name: str
    library: str
    category: str
    short: tuple[str, ...]
    any: tuple[str, ...]
    base: str = ""
    match: str = ""
    dtype: tuple[str, ...] = ("auto",)
    tile: tuple[str, ...] = ()
    details: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str] | None, re.Pattern[str] | None]:
        return (
            re.compile(self.base) if self.base else None,
            re.compile(self.match) if self.match else None,
        )

    def fields(self, base: str, text: str) -> dict[str, str] | None:
        """Return the named groups where both regexes fit."""
        found: dict[str, str] = {}
        for pattern, subject in zip(self._patterns, (base, text), strict=True):
            if pattern is None:
                continue
            match = pattern.search(subject)
            if match is None:
                return None
            for key, value in match.groupdict().items():
                field_name = _ALTERNATIVE.sub("", key)
                found[field_name] = found.get(field_name) or value or ""
        return found


@dataclass(frozen=True)
class _Rules:
    rules: tuple[_Rule, ...]
    literals: dict[str, list[int]]  # literal -> rules that need it
    types: tuple[tuple[re.Pattern[str], dict[str, str]], ...]
    maps: dict[str, dict[str, str]]
    names: dict[str, dict[str, str]]
    word_maps: dict[str, dict[str, str]]


@cache
def _rules() -> _Rules:
    data: dict[str, Any] = packaged_yaml("nsight_prof.parsers", "kernel_names.yaml")
    rules = tuple(_rule(item) for item in data["rules"])
    types = tuple(
        (re.compile(r"(?<![\w])(" + "|".join(map(re.escape, tier)) + r")(?![\w])"), tier)
        for tier in data["types"]
    )
    literals: dict[str, list[int]] = {}
    for index, rule in enumerate(rules):
        for literal in rule.any:
            literals.setdefault(literal, []).append(index)
    return _Rules(rules, literals, types, data["maps"], data["names"], data["word_maps"])


def _rule(item: dict[str, Any]) -> _Rule:
    for key in {"any", "short", "dtype", "tile"} & item.keys():
        item[key] = (item[key],) if isinstance(item[key], str) else tuple(item[key])
    return _Rule(**item)


LONGEST = 1 << 13
"""Characters of a name that are looked at: the longest of real traces has 1,400."""


@lru_cache(maxsize=65536)
def classify(name: str) -> KernelName:
    """Return what `name` (demangled, mangled or plain) tells; never raises."""
    text = _normalized(name[:LONGEST])
    base, head = (text_part[:limit] for text_part, limit in zip(_split(text), _READ, strict=True))
    rules = _rules()
    worth_trying = {
        index for literal, indices in rules.literals.items() if literal in head for index in indices
    }
    for rule in (rules.rules[index] for index in sorted(worth_trying)):
        fields = rule.fields(base, head)
        if fields is not None:
            return _apply(rule, fields, text)
    return KernelName(_shorten(_unknown_name(base, text)), dtype=_pointer_dtype(text))


def kernel_id(mangled: str, grid: str, block: str) -> str:
    """Return the key of a kernel: the same name, grid and block give the same key in every run."""
    return "k" + hashlib.sha256(f"{mangled}|{grid}|{block}".encode()).hexdigest()[:10]


def _apply(rule: _Rule, fields: dict[str, str], text: str) -> KernelName:
    details = {key: _fill(value, fields) for key, value in rule.details.items()}
    fields |= details
    fields["dtype"] = _first(_dtype_by(way, fields, text) for way in rule.dtype)
    fields["tile"] = _first(_fill(way, fields) for way in rule.tile)
    words = [_fill(word, fields) for word in rule.short]
    words = ["1 stage" if word == "1 stages" else word for word in words]
    return KernelName(
        short_name=_shorten(", ".join(word for word in words if word)),
        library=_fill(rule.library, fields),
        category=_fill(rule.category, fields) or "other",
        dtype=fields["dtype"],
        tile=fields["tile"],
        details={key: value for key, value in details.items() if value},
    )


def _first(values: Iterable[str]) -> str:
    return next(filter(None, values), "")


def _fill(template: str, fields: Mapping[str, str]) -> str:
    """Fill `{field}` and `{field|map}`; a template with an empty field is empty as a whole."""
    values = [_value(fields.get(key, ""), via) for key, via in _FIELD.findall(template)]
    if not all(values):
        return ""
    remaining = iter(values)
    return _FIELD.sub(lambda _: next(remaining), template)


def _value(value: str, via: str) -> str:
    """Return `value` through the map or function called `via` (see kernel_names.yaml)."""
    if not via or not value:
        return value
    rules = _rules()
    if via == "type":
        return _dtype(value)
    if via in rules.maps:
        prefixes = [key for key in rules.maps[via] if value.startswith(key)]
        return rules.maps[via][max(prefixes, key=len)] if prefixes else ""
    if via in rules.word_maps:
        known = rules.word_maps[via]
        return " ".join(known[word] for word in value.split("_") if word in known)
    words = " ".join(word.lower() for word in _CAMEL.split(value) if word)
    return words if via == "words" else rules.names[via].get(value, words)


def _dtype_by(way: str, fields: Mapping[str, str], text: str) -> str:
    if way == "pointer":
        return _pointer_dtype(text)
    return _dtype(text, way == "auto") if way in ("auto", "float") else _fill(way, fields)


def _dtype(text: str, integers: bool = True) -> str:
    """Return the first data type that stands in `text`: floating-point types before integers."""
    for pattern, names in _rules().types[: None if integers else 1]:
        if match := pattern.search(text):
            return names[match[1]]
    return ""


def _pointer_dtype(text: str) -> str:
    """Return the type of the first floating-point pointer among the parameters."""
    pattern, names = _rules().types[0]
    for match in pattern.finditer(text):
        if re.match(r"(?: const)? ?\*", text[match.end() :]):
            return names[match[1]]
    return ""


def _normalized(name: str) -> str:
    """Return the demangled name in one spelling, whichever tool wrote it."""
    text = demangle(name.strip().rstrip("…"))  # nsys stats cuts names off in its text tables
    if "/" in text and (prefix := _RANGE.match(text)):
        text = text[prefix.end() :]
    if "(" not in text and "<" not in text and "{" not in text:
        return text
    text = _CLONE.sub("", _UNNAMED.sub("", _CUT_ARGUMENT.sub("<", text)))
    if "lambda" in text:
        text = _LAMBDA.sub(lambda m: f"lambda({m[1] or m[3] or ''})#{m[2] or m[4]}", text)
    return _GREATER.sub(r"\1 \2", _CAST.sub("", text))


def _split(text: str) -> tuple[str, str]:
    """Return the qualified function name (no return type, no template arguments), and the head.

    The head is all that stands before the parameters.
    """
    base, depth, length = [], 0, 0
    text = text.replace("->", "")
    for token in re.split(r"([<>()])", text):
        if token == "(" and depth == 0:
            break
        length += len(token)
        if token == "<":
            depth += 1
        elif token == ">":
            depth = max(depth - 1, 0)
        elif depth == 0 and token != ")":
            base.append(token)
    return "".join(base).strip().rsplit(" ", 1)[-1], text[:length]


def function_name(name: str) -> str:
    """Return the name of a kernel's function alone, by which `ncu --kernel-name` knows it."""
    return _split(_normalized(name))[0].rsplit("::", 1)[-1]


def _unknown_name(base: str, text: str) -> str:
    """Return the name without namespaces; a kernel made from a lambda says whose lambda it is."""
    short = base.rsplit("::", 1)[-1].split("[", 1)[0] or base or text
    owner = _LAMBDA_OWNER.search(text)
    return f"{short}: {owner[1]} #{owner[2]}" if owner and owner[1] != short else short


def _shorten(name: str) -> str:
    """Cut a name that is too long: its last part stays, and a hash tells it from its twins."""
    if len(name) <= MAX_LENGTH:
        return name
    head, comma, tail = name.rpartition(", ")
    mark = "…" + hashlib.sha256(name.encode(errors="replace")).hexdigest()[:6]
    room = MAX_LENGTH - len(mark + comma + tail)
    if head and room > 20:
        return f"{head[:room]}{mark}{comma}{tail}"
    return name[: MAX_LENGTH - len(mark)] + mark
