"""Pages with boxes drawn: those of the data set, and those that a model's answer names."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from nsight_prof.targets.inference.dataset import Box

GRID = 999
"""Coordinates of DeepSeek-OCR, over the width and the height of the page."""
# <|ref|>title<|/ref|><|det|>[[12, 34, 560, 78]]<|/det|>
GROUNDED = re.compile(r"<\|ref\|>(.*?)<\|/ref\|>\s*<\|det\|>(\[\[.*?\]\])<\|/det\|>", re.DOTALL)
# {"bbox_2d": [12, 34, 560, 78], "label": "title"}, in pixels: Qwen2.5-VL
OBJECT = re.compile(r"\{[^{}]*\"bbox_2d\"[^{}]*\}")
GIVEN, NAMED = (30, 100, 200), (210, 80, 20)


def boxes_in(text: str, size: tuple[int, int]) -> list[Box]:
    """Return the boxes that an answer names, in pixels of a page of `size` (width, height).

    As DeepSeek-OCR writes them (<|ref|> and <|det|>, of 999 parts of the page) and Qwen-VL
    ("bbox_2d" in JSON); what cannot be read is left out.
    """
    width, height = size
    found: list[Box] = []
    for label, corners in GROUNDED.findall(text):
        for box in _json(corners) or ():
            if _is_box(box):
                x0, y0, x1, y1 = box
                sides = (x0 * width, y0 * height, x1 * width, y1 * height)
                found.append(Box(label.strip(), _quadruple([side / GRID for side in sides])))
    for match in OBJECT.findall(text):
        row = _json(match)
        if isinstance(row, dict) and _is_box(row.get("bbox_2d")):
            found.append(Box(str(row.get("label", "")), _quadruple(row["bbox_2d"])))
    return found


def draw(image: Image.Image, given: Sequence[Box], named: Sequence[Box]) -> Image.Image:
    """Return a page with the boxes of the data set (blue) and of the answer (orange) on it."""
    page = image.convert("RGB")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(10)
    for boxes, colour in ((given, GIVEN), (named, NAMED)):
        for box in boxes:
            x0, y0, x1, y1 = box.sides
            pen.rectangle((min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)), outline=colour)
            pen.text((min(x0, x1) + 2, max(0, min(y0, y1) - 11)), box.label, colour, font)
    return page


def write(path: Path, image: Path, given: Sequence[Box], named: Sequence[Box]) -> None:
    """Write a page with its boxes as PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(image) as page:
        draw(page, given, named).quantize(64).save(path, optimize=True)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _is_box(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 4
        and all(isinstance(v, int | float) for v in value)
    )


def _quadruple(sides: Sequence[float]) -> tuple[float, float, float, float]:
    x0, y0, x1, y1 = sides
    return x0, y0, x1, y1
