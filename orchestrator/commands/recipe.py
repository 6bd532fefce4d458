"""`prof recipe`: lists, shows and checks recipes, and prints their schema."""

from __future__ import annotations

import json

import click

from nsight_prof.orchestrator.say import say, say_error
from nsight_prof.orchestrator.suggesting import SuggestingGroup


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
def list_recipes() -> None:
    """List the bundled recipes with the question that each answers.

    \b
    Example:
      prof recipe list
    """
    from nsight_prof.orchestrator.recipe import load_recipe
    from nsight_prof.orchestrator.recipe_files import bundled

    names = [path.stem for path in bundled()]
    width = max(map(len, names), default=0)
    for name in names:
        click.echo(f"{name:{width}}  {load_recipe(name).question}")


@command.command("show", short_help="Print a recipe, or what it resolves to.")
@click.argument("name")
@click.option("--resolved", is_flag=True, help="Every key with its value, after extends and --set.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="With --resolved.")
def show(name: str, resolved: bool, overrides: tuple[str, ...]) -> None:
    """Print a recipe: its file with all comments, or what it resolves to.

    \b
    Examples:
      prof recipe show top-kernels > mine.yaml
      prof recipe show top-kernels --resolved --set select.top_k=5
    """
    from nsight_prof.orchestrator.recipe import load_recipe
    from nsight_prof.orchestrator.recipe_files import find_recipe
    from nsight_prof.parsers.errors import UsageError

    if resolved:
        import yaml

        data = load_recipe(name, overrides).to_dict()
        click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), nl=False)
        return
    if overrides:
        raise UsageError("--set has no effect on the file itself", "add --resolved")
    click.echo(find_recipe(name).read_text(encoding="utf-8"), nl=False)


@command.command("check", short_help="Check recipes: keys, values, files, sweeps.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
def check(files: tuple[str, ...], overrides: tuple[str, ...]) -> None:
    """Check recipes: keys, values, what they extend, their sweep, and that their files exist.

    All are checked, and each has a line: ok or wrong. Exit codes: 0 all are right, 2 some are not.

    \b
    Examples:
      prof recipe check mine.yaml
      prof recipe check recipes/*.yaml
    """
    from nsight_prof.parsers.errors import ProfError, UsageError

    wrong = False
    for file in files:
        try:
            count = _runs(file, overrides)
        except ProfError as error:
            wrong = True
            say(f"{file}: wrong")
            named = file in error.message
            say_error(error if named else ProfError(f"{file}: {error.message}", error.hint))
        else:
            say(f"{file}: ok, {count} run{'s' if count != 1 else ''}")
    click.get_current_context().exit(UsageError.exit_code if wrong else 0)


def _runs(file: str, overrides: tuple[str, ...]) -> int:
    """Return how many runs a recipe makes, after a look at all that they would be refused for."""
    from nsight_prof.orchestrator.given_kernels import given_selection
    from nsight_prof.orchestrator.program import resolve_program
    from nsight_prof.orchestrator.recipe import expand, load_recipe
    from nsight_prof.orchestrator.replay import check_reused_trace

    variants = expand(load_recipe(file, overrides))
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
    from nsight_prof.orchestrator.recipe import recipe_schema

    click.echo(json.dumps(recipe_schema(), indent=1))
