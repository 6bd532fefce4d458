"""Writes the made-up pages of targets/inference/datasets/pages: text, a table or a figure each.

    python scripts/make_pages.py

The same bytes each time with the same version of Pillow: the words come from a seeded generator.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

PAGES = Path(__file__).resolve().parents[1] / "targets" / "inference" / "datasets" / "pages"
SIZE, MARGIN, LINE = (620, 877), 50, 15  # A4 at 75 dots an inch
SYLLABLES = ["ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "wo"]
COUNT = 6


def words(source: random.Random, count: int) -> str:
    """Return `count` made-up words."""
    made = ("".join(source.choices(SYLLABLES, k=source.randint(1, 4))) for _ in range(count))
    return " ".join(made)


def page(number: int) -> Image.Image:
    """Return a page: heading, paragraphs, and in turns a table, a figure or two columns."""
    source = random.Random(number)
    image = Image.new("1", SIZE, 1)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(12)
    font_of_heading = ImageFont.load_default(20)
    draw.text((MARGIN, MARGIN), words(source, 3).title(), 0, font_of_heading)
    y = MARGIN + 3 * LINE
    while y < SIZE[1] - MARGIN:
        if source.random() < 0.15:
            y = block(draw, source, number, y)
        elif source.random() < 0.1:
            y += LINE
        else:
            draw.text((MARGIN, y), words(source, 12)[:76], 0, font)
            y += LINE
    return image


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
    """Write all pages, and the list of prompts that go with them."""
    PAGES.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(1, COUNT + 1):
        name = f"page-{number}.png"
        page(number).save(PAGES / name, optimize=True)
        rows.append({"prompt": "Write the page as markdown.", "image": name})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (PAGES / "prompts.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
