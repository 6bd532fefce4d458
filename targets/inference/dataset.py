"""Real inputs: images of a folder, a list of files, or prompts in JSON lines."""

from __future__ import annotations

import json
import random
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsight_prof.targets.harness.options import positive, whole
from nsight_prof.targets.serving.failures import EngineFailure

IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
LISTS = "a text file with a path a line, or .jsonl with `prompt` and `image` or `images`"


@dataclass(frozen=True)
class Sample:
    """One sample: the name of its prediction, its images and what is asked of them."""

    name: str
    images: tuple[Path, ...] = ()
    prompt: str | None = None


def add_dataset_arguments(parser: ArgumentParser) -> None:
    """Add the options that a recipe's `dataset` becomes."""
    add = parser.add_argument_group("data set, in place of made-up inputs").add_argument
    add("--dataset-root", type=Path, metavar="DIR", help="folder of images")
    add("--filelist", type=Path, metavar="FILE", help=LISTS)
    add("--samples", type=positive, metavar="N", help="how many, from the first (all)")
    add("--epochs", type=positive, default=1, metavar="N", help="how often all of them (1)")
    add("--shuffle", action="store_true", help="in a random order")
    add("--dataset-seed", type=whole, default=0, metavar="N", help="of the order (0)")


def read_samples(args: Namespace) -> list[Sample]:
    """Return the samples of an epoch that the command line asks for; none without a data set.

    Raises:
        EngineFailure: the folder or the list cannot be read or holds nothing.
    """
    root, filelist = args.dataset_root, args.filelist
    if root is None and filelist is None:
        return []
    try:
        found = list(_listed(filelist, root) if filelist else _images_under(root))
    except (OSError, UnicodeDecodeError) as error:
        raise EngineFailure(f"the data set cannot be read: {error}", LISTS) from error
    if not found:
        raise EngineFailure(
            f"the data set {filelist or root} holds no sample",
            f"images end in {', '.join(IMAGES)}; a list is {LISTS}",
        )
    if args.shuffle:
        random.Random(args.dataset_seed).shuffle(found)
    return found[: args.samples]


def _images_under(root: Path) -> Iterator[Sample]:
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is no folder")
    for path in sorted(root.rglob("*")):
        if path.suffix.lower() in IMAGES:
            yield Sample(_name(path.relative_to(root)), (path,))


def _listed(filelist: Path, root: Path | None) -> Iterator[Sample]:
    base = root or filelist.parent
    for number, line in enumerate(filelist.read_text("utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        if filelist.suffix != ".jsonl":
            yield _sample(base, [line.strip()], None, number)
            continue
        try:
            row: Any = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not {"prompt", "image", "images"} & row.keys():
            raise EngineFailure(f"{filelist}:{number} is no sample", f"a list is {LISTS}")
        images = row.get("images") or ([row["image"]] if row.get("image") else [])
        yield _sample(base, images, row.get("prompt"), number)


def _sample(base: Path, images: list[str], prompt: str | None, number: int) -> Sample:
    paths = tuple(base / image for image in images)
    missing = next((path for path in paths if not path.is_file()), None)
    if missing is not None:
        raise FileNotFoundError(f"{missing} does not exist (sample {number})")
    return Sample(_name(Path(images[0])) if images else f"prompt-{number}", paths, prompt)


def _name(path: Path) -> str:
    """Return a path as the name of a file: a/b.png becomes a-b."""
    return "-".join(part for part in path.with_suffix("").parts if part not in ("/", "..", "."))
