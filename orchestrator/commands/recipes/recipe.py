"""`prof recipe`: lists, shows and checks recipes, and prints their schema."""

from __future__ import annotations

import json
from typing import Any

import click

from nsight_prof.orchestrator.commands import shared_options
from nsight_prof.orchestrator.terminal import completion
from nsight_prof.orchestrator.terminal.say import say, say_error
from nsight_prof.orchestrator.terminal.suggesting import SuggestingGroup


@click.group("recipe", cls=SuggestingGroup)
def command() -> None:
    """List, show and check recipes.

    A recipe is one YAML file that asks one question about one program.

    \b
    Examples:
      prof recipe list
      prof recipe show top-kernels > mine.yaml
      prof recipe check mine.yaml
      prof recipe schema > recipe.schema.json
    """


@command.command("list")
@shared_options.quiet("only the names")
@shared_options.as_json
def list_recipes(as_json: bool, quiet: bool) -> None:
    """List your own recipes and the bundled ones, with the question that each answers.

    Your own are in the folders that PROF_RECIPES names and in ~/.config/prof; they go first.

    \b
    Examples:
      prof recipe list
      prof recipe list --quiet | xargs prof recipe check
    """
    from nsight_prof.orchestrator.recipe.files import bundled, user_recipes
    from nsight_prof.orchestrator.recipe.read import load_recipe

    paths = {path.stem: path for path in (*bundled(), *user_recipes())}
    found = [
        {"name": name, "question": load_recipe(path).question, "file": str(path)}
        for name, path in sorted(paths.items())
    ]
    if as_json:
        shared_options.say_json(found)
        return
    width = max((len(recipe["name"]) for recipe in found), default=0)
    for recipe in found:
        say(recipe["name"] if quiet else f"{recipe['name']:{width}}  {recipe['question']}")


@command.command("show", short_help="Print a recipe, or what it resolves to.")
@click.argument("name", shell_complete=completion.recipes)
@click.option("--resolved", is_flag=True, help="Every key with its value, and where it comes from.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="With --resolved.",
    shell_complete=completion.recipe_keys,
)
def show(name: str, resolved: bool, overrides: tuple[str, ...]) -> None:
    """Print a recipe: its file with all comments, or what it resolves to.

    \b
    Examples:
      prof recipe show top-kernels > mine.yaml
      prof recipe show top-kernels --resolved --set select.top_k=5
      prof recipe show inference --resolved --set model=vit-base
    """
    from nsight_prof.orchestrator.recipe.files import find_recipe
    from nsight_prof.orchestrator.recipe.origins import with_origins
    from nsight_prof.orchestrator.recipe.read import load_with_layers
    from nsight_prof.parsers.errors import UsageError

    if resolved:
        recipe, layers = load_with_layers(name, overrides)
        click.echo(with_origins(recipe.to_dict(), layers), nl=False)
        return
    if overrides:
        raise UsageError("--set has no effect on the file itself", "add --resolved")
    click.echo(find_recipe(name).read_text(encoding="utf-8"), nl=False)


@command.command("check", short_help="Check recipes: keys, values, files, sweeps.")
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE…", shell_complete=completion.recipes
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key.",
    shell_complete=completion.recipe_keys,
)
@shared_options.quiet("only the errors of those that are wrong, to stderr")
@shared_options.as_json
def check(files: tuple[str, ...], overrides: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Check recipes: keys, values, what they extend, their sweep, and that their files exist.

    All are checked, and each has a line: ok or wrong. Exit codes: 0 all are right, 2 some are not.

    \b
    Examples:
      prof recipe check mine.yaml
      prof recipe check *.yaml
    """
    from nsight_prof.parsers.errors import ProfError, UsageError

    results: list[dict[str, Any]] = []
    for file in files:
        result: dict[str, Any] = {"file": file, "ok": True, "runs": 0, "error": "", "hint": ""}
        results.append(result)
        try:
            result["runs"] = count = _runs(file, overrides)
            line = f"{file}: ok, {count} run{'s' if count != 1 else ''}"
        except ProfError as error:
            result |= {"ok": False, "error": error.message, "hint": error.hint}
            line = f"{file}: wrong"
        if not quiet and not as_json:
            say(line)
        if not result["ok"]:
            message = result["error"]
            text = message if file in message else f"{file}: {message}"
            say_error(ProfError(text, result["hint"]))
    if as_json:
        shared_options.say_json(results)
    wrong = not all(result["ok"] for result in results)
    click.get_current_context().exit(UsageError.exit_code if wrong else 0)


def _runs(file: str, overrides: tuple[str, ...]) -> int:
    """Return how many runs a recipe makes, after a look at all that they would be refused for."""
    from nsight_prof.orchestrator.recipe.read import expand, load_recipe

    variants = expand(load_recipe(file, overrides))  # a wrong recipe is told before pandas is read
    from nsight_prof.orchestrator.plan.given_kernels import given_selection
    from nsight_prof.orchestrator.plan.program import resolve_program
    from nsight_prof.orchestrator.run.replay import check_reused_trace

    for _, variant in variants:
        resolve_program(variant)
        given_selection(variant)
        check_reused_trace(variant)
    return len(variants)


@command.command("schema", short_help="Print the JSON Schema of recipes, for editors.")
def schema() -> None:
    """Print the JSON Schema of recipes, for editors that complete and check YAML.

    \b
    Example (first line of a recipe, for the YAML language server):
      prof recipe schema > recipe.schema.json
      # yaml-language-server: $schema=recipe.schema.json
    """
    from nsight_prof.orchestrator.recipe.read import recipe_schema

    click.echo(json.dumps(recipe_schema(), indent=1))
