"""Boxes in answers, and on pages."""

import pytest
from PIL import Image

from nsight_prof.targets.inference.dataset import Box
from nsight_prof.targets.inference.visualizations import boxes_in, draw


@pytest.mark.parametrize(
    ("answer", "boxes"),
    [
        ("<|ref|>title<|/ref|><|det|>[[0, 333, 999, 666]]<|/det|> # T",
         [Box("title", (0, 100, 600, 200))]),
        ('```json [{"bbox_2d": [1, 2, 3, 4], "label": "text"}]```', [Box("text", (1, 2, 3, 4))]),
        ('<|ref|>x<|/ref|><|det|>[[1, 2]]<|/det|> {"bbox_2d": "no"} {"bbox_2d": [}', []),
    ],
)  # fmt: skip
def test_boxes_of_an_answer_are_pixels_of_the_page(answer: str, boxes: list[Box]) -> None:
    assert boxes_in(answer, (600, 300)) == boxes


def test_boxes_of_the_data_set_and_of_the_answer_differ_in_colour() -> None:
    white = Image.new("RGB", (100, 100), "white")
    page = draw(white, [Box("a", (10, 30, 40, 60))], [Box("b", (90, 95, 50, 70))])
    given, named = page.getpixel((10, 45)), page.getpixel((50, 80))
    assert (255, 255, 255) not in {given, named}
    assert given != named
    assert page.getpixel((25, 45)) == (255, 255, 255)
