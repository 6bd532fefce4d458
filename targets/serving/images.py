"""Images for vLLM: what it needs of a model's folder to take them, and the prompts with them.

A bundled configuration, and a folder with config.json alone, have no tokenizer and no image
processor; vLLM takes no image without. Both are made up then: the tokenizer's words are its
numbers ("t17"), besides those that the model's processor looks for.
"""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nsight_prof.targets.harness.options import image_size, whole
from nsight_prof.targets.inference.dataset import add_dataset_arguments, read_samples
from nsight_prof.targets.serving.failures import EngineFailure
from nsight_prof.targets.serving.models import Model
from nsight_prof.targets.serving.word_tokenizer import has_tokenizer, write_word_tokenizer

PROCESSOR = "preprocessor_config.json"
VIDEO_PROCESSOR = "video_preprocessor_config.json"
TOKENS_OF_IMAGE = 4096
"""Most tokens that a made-up processor makes of an image; a larger one is scaled down."""
# The words that the processors of transformers look for, by the key of their id in config.json.
WORDS = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}


@dataclass(frozen=True)
class Prepared:
    """A model that takes images.

    Attributes:
        model: its folder has an image processor.
        tokenizer: folder of the tokenizer that goes with it.
    """

    model: Model
    tokenizer: str


def add_image_arguments(parser: ArgumentParser) -> None:
    """Add the options of images, made up or of a data set."""
    group = parser.add_argument_group("images of the requests")
    add = group.add_argument
    add("--images", type=whole, default=0, metavar="N", help="of each, made up (0)")
    add("--image-size", type=image_size, default=(1024, 1024), metavar="HxW", help="(1024x1024)")
    add_dataset_arguments(parser)


def prepare_images(model: Model, folder: Path) -> Prepared:
    """Return a model that takes images, with what is missing made up in `folder`.

    Raises:
        EngineFailure: something is missing that cannot be made up.
    """
    config = model.config
    if not model.local or config is None:
        return Prepared(model, model.path)
    source = Path(model.path)
    prepared = Prepared(model, model.path)
    if not (source / PROCESSOR).is_file():
        prepared = replace(prepared, model=_with_processor(model, config, folder / "model"))
    if not has_tokenizer(source):
        write_word_tokenizer(
            config.get("text_config", {}) | config, folder / "tokenizer", _words(config)
        )
        prepared = replace(prepared, tokenizer=str(folder / "tokenizer"))
    return prepared


def image_prompt(config: Mapping[str, Any], images: int, text: Sequence[int]) -> list[int]:
    """Return the tokens of a prompt: a place for each image, which vLLM widens, then the text.

    Raises:
        EngineFailure: the configuration names no token that stands for images.
    """
    if config.get("image_token_id") is None:
        raise EngineFailure(
            "the configuration names no token that stands for images (image_token_id)",
            "a model that takes images, or --images 0 for text alone",
            "unsupported",
        )
    keys = ("vision_start_token_id", "image_token_id", "vision_end_token_id")
    place = [config[key] for key in keys if config.get(key) is not None]
    return [*place * images, *text]


def most_images(args: Namespace) -> int:
    """Return how many images the request with the most of them has.

    Raises:
        EngineFailure: the data set cannot be read.
    """
    return max((len(sample.images) for sample in read_samples(args)), default=args.images)


def images_from(args: Namespace) -> list[list[Any]]:
    """Return the images of each request, of three channels; none where none are asked for.

    Requests beyond the samples of a data set take them again from the first.

    Raises:
        EngineFailure: the data set cannot be read, or a sample has no image.
    """
    samples = read_samples(args)
    if samples:
        return [[_read(path) for path in sample.images] for sample in samples if sample.images]
    return [made_up_images(args.images, args.image_size, args.seed)] if args.images else []


def _read(path: Path) -> Any:
    from PIL import Image

    return Image.open(path).convert("RGB")


def made_up_images(count: int, size: tuple[int, int], seed: int) -> list[Any]:
    """Return images of random pixels; equal seeds give equal ones."""
    import numpy as np
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 256, (count, *size, 3), dtype=np.uint8)
    return [Image.fromarray(one) for one in pixels]


def _words(config: Mapping[str, Any]) -> dict[int, str]:
    return {config[key]: word for key, word in WORDS.items() if isinstance(config.get(key), int)}


def _with_processor(model: Model, config: Mapping[str, Any], folder: Path) -> Model:
    """Return the model from a folder of links, with an image processor of its sizes beside them."""
    vision = config.get("vision_config") or {}
    patch, merge = vision.get("patch_size", 0), vision.get("spatial_merge_size", 0)
    family = str(config.get("model_type", "")).startswith(("qwen2_vl", "qwen2_5_vl", "qwen3_vl"))
    if not (family and patch and merge):
        raise EngineFailure(
            f"the folder of the model {model.name} has no {PROCESSOR}, which only a model of the "
            "Qwen VL family gets made up",
            f"put its {PROCESSOR} and its tokenizer beside config.json",
            "unsupported",
        )
    folder.mkdir()
    for path in Path(model.path).iterdir():
        os.symlink(path, folder / path.name)
    side = patch * merge
    sizes = {
        "patch_size": patch,
        "merge_size": merge,
        "temporal_patch_size": vision.get("temporal_patch_size", 2),
        "min_pixels": 4 * side * side,
        "max_pixels": TOKENS_OF_IMAGE * side * side,
    }
    kind = {"image_processor_type": "Qwen2VLImageProcessorFast"}
    (folder / PROCESSOR).write_text(json.dumps(kind | sizes), "utf-8")
    video = "Qwen3VLVideoProcessor" if "qwen3" in config["model_type"] else "Qwen2VLVideoProcessor"
    (folder / VIDEO_PROCESSOR).write_text(
        json.dumps({"video_processor_type": video} | sizes), "utf-8"
    )
    return replace(model, path=str(folder))
