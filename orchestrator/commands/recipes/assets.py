"""`prof assets`: the model and the data that a recipe needs, and where they were sought."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nsight_prof.orchestrator.commands import shared_options
from nsight_prof.orchestrator.terminal import completion
from nsight_prof.orchestrator.terminal.say import say
from nsight_prof.parsers.errors import ProfError, UsageError

if TYPE_CHECKING:
    from nsight_prof.orchestrator.recipe.schema import Recipe

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".zip")


@dataclass(frozen=True)
class Asset:
    """What a recipe needs: `path` is "" where it is missing, `sought` the places in their order."""

    kind: str
    name: str
    path: str
    sought: tuple[str, ...]


@click.command("assets")
@click.argument("recipe", shell_complete=completion.recipes)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    help="Link what is found into this folder, and unpack archives there.",
)
@shared_options.as_json
def command(recipe: str, overrides: tuple[str, ...], into: Path | None, as_json: bool) -> None:
    """Say which model and data a recipe needs, and where they are.

    A model is a folder, a bundled configuration, a folder below HF_SNAPSHOTS_ROOT, or one of the
    cache of Hugging Face (HF_HUB_CACHE, HF_HOME). Data sets are sought beside the recipe, in
    DATASETS_ROOT, among the bundled ones and in the current folder, as folders and as archives.
    Nothing is downloaded. Exit code 3 where something is missing.

    \b
    Examples:
      prof assets ocr-pages
      prof assets ocr-pages --set dataset.root=OmniDocBench --into assets
      prof assets mine.yaml --json | jq '.[] | select(.path == "")'
    """
    from nsight_prof.orchestrator.recipe.read import load_recipe

    found = list(assets(load_recipe(recipe, overrides)))
    if into is not None:
        found = [_placed(asset, into) for asset in found]
    if as_json:
        shared_options.say_json([asdict(asset) for asset in found])
    else:
        for asset in found:
            say(f"{asset.kind} {asset.name}: {asset.path or 'missing'}")
            if not asset.path:
                say(f"  sought: {', '.join(asset.sought)}")
        if not found:
            say("the recipe names no model and no data set")
    if not all(asset.path for asset in found):
        raise click.exceptions.Exit(3)


def assets(recipe: Recipe) -> Iterator[Asset]:
    """Give the model and the data of a recipe; an archive counts as found."""
    from nsight_prof.orchestrator.plan.program import data_places

    model = recipe.target.args.get("model")
    if isinstance(model, str) and recipe.target.url is None:
        yield _model(model)
    data = {} if recipe.dataset is None else recipe.dataset.model_dump()
    for key in ("root", "filelist"):
        name = data.get(key)
        if name is not None:
            places = data_places(recipe)
            wanted = [folder / os.path.expanduser(name) for folder in places]
            packed = [Path(f"{path}{ending}") for path in wanted for ending in ARCHIVES]
            path = next((path for path in (*wanted, *packed) if path.exists()), None)
            yield Asset(
                f"dataset.{key}", name, str(path or ""), tuple(dict.fromkeys(map(str, places)))
            )


def _model(name: str) -> Asset:
    from nsight_prof.orchestrator.plan.program import BUNDLED_TARGETS
    from nsight_prof.orchestrator.predict.hub import cache, cached_config

    snapshots = os.environ.get("HF_SNAPSHOTS_ROOT")
    bundled = sorted(BUNDLED_TARGETS.glob("*/configs"))
    places = [Path.cwd(), *bundled, *([Path(snapshots)] if snapshots else [])]
    folders = [folder / os.path.expanduser(tail) for folder in places
               for tail in dict.fromkeys((name, name.rpartition("/")[2]))]  # fmt: skip
    path = next((folder for folder in folders if (folder / "config.json").is_file()), None)
    if path is None and "/" in name:
        try:
            path = cached_config(name).parent
        except ProfError:
            path = None
    return Asset("model", name, str(path or ""), (*map(str, places), str(cache())))


def _placed(asset: Asset, into: Path) -> Asset:
    """Link what was found into a folder, or unpack it there; return where it is now.

    Raises:
        UsageError: something of its name is there already, or the archive cannot be unpacked.
    """
    if not asset.path:
        return asset
    source = Path(asset.path)
    suffix = next((ending for ending in ARCHIVES if source.name.endswith(ending)), "")
    folder = into / ("models" if asset.kind == "model" else "datasets")
    target = folder / source.name.removesuffix(suffix)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if not suffix:
            target.symlink_to(source.resolve(), target_is_directory=source.is_dir())
        else:
            # Members that lead out of the folder are refused (PEP 706); zipfile removes "..".
            if suffix != ".zip" and not hasattr(tarfile, "data_filter"):
                raise UsageError(
                    f"{source} is not unpacked: this Python has no safe way to",
                    "use Python 3.11.4 or later, or unpack it yourself",
                )
            target.mkdir()
            if suffix == ".zip":
                shutil.unpack_archive(source, target)
            else:
                shutil.unpack_archive(source, target, filter="data")
            _lift(target)
    except FileExistsError as error:
        raise UsageError(
            f"{target} is there already", "remove it, or give another --into"
        ) from error
    except (OSError, ValueError, EOFError, shutil.ReadError) as error:
        raise UsageError(f"{source} cannot be unpacked: {error}", "get it again") from error
    return Asset(asset.kind, asset.name, str(target), asset.sought)


def _lift(folder: Path) -> None:
    """Leave out the folder of its own name that an archive may begin with."""
    inner = folder / folder.name
    if list(folder.iterdir()) == [inner] and inner.is_dir():
        aside = folder.with_name(f"{folder.name}.partial")
        inner.rename(aside)
        folder.rmdir()
        aside.rename(folder)
