"""Samples of a folder, a list of paths and JSON lines."""

import json
from argparse import ArgumentParser
from pathlib import Path

import pytest

from nsight_prof.targets.inference.dataset import (
    Box,
    add_dataset_arguments,
    read_samples,
)
from nsight_prof.targets.serving.failures import EngineFailure


def samples(*words: object) -> list[tuple[str, int, str | None]]:
    parser = ArgumentParser()
    add_dataset_arguments(parser)
    found = read_samples(parser.parse_args([str(word) for word in words]))
    return [(sample.name, len(sample.images), sample.prompt) for sample in found]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("b.png", "a/c.JPG", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_all_images_under_a_folder_are_samples(root: Path) -> None:
    assert samples("--dataset-root", root) == [("a-c", 1, None), ("b", 1, None)]
    assert samples() == []


def test_a_list_chooses_samples_and_brings_prompts(root: Path) -> None:
    (root / "two.txt").write_text("b.png\n\na/c.JPG\n")
    assert samples("--filelist", root / "two.txt") == [("b", 1, None), ("a-c", 1, None)]
    rows = [{"prompt": "Say it."}, {"prompt": "Both?", "images": ["b.png", "a/c.JPG"]}]
    (root / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = samples("--filelist", root / "q.jsonl")
    assert found == [("prompt-1", 0, "Say it."), ("b", 2, "Both?")]


def test_the_order_is_that_of_the_seed_and_samples_cut_it(root: Path) -> None:
    for number in range(9):
        (root / f"{number}.png").touch()
    every, given = ("--dataset-root", root, "--shuffle", "--dataset-seed"), 7
    assert samples(*every, given) == samples(*every, given) != samples(*every, 8)
    assert samples(*every, given, "--samples", 3) == samples(*every, given)[:3]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("none.txt", "\n", "holds no sample"),
        ("absent.txt", "z.png\n", "z.png does not exist"),
        ("bad.jsonl", "{}\n", "bad.jsonl:1 is no sample"),
    ],
)
def test_what_is_no_data_set_is_told(root: Path, name: str, text: str, told: str) -> None:
    (root / name).write_text(text)
    with pytest.raises(EngineFailure, match=told) as caught:
        samples("--filelist", root / name)
    assert caught.value.hint


def test_the_bundled_pages_are_small_and_have_prompts() -> None:
    import nsight_prof.targets.inference.dataset as module

    pages = Path(module.__file__).parent / "datasets" / "pages"
    assert sum(path.stat().st_size for path in pages.iterdir()) < 200_000
    found = samples("--filelist", pages / "prompts.jsonl")
    assert [name for name, _, _ in found] == sorted(path.stem for path in pages.glob("*.png"))


def test_conversations_give_their_first_turn(root: Path) -> None:
    said = [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "This."}]
    rows = [{"conversations": said, "image": "b.png"}, {"conversations": said[1:]}]
    (root / "chat.json").write_text(json.dumps(rows[:1]))
    assert samples("--filelist", root / "chat.json") == [("b", 1, "What?")]
    (root / "chat.json").write_text(json.dumps(rows))
    with pytest.raises(EngineFailure, match="conversation 2 has no turn of a human"):
        samples("--filelist", root / "chat.json")


def test_annotated_pages_bring_their_boxes(root: Path) -> None:
    (root / "images").mkdir()
    (root / "images" / "p.png").touch()
    part = {"category_type": "title", "poly": [10, 20, 90, 20, 90, 40, 10, 40]}
    left_out = part | {"ignore": True}
    row = {"layout_dets": [part, left_out], "page_info": {"image_path": "p.png"}}
    (root / "OmniDocBench.json").write_text(json.dumps([row]))
    parser = ArgumentParser()
    add_dataset_arguments(parser)
    (page,) = read_samples(parser.parse_args(["--dataset-root", str(root)]))
    assert page.images == (root / "images" / "p.png",)
    assert page.boxes == (Box("title", (10, 20, 90, 40)),)
    # A list of them, by the paths of another machine.
    (root / "dev.txt").write_text("/data/omnidocbench/images/p.png\n")
    words = ["--dataset-root", str(root), "--filelist", str(root / "dev.txt")]
    (chosen,) = read_samples(parser.parse_args(words))
    assert (chosen.images, chosen.boxes) == (page.images, page.boxes)


def test_a_list_that_is_none_is_told(root: Path) -> None:
    (root / "x.json").write_text('[{"prompt": 1}]')
    with pytest.raises(EngineFailure, match="entry 1 is no sample"):
        samples("--filelist", root / "x.json")
    (root / "x.json").write_text("{")
    with pytest.raises(EngineFailure, match="is no JSON"):
        samples("--filelist", root / "x.json")
