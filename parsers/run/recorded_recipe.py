"""What the recipe in a manifest must look like where readers of the manifest use it.

Recipes are checked by the orchestrator before anything runs; a manifest may come from anywhere, and
from another version. So unknown keys are let through here, and keys may be absent.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict

from nsight_prof.parsers.patterns import compile_pattern


def _usable(text: str) -> str:
    compile_pattern(text)
    return text


Regex = Annotated[str, AfterValidator(_usable)]


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Target(_Open):
    file: str | None = None
    command: list[str] | None = None
    args: dict[str, Any] | None = None
    env: dict[str, Any] | None = None


class _Step(_Open):
    enabled: bool = True
    args: dict[str, Any] | None = None
    extra_args: list[str] = []


class _Counters(_Step):
    sets: list[str] = []
    clock_control: str = ""
    cache_control: str = ""
    rules: bool = False


class RecordedRecipe(_Open):
    """The recipe of a manifest."""

    name: str = ""
    question: str = ""
    target: _Target | None = None
    capture: str | dict[str, str | list[str] | int | None] = ""
    stages: list[Regex] | dict[str, Regex] | None = None
    untraced: _Step | None = None
    trace: _Step | None = None
    select: dict[str, Any] | None = None
    counters: _Counters | None = None
    operators: _Step | None = None
    values: _Step | None = None
    bench: dict[str, Any] | None = None
    sweep: dict[str, list[Any]] | None = None
    notes: list[str] | None = None
    templates: str | None = None
    languages: list[str] | None = None


class Recorded(_Open):
    """The part of a manifest that holds the recipe, so that faults are named from its top."""

    recipe: RecordedRecipe
