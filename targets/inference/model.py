"""Makes the model: from its config.json alone, or with the weights of a folder or of the hub."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import transformers
import yaml
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PreTrainedConfig

from nsight_prof.targets.serving import models
from nsight_prof.targets.serving.failures import EngineFailure
from nsight_prof.targets.serving.models import Model, find_model

CONFIGS = (models.SEEING, models.CONFIGS)
# For a configuration that names no class of transformers; the first that knows it.
AUTO_CLASSES = (
    "AutoModelForImageTextToText",
    "AutoModelForSpeechSeq2Seq",
    "AutoModelForSeq2SeqLM",
    "AutoModelForCausalLM",
    "AutoModelForImageClassification",
    "AutoModelForSequenceClassification",
    "AutoModel",
)
# What transformers raises for a configuration that it cannot make a model of.
UNFIT = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError, ImportError),
    StrictDataclassError,
)
UNTRUSTED = (
    "the model has code of its own, which runs only where it is trusted: read it, then "
    "--trust-remote-code (in a recipe: target.args.trust_remote_code: true)"
)


@dataclass(frozen=True)
class Loaded:
    """A model that is ready to run, with where it came from."""

    found: Model
    module: Any
    trusted: bool

    @property
    def config(self) -> Any:
        """The configuration that the model was made from, overrides included."""
        return self.module.config


def load(args: Namespace) -> Loaded:
    """Make the model that the command line asks for, on its device.

    Args:
        args: model, weights, override, dtype, attention, device, seed, trust_remote_code.

    Raises:
        EngineFailure: there is no such model, its configuration does not fit, its code is not
            trusted, or it does not fit into memory.
    """
    found = find_model(args.model, args.weights, CONFIGS)
    try:
        config = configuration(found, args.override, args.trust_remote_code)
        dtype = _dtype(config, args)
        torch.manual_seed(args.seed)
        with torch.device(args.device):
            module = _make(found, config, dtype, args)
    except torch.OutOfMemoryError as error:
        raise EngineFailure(
            f"the model {found.name} does not fit into the GPU's memory: {error}",
            "fewer layers (--override), or a smaller --dtype",
            "out-of-memory",
        ) from error
    except UNFIT as error:
        hint = "--override KEY=VALUE changes a value of its config.json; its message stands above"
        untrusted = not args.trust_remote_code and "trust_remote_code" in str(error)
        raise EngineFailure(
            f"transformers {transformers.__version__} cannot make the model {found.name}: "
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            UNTRUSTED if untrusted else hint,
        ) from error
    return Loaded(found, module.eval().requires_grad_(False), args.trust_remote_code)


def configuration(found: Model, overrides: list[str], trusted: bool) -> Any:
    """Return the configuration of a model with some values changed.

    Args:
        found: the model.
        overrides: `text_config.num_hidden_layers=4`: a key of config.json and a value in YAML.
        trusted: whether code of the model's own may run.
    """
    kind = type(AutoConfig.from_pretrained(found.path, trust_remote_code=trusted))
    values, _ = PreTrainedConfig.get_config_dict(found.path)
    for text in overrides:
        key, equals, value = text.partition("=")
        inner = values
        *parents, last = key.split(".")
        for parent in parents:
            inner = inner.get(parent) if isinstance(inner, dict) else None
        if not equals or not isinstance(inner, dict):
            raise EngineFailure(
                f"--override {text} fits no key of the config.json of {found.name}",
                "KEY=VALUE; the keys above the last one stand in it: "
                f"{', '.join(k for k, v in values.items() if isinstance(v, dict)) or 'none'}",
            )
        inner[last] = yaml.safe_load(value)
    return kind.from_dict(values)


def kinds(config: Any) -> Iterator[tuple[str, Any]]:
    """Give the keys and values of a configuration, and of those inside of it."""
    for key, value in config.to_dict().items():
        yield from _flat(key, value)


def _flat(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for inner, of in value.items():
            yield from _flat(str(inner), of)
    else:
        yield key, value


def _make(found: Model, config: Any, dtype: Any, args: Namespace) -> Any:
    options = {"dtype": dtype}
    if args.attention != "auto":
        options["attn_implementation"] = args.attention
    named = [getattr(transformers, name, None) for name in config.architectures or ()]
    kind = next((one for one in named if one is not None), None)
    if kind is None or type(config).__module__.split(".")[0] != "transformers":
        kind = _auto_class(config)
        options["trust_remote_code"] = args.trust_remote_code
    if found.dummy:
        make = getattr(kind, "from_config", None) or kind._from_config
        return make(config, **options)
    return kind.from_pretrained(found.path, config=config, **options)


def _auto_class(config: Any) -> Any:
    """Return the Auto class that knows a configuration, its own code's before transformers'."""
    own = getattr(config, "auto_map", None) or {}
    for name in AUTO_CLASSES:
        kind = getattr(transformers, name)
        if name in own or (not own and type(config) in kind._model_mapping):
            return kind
    raise ValueError(f"no class for a {type(config).__name__}")


def _dtype(config: Any, args: Namespace) -> Any:
    """Return the torch dtype: as asked, else the configuration's, else the device's usual one."""
    if args.dtype != "auto":
        return getattr(torch, args.dtype)
    said = config.dtype or getattr(config.get_text_config(), "dtype", None)
    if said is None:
        return torch.bfloat16 if args.device == "cuda" else torch.float32
    return getattr(torch, said) if isinstance(said, str) else said


def special_tokens(config: Any) -> set[int]:
    """Return the token ids that a configuration gives a meaning."""
    found: set[int] = set()
    for key, value in kinds(config):
        if re.search(r"token_(id|index)$", key):
            found |= {t for t in (value if isinstance(value, list) else [value]) if t is not None}
    return found
