"""Writes the made-up pages of targets/inference/datasets/pages: text, a table or a figure each.

    python scripts/make_pages.py

The same bytes each time with the same version of Pillow: the words come from a seeded generator.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

PAGES = Path(__file__).resolve().parents[1] / "targets" / "inference" / "datasets" / "pages"
SIZE, MARGIN, LINE = (620, 877), 50, 15  # A4 at 75 dots an inch
SYLLABLES = ["ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "wo"]
COUNT = 6


def words(source: random.Random, count: int) -> str:
    """Return `count` made-up words."""
    made = ("".join(source.choices(SYLLABLES, k=source.randint(1, 4))) for _ in range(count))
    return " ".join(made)


def page(number: int) -> tuple[Image.Image, list[dict[str, Any]]]:
    """Return a page, heading, paragraphs, tables or figures, with its parts as OmniDocBench's."""
    source = random.Random(number)
    image = Image.new("1", SIZE, 1)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(12)
    font_of_heading = ImageFont.load_default(20)
    heading = words(source, 3).title()
    draw.text((MARGIN, MARGIN), heading, 0, font_of_heading)
    parts = [part("title", draw.textbbox((MARGIN, MARGIN), heading, font_of_heading), heading)]
    y = MARGIN + 3 * LINE
    goes_on = False  # the paragraph of the line above
    while y < SIZE[1] - MARGIN:
        if source.random() < 0.15:
            end = block(draw, source, number, y)
            if end > y + LINE:
                sides = (MARGIN, y, SIZE[0] - MARGIN, end - LINE)
                parts.append(part("table" if number % 2 else "figure", sides))
            y, goes_on = end, False
        elif source.random() < 0.1:
            y, goes_on = y + LINE, False
        else:
            line = words(source, 12)[:76]
            draw.text((MARGIN, y), line, 0, font)
            box = draw.textbbox((MARGIN, y), line, font)
            if goes_on:
                parts[-1] = joined(parts[-1], box, line)
            else:
                parts.append(part("text_block", box, line))
            y, goes_on = y + LINE, True
    return image, [row | {"order": order} for order, row in enumerate(parts)]


def part(category: str, sides: Sequence[float], text: str = "") -> dict[str, Any]:
    """Return a part of a page: its kind, its four corners clockwise, and its text."""
    x0, y0, x1, y1 = (round(side) for side in sides)
    row = {"category_type": category, "poly": [x0, y0, x1, y0, x1, y1, x0, y1], "ignore": False}
    return row | ({"text": text} if text else {})


def joined(row: dict[str, Any], sides: Sequence[float], line: str) -> dict[str, Any]:
    """Return a paragraph with one more line."""
    x0, y0, x1, _, _, y1, *_ = row["poly"]
    around = (min(x0, sides[0]), y0, max(x1, sides[2]), max(y1, sides[3]))
    return part(row["category_type"], around, f"{row['text']} {line}")


def block(draw: ImageDraw.ImageDraw, source: random.Random, number: int, y: int) -> int:
    """Draw a table or a figure at `y`; return where the text goes on."""
    height = 6 * LINE
    if y + height > SIZE[1] - MARGIN:
        return y + LINE
    right = SIZE[0] - MARGIN
    draw.rectangle((MARGIN, y, right, y + height - LINE), outline=0)
    if number % 2:
        for row in range(1, 5):
            draw.line((MARGIN, y + row * LINE, right, y + row * LINE), 0)
        for column in range(1, 4):
            x = MARGIN + column * (right - MARGIN) // 4
            draw.line((x, y, x, y + height - LINE), 0)
    else:
        points = [(x, y + source.randint(5, height - LINE - 5)) for x in range(MARGIN, right, 40)]
        draw.line(points, 0)
    return y + height


def main() -> None:
    """Write all pages, the list of prompts that go with them, and what is on them."""
    PAGES.mkdir(parents=True, exist_ok=True)
    rows, pages = [], []
    for number in range(1, COUNT + 1):
        name = f"page-{number}.png"
        image, parts = page(number)
        image.save(PAGES / name, optimize=True)
        info = {"page_no": number, "width": SIZE[0], "height": SIZE[1], "image_path": name}
        pages.append({"layout_dets": parts, "page_info": info, "extra": {}})
        rows.append({"prompt": "Write the page as markdown.", "image": name})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (PAGES / "prompts.jsonl").write_text(text, encoding="utf-8")
    (PAGES / "pages.json").write_text(json.dumps(pages) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
