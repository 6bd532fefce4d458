"""`prof init`: writes a recipe for a program."""

from __future__ import annotations

from pathlib import Path

import click

from nsight_prof.orchestrator.terminal.say import say


@click.command("init", context_settings={"ignore_unknown_options": True})
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Recipe to write. Default: the program's name with .yaml.",
)
@click.option("--force", is_flag=True, help="Replace a recipe that exists.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def command(program: tuple[str, ...], out: Path | None, force: bool) -> None:
    """Write a recipe for a program.

    With its arguments, to be changed and run. Of a Python file the source says whether it uses
    torch, calls the CUDA profiler API, and which NVTX ranges it has. Nothing is started.

    \b
    Examples:
      prof init train.py --batch 8
      prof init --out mine.yaml ./my_app 4096
    """
    from nsight_prof.orchestrator.recipe.read import load_recipe
    from nsight_prof.orchestrator.recipe.starting import first_recipe, program_of
    from nsight_prof.parsers.errors import UsageError
    from nsight_prof.parsers.whole_file import write_atomic

    if program[0].startswith("-"):
        raise UsageError(f"{program[0]} is no program", "prof init --out FILE PROGRAM [ARGUMENTS]")
    first = program_of(program)
    if first.is_dir():
        raise UsageError(f"{first} is a folder", "give the path of the program")
    if first.suffix == ".py" and not first.is_file():
        raise UsageError(f"there is no file {first}", "give the path of the program")
    path = out or Path(f"{first.stem}.yaml")
    if path.exists() and not force:
        raise UsageError(f"{path} exists", "another --out, or --force replaces it")
    write_atomic(path, first_recipe(program))
    load_recipe(path)
    say(f"{path}: change it, then: prof run {path}")
