"""Real inputs: images of a folder, a list of files, prompts, conversations, or annotated pages."""

from __future__ import annotations

import json
import random
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nsight_prof.targets.harness.options import positive, whole
from nsight_prof.targets.serving.failures import EngineFailure

IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
LISTS = (
    "a text file with a path a line, .jsonl with `prompt` and `image` or `images`, or .json: "
    "ShareGPT's conversations, or pages as OmniDocBench has them"
)
PLACES = (".", "images", "pdfs")
"""Folders of a data set of pages in which the image of a page is sought."""


@dataclass(frozen=True)
class Box:
    """A part of a page: what it is, and where in pixels (left, top, right, bottom)."""

    label: str
    sides: tuple[float, float, float, float]


@dataclass(frozen=True)
class Sample:
    """One sample: the name of its prediction, its images, what is asked of them, what is there."""

    name: str
    images: tuple[Path, ...] = ()
    prompt: str | None = None
    boxes: tuple[Box, ...] = ()


def add_dataset_arguments(parser: ArgumentParser) -> None:
    """Add the options that a recipe's `dataset` becomes."""
    add = parser.add_argument_group("data set, in place of made-up inputs").add_argument
    add("--dataset-root", type=Path, metavar="DIR", help="folder of images, or of annotated pages")
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
        found = list(_listed(filelist, root) if filelist else _under(root))
    except (OSError, ValueError) as error:
        raise EngineFailure(f"the data set cannot be read: {error}", LISTS) from error
    if not found:
        raise EngineFailure(
            f"the data set {filelist or root} holds no sample",
            f"images end in {', '.join(IMAGES)}; a list is {LISTS}",
        )
    if args.shuffle:
        random.Random(args.dataset_seed).shuffle(found)
    return found[: args.samples]


def _under(root: Path) -> Iterator[Sample]:
    """Give the pages that a JSON of a folder annotates, else all of its images."""
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is no folder")
    if rows := _annotations(root):
        yield from (_page(root, row, number) for number, row in enumerate(rows, start=1))
        return
    for path in sorted(root.rglob("*")):
        if path.suffix.lower() in IMAGES:
            yield Sample(_name(path.relative_to(root)), (path,))


def _annotations(root: Path) -> list[dict[str, Any]]:
    """Return the pages that a JSON of a folder annotates; none without one."""
    for path in sorted(root.glob("*.json")):
        rows: Any = json.loads(path.read_text("utf-8"))
        if isinstance(rows, list) and rows and _kind(rows[0]) is _page:
            return rows
    return []


def _listed(filelist: Path, root: Path | None) -> Iterator[Sample]:
    """Give the samples of a list; what the data set at `root` annotates brings its boxes."""
    base = root or filelist.parent
    rows = _annotations(root) if root else []
    boxes = {Path(row["page_info"]["image_path"]).name: _boxes(row) for row in rows}
    for sample in _of_list(filelist, base):
        name = sample.images[0].name if sample.images else ""
        yield sample if sample.boxes else replace(sample, boxes=boxes.get(name, ()))


def _of_list(filelist: Path, base: Path) -> Iterator[Sample]:
    if filelist.suffix == ".json":
        yield from _rows(filelist, base)
        return
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


def _rows(filelist: Path, base: Path) -> Iterator[Sample]:
    try:
        rows: Any = json.loads(filelist.read_text("utf-8"))
    except ValueError as error:
        raise EngineFailure(f"{filelist} is no JSON: {error}", f"a list is {LISTS}") from error
    for number, row in enumerate(rows if isinstance(rows, list) else [rows], start=1):
        kind = _kind(row)
        if kind is None:
            raise EngineFailure(f"{filelist}: entry {number} is no sample", f"a list is {LISTS}")
        yield kind(base, row, number)


def _kind(row: Any) -> Callable[[Path, dict[str, Any], int], Sample] | None:
    """Return what reads an entry of a JSON list, None for what is no sample."""
    if not isinstance(row, dict):
        return None
    if isinstance(row.get("page_info"), dict) and "image_path" in row["page_info"]:
        return _page
    return _conversation if isinstance(row.get("conversations"), list) else None


def _page(base: Path, row: dict[str, Any], number: int) -> Sample:
    """Return a page in the layout of OmniDocBench: `page_info.image_path`, `layout_dets`."""
    name = row["page_info"]["image_path"]
    return replace(_sample(base, [name], None, number), boxes=_boxes(row))


def _boxes(row: dict[str, Any]) -> tuple[Box, ...]:
    """Return the boxes of a page in the layout of OmniDocBench."""
    return tuple(
        Box(str(part.get("category_type", "")), _sides(part["poly"]))
        for part in row.get("layout_dets") or ()
        if len(part.get("poly") or ()) >= 4 and not part.get("ignore")
    )


def _sides(corners: list[float]) -> tuple[float, float, float, float]:
    """Return the box around a polygon of x, y, x, y, …."""
    across, down = corners[::2], corners[1::2]
    return min(across), min(down), max(across), max(down)


def _conversation(base: Path, row: dict[str, Any], number: int) -> Sample:
    """Return the first turn of a conversation as ShareGPT has it, with LLaVA's images."""
    said = row["conversations"]
    turns = [one for one in said if isinstance(one, dict) and one.get("from") in ("human", "user")]
    if not turns:
        raise EngineFailure(f"conversation {number} has no turn of a human", f"a list is {LISTS}")
    prompt = str(turns[0].get("value", "")).replace("<image>", "").strip()
    images = row.get("images") or ([row["image"]] if row.get("image") else [])
    return _sample(base, images, prompt, number)


def _sample(base: Path, images: list[str], prompt: str | None, number: int) -> Sample:
    paths = tuple(_image(base, image) for image in images)
    missing = next((path for path in paths if not path.is_file()), None)
    if missing is not None:
        raise FileNotFoundError(f"{missing} does not exist (sample {number})")
    return Sample(_name(Path(images[0])) if images else f"prompt-{number}", paths, prompt)


def _image(base: Path, name: str) -> Path:
    """Return where an image is: as it is named, in the folders of pages, or by its last part.

    Lists of others name files by absolute paths of their machines.
    """
    here = [base / at / part for part in (name, Path(name).name) for at in PLACES]
    return next((path for path in here if path.is_file()), base / name)


def _name(path: Path) -> str:
    """Return a path as the name of a file: a/b.png becomes a-b."""
    return "-".join(part for part in path.with_suffix("").parts if part not in ("/", "..", "."))
