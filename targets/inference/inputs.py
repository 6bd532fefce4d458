"""What a model is given: images, sound and text, made up where there is nothing real."""

from __future__ import annotations

import inspect
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import AutoFeatureExtractor, AutoImageProcessor, AutoTokenizer
from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING

from nsight_prof.targets.inference.dataset import Box, Sample
from nsight_prof.targets.inference.model import Loaded, kinds, special_tokens
from nsight_prof.targets.serving.failures import EngineFailure
from nsight_prof.targets.serving.word_tokenizer import has_tokenizer

IMAGES = ("pixel_values",)
SOUNDS = ("input_features", "input_values")
BYTES_A_TOKEN = 4
"""Of a prompt without a tokenizer: its length alone counts, as of English text."""


@dataclass(frozen=True)
class Request:
    """One request of a batch.

    Attributes:
        name: what it is called in its prediction.
        images: PIL images, or files, which preprocessing opens.
        sound: mono samples from -1 to 1, None without.
        tokens: ids of its text, with those that stand for images.
        boxes: that the data set names in its first image.
    """

    name: str
    images: tuple[Any, ...] = ()
    sound: Any = None
    tokens: tuple[int, ...] = field(default=(), repr=False)
    boxes: tuple[Box, ...] = ()


class Inputs:
    """Makes the tensors of a batch for a model.

    Attributes:
        tokenizer: of the model's folder, None where it has none.
        prompt_tokens: of the text of each request that is made up; at most what an encoder takes.
    """

    def __init__(self, loaded: Loaded, args: Namespace) -> None:
        model = loaded.module
        self._model, self._config = model, loaded.config
        self._names = inspect.signature(model.forward).parameters
        self._device, self._dtype = args.device, model.dtype
        self._vectors: dict[tuple[int, int], int] = {}
        self._random = np.random.default_rng(args.seed)
        self._args = args
        source = (loaded.found.path, loaded.trusted)
        sees = model.main_input_name in IMAGES or hasattr(model, "get_image_features")
        hears = model.main_input_name in SOUNDS
        # transformers 5 makes an empty tokenizer of a folder that has none.
        has_one = not loaded.found.local or has_tokenizer(Path(loaded.found.path))
        self.tokenizer = _from_folder(AutoTokenizer, source) if has_one else None
        given = args.dataset_root is not None or args.filelist is not None
        self._images = args.images or int(given or model.main_input_name in IMAGES)
        self._processor: Any = None
        if sees and self._images:
            self._processor = self._image_processor(source)
        self._extractor = self._feature_extractor(source) if hears else None
        self._reads = not hears and model.main_input_name not in IMAGES
        # A model that encodes images and text apart (CLIP) has no tokens that stand for images.
        self._mixed = self._processor is not None and not hasattr(model, "get_text_features")
        self._longest = None if model.can_generate() else _positions(loaded.config)
        self.prompt_tokens = len(range(args.prompt_tokens)[: self._longest])

    def made_up(self, count: int) -> list[Request]:
        """Return requests of the sizes that the command line asks for, of random content."""
        return [self._made_up(f"made-up-{number}") for number in range(1, count + 1)]

    def real(self, samples: Sequence[Sample]) -> list[Request]:
        """Return the requests of a data set.

        Raises:
            EngineFailure: the model takes no such data.
        """
        return [self._real(sample) for sample in samples]

    def batch(self, requests: Sequence[Request]) -> dict[str, Any]:
        """Return what the model's forward takes for a batch, on its device."""
        found: dict[str, Any] = {}
        images = [_opened(image) for request in requests for image in request.images]
        if images:
            found |= self._processor(images=images, return_tensors="pt")
        if self._extractor is not None:
            found |= self._extractor(
                [request.sound for request in requests],
                sampling_rate=self._extractor.sampling_rate,
                return_tensors="pt",
            )
        if self._reads:
            found |= self._text([request.tokens for request in requests])
        return {name: self._placed(value) for name, value in found.items() if name in self._names}

    def _made_up(self, name: str) -> Request:
        images: tuple[Any, ...] = ()
        if self._processor is not None:
            height, width = self._args.image_size
            shape = (self._images, height, width, 3)
            images = tuple(
                Image.fromarray(pixels)
                for pixels in self._random.integers(0, 256, shape, dtype=np.uint8)
            )
        sound = None
        if self._extractor is not None:
            samples = round(self._args.audio_seconds * self._extractor.sampling_rate)
            sound = self._random.uniform(-1, 1, samples).astype(np.float32)
        text = self._prompt(None) if self._reads else []
        return Request(name, images, sound, (*self._image_tokens(images), *text))

    def _real(self, sample: Sample) -> Request:
        if self._extractor is not None or (self._processor is None and not self._reads):
            raise EngineFailure(
                "a data set holds images or prompts, and the model takes sound",
                "leave the data set out: sound is made up (--audio-seconds)",
                "unsupported",
            )
        images = sample.images if self._processor is not None else ()
        if not images and not self._reads:
            raise EngineFailure(f"{sample.name} has no image", "the model takes nothing else")
        tokens = [*self._image_tokens(images), *self._prompt(sample.prompt)] if self._reads else ()
        return Request(sample.name, images, None, tuple(tokens), sample.boxes)

    def _prompt(self, prompt: str | None) -> list[int]:
        if prompt is None:
            return self._random_text(self.prompt_tokens)
        if self.tokenizer is None:
            return self._random_text(-(-len(prompt.encode()) // BYTES_A_TOKEN))[: self._longest]
        return list(self.tokenizer(prompt)["input_ids"])[: self._longest]

    def _random_text(self, count: int) -> list[int]:
        special = special_tokens(self._config)
        size = self._config.get_text_config().vocab_size
        allowed = np.setdiff1d(np.arange(size), list(special))
        return [int(t) for t in self._random.choice(allowed, count)]

    def _image_tokens(self, images: Sequence[Any]) -> list[int]:
        """Return the tokens that stand for images in the text."""
        if not (self._reads and self._mixed):
            return []
        of = dict(kinds(self._config))
        begin, end = (of.get(f"vision_{side}_token_id") for side in ("start", "end"))
        found: list[int | None] = []
        for image in images:
            found += [begin, *[_image_token(of)] * self._image_vectors(image), end]
        return [token for token in found if token is not None]

    def _image_vectors(self, image: Any) -> int:
        """Return how many vectors the model makes of an image: its size alone decides."""
        image = _opened(image)
        if image.size not in self._vectors:
            takes = inspect.signature(self._model.get_image_features).parameters
            given = self._processor(images=[image], return_tensors="pt")
            placed = {name: self._placed(value) for name, value in given.items() if name in takes}
            with torch.inference_mode():
                made = self._model.get_image_features(**placed)
            found = getattr(made, "pooler_output", made)
            parts = found if isinstance(found, list | tuple) else [found]
            self._vectors[image.size] = sum(part.numel() // part.shape[-1] for part in parts)
        return self._vectors[image.size]

    def _text(self, texts: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Return the ids of texts of one length, padded at their beginning, with the mask."""
        longest = max(map(len, texts))
        ids = torch.tensor([[0] * (longest - len(text)) + list(text) for text in texts])
        mask = torch.tensor([[0] * (longest - len(text)) + [1] * len(text) for text in texts])
        found = {"input_ids": ids, "attention_mask": mask}
        if self._mixed:
            token = _image_token(dict(kinds(self._config)))
            found["mm_token_type_ids"] = (ids == token).int()
        return found

    def _placed(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        floats = value.is_floating_point()
        return value.to(self._device, self._dtype if floats else None, non_blocking=True)

    def _image_processor(self, source: tuple[str, bool]) -> Any:
        """Return the folder's image processor, else the model's with the configuration's sizes."""
        found = _from_folder(AutoImageProcessor, source)
        if found is not None:
            return found
        try:
            backends = IMAGE_PROCESSOR_MAPPING[type(self._config)]
        except KeyError:
            raise EngineFailure(
                f"transformers has no image processor for a {type(self._config).__name__}, and "
                "the model's folder has none",
                "put its preprocessor_config.json into the folder, or --images 0",
                "unsupported",
            ) from None
        kind = _usable(backends if isinstance(backends, dict) else {"": backends})
        vision = getattr(self._config, "vision_config", self._config)
        return kind(**_sizes(kind, vision))

    def _feature_extractor(self, source: tuple[str, bool]) -> Any:
        found = _from_folder(AutoFeatureExtractor, source)
        if found is not None:
            return found
        bins = getattr(self._config, "num_mel_bins", None)
        kind = FEATURE_EXTRACTOR_MAPPING[type(self._config)]
        return kind() if bins is None else kind(feature_size=bins)


def _opened(image: Any) -> Any:
    """Return an image of three channels; a file is read."""
    return Image.open(image).convert("RGB") if isinstance(image, Path) else image


def _image_token(of: Mapping[str, Any]) -> int:
    """Return the token that stands for a vector of an image."""
    token = of.get("image_token_id", of.get("image_token_index"))
    if token is None:
        raise EngineFailure(
            "the configuration names no token that stands for images (image_token_id)",
            "--override image_token_id=N, or --images 0 for text alone",
            "unsupported",
        )
    return int(token)


def _usable(backends: Mapping[str, Any]) -> Any:
    """Return the class of the first back end whose libraries are there, torchvision's first."""
    import transformers

    kinds = [
        getattr(transformers, one, None) if isinstance(one, str) else one
        for _, one in sorted(backends.items(), reverse=True)
    ]
    return next(one for one in kinds if one is not None and not getattr(one, "is_dummy", False))


def _sizes(kind: Any, vision: Any) -> dict[str, Any]:
    """Return the sizes of an image processor that the configuration of a vision encoder gives."""
    known = {
        "patch_size": getattr(vision, "patch_size", None),
        "merge_size": getattr(vision, "spatial_merge_size", None),
        "temporal_patch_size": getattr(vision, "temporal_patch_size", None),
    }
    found = {name: size for name, size in known.items() if size and hasattr(kind, name)}
    side = getattr(vision, "image_size", None)
    height, width = side if isinstance(side, list | tuple) else (side, side)
    for name in ("size", "crop_size") if height and width else ():
        keys = set(getattr(kind, name, None) or ())
        if keys == {"height", "width"}:
            found[name] = {"height": height, "width": width}
        elif keys == {"shortest_edge"} and getattr(kind, "crop_size", None):
            found[name] = {"shortest_edge": max(height, width)}  # before its middle is cut out
    return found


def _positions(config: Any) -> int | None:
    """Return how many tokens an encoder has positions for, None where it does not say."""
    return getattr(config.get_text_config(), "max_position_embeddings", None)


def _from_folder(auto: Any, source: tuple[str, bool]) -> Any:
    """Return what an Auto class finds in the model's folder, None where it has none."""
    path, trusted = source
    try:
        return auto.from_pretrained(path, trust_remote_code=trusted)
    except (OSError, ValueError, KeyError, TypeError, ImportError):
        return None
