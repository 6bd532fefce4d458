"""`prof recipe`: lists, shows and checks recipes, and prints their schema."""

from __future__ import annotations

import json

import click


@click.group("recipe")
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

    \b
    Examples:
      prof recipe check mine.yaml
      prof recipe check recipes/*.yaml
    """
    from nsight_prof.orchestrator.given_kernels import given_selection
    from nsight_prof.orchestrator.program import resolve_program
    from nsight_prof.orchestrator.recipe import expand, load_recipe
    from nsight_prof.orchestrator.replay import check_reused_trace

    for file in files:
        recipe = load_recipe(file, overrides)
        variants = expand(recipe)
        for _, variant in variants:
            resolve_program(variant)
            given_selection(variant)
            check_reused_trace(variant)
        runs = "1 run" if len(variants) == 1 else f"{len(variants)} runs"
        click.echo(f"{file}: ok, {runs}")


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
