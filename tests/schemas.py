"""The published JSON Schemas, each held to the rules of schemas once: that takes 0.1 s."""

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from nsight_prof.orchestrator.recipe.read import recipe_schema
from nsight_prof.reports.render.metrics_json import schema


@cache
def of_metrics() -> Draft202012Validator:
    return _checked(schema())


@cache
def of_recipes() -> Draft202012Validator:
    return _checked(recipe_schema())


def _checked(of: dict[str, Any]) -> Draft202012Validator:
    Draft202012Validator.check_schema(of)
    return Draft202012Validator(of)
