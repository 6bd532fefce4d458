"""Kinds of values that recipes have: durations, regexes, words, arguments."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from nsight_prof.parsers.patterns import compile_pattern

DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?")
DEGREES = re.compile(r"(\d+(?:\.\d+)?)\s*(?:°?C)?")
BYTES = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]i)?B?")
POWERS = {None: 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
SECONDS = {None: 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def _duration(value: object) -> object:
    """Turn 90, "90", "90s", "10m" or "1.5h" into seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("write seconds (600) or a number with a unit: 90s, 10m, 1.5h")
    match = DURATION.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("write seconds (600) or a number with a unit: 90s, 10m, 1.5h")
    return float(match[1]) * SECONDS[match[2]]


def _celsius(value: object) -> object:
    """Turn 60, "60C" or "60 °C" into degrees Celsius."""
    match = None if isinstance(value, bool) else DEGREES.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("write degrees Celsius: 60C")
    return float(match[1])


def _bytes(value: object) -> object:
    """Turn 805306368, "768MiB" or "2GiB" into bytes."""
    match = None if isinstance(value, bool) else BYTES.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("write bytes, or a number with a unit: 768MiB, 2GiB")
    return int(float(match[1]) * POWERS[match[2]])


def _regex(value: str) -> str:
    compile_pattern(value)
    return value


def _without_controls(value: str) -> str:
    if "\0" in value:
        raise ValueError("it holds a NUL character, which no program and no file can be given")
    return value


def _variable(name: str) -> str:
    if not name or "=" in name:
        raise ValueError("a variable has a name, and no = in it")
    return name


def _word(value: object) -> object:
    """Let numbers stand for text where the program will only see text (commands, environment)."""
    if isinstance(value, bool) or value is None:
        raise ValueError(f"YAML reads this as {value}; put it in quotes to pass it as text")
    return str(value) if isinstance(value, int | float) else value


def kind_of_value(value: object) -> str:
    """Return the tag of a value that may be text or something else, for discriminated unions."""
    return "<text>" if isinstance(value, str) else "<other>"


def _no_mapping(args: dict[str, Any]) -> dict[str, Any]:
    for key, value in args.items():
        if isinstance(value, dict):
            raise ValueError(f"{key} is a mapping; an argument is a value or a list")
        for word in value if isinstance(value, list | tuple) else (value,):
            if isinstance(word, dict | list | set | bytes):
                raise ValueError(f"{key} holds a {type(word).__name__}; give values or one list")
            _without_controls(str(word))
    return args


Duration = Annotated[
    float,
    BeforeValidator(_duration),
    Field(gt=0),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": rf"^{DURATION.pattern}$"},
            ]
        }
    ),
]
Celsius = Annotated[
    float,
    BeforeValidator(_celsius),
    Field(gt=0, le=120),
    WithJsonSchema(
        {"anyOf": [{"type": "number"}, {"type": "string", "pattern": rf"^{DEGREES.pattern}$"}]}
    ),
]
Bytes = Annotated[
    int,
    BeforeValidator(_bytes),
    Field(gt=0),
    WithJsonSchema(
        {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": rf"^{BYTES.pattern}$"}]}
    ),
]
Text = Annotated[str, AfterValidator(_without_controls)]
VariableName = Annotated[Text, AfterValidator(_variable)]
Regex = Annotated[str, AfterValidator(_regex), Field(json_schema_extra={"format": "regex"})]
Word = Annotated[
    Text, BeforeValidator(_word), WithJsonSchema({"type": ["string", "number"]}, mode="validation")
]
Words = Annotated[tuple[Word, ...], Field(strict=False)]
Regexes = Annotated[tuple[Regex, ...], Field(strict=False)]
# Arguments of the program: key -> value, rendered as `--key value`.
Arguments = Annotated[dict[Text, Any], AfterValidator(_no_mapping)]


class Model(BaseModel):
    """A part of a recipe: frozen, and unknown keys are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, populate_by_name=True, allow_inf_nan=False
    )
