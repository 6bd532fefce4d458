"""Finds the model: a bundled configuration, a local folder, or a name on the hub."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsight_prof.targets.serving.failures import NO_MODEL, EngineFailure

CONFIGS = Path(__file__).resolve().parent / "configs"
SEEING = CONFIGS.parents[1] / "inference" / "configs"
"""Bundled configurations of models that take images or sound."""
WEIGHTS = ("auto", "dummy", "load")
WEIGHT_FILES = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True)
class Model:
    """A model that was found.

    Attributes:
        name: as it was asked for, a folder by its last part.
        path: what vLLM takes: a folder, or a hub name.
        config: the contents of config.json, None for a hub name.
        local: whether it is a folder here.
        dummy: whether its weights are made up.
    """

    name: str
    path: str
    config: dict[str, Any] | None
    local: bool
    dummy: bool

    @property
    def load_format(self) -> str:
        """The value of vLLM's load_format."""
        return "dummy" if self.dummy else "auto"


def bundled(folders: Sequence[Path] = (CONFIGS,)) -> tuple[str, ...]:
    """Return the names of the configurations that lie in `folders`."""
    return tuple(sorted(p.parent.name for folder in folders for p in folder.glob("*/config.json")))


def find_model(name: str, weights: str = "auto", folders: Sequence[Path] = (CONFIGS,)) -> Model:
    """Find a model.

    Args:
        name: a local folder, the name of a bundled configuration, or a hub name; the first that
            fits.
        weights: "auto": made up where a folder has none; "dummy": made up; "load": loaded.
        folders: where bundled configurations lie.

    Raises:
        EngineFailure: there is no such folder, it has no readable config.json, or no weights
            although they are to be loaded.
    """
    if weights not in WEIGHTS:
        raise EngineFailure(f"--weights {weights} is none of {', '.join(WEIGHTS)}", "use auto")
    folder = Path(os.path.expanduser(name) or os.devnull)  # Path("") would be this folder
    hint = f"{NO_MODEL}; bundled: {', '.join(bundled(folders))}"
    if not (folder.is_dir() and (folder / "config.json").is_file()) and name in bundled(folders):
        folder = next(at / name for at in folders if (at / name).is_dir())
    if folder.is_dir():
        return _local(folder, weights, hint)
    if name and folder.is_file():
        raise EngineFailure(f"the model {name} is a file", "name the folder that holds config.json")
    if not HUB_NAME.fullmatch(name) or Path(name).is_absolute():
        raise EngineFailure(f"there is no folder {name!r}", hint)
    return Model(name, name, None, local=False, dummy=weights == "dummy")


def vocabulary(config: dict[str, Any]) -> int | None:
    """Return the number of token ids of a configuration, None where it does not say."""
    for part in (config, config.get("text_config") or {}):
        size = part.get("vocab_size")
        if isinstance(size, int) and size > 0:
            return size
    return None


def _local(folder: Path, weights: str, hint: str) -> Model:
    path = folder.resolve()
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EngineFailure(f"the model folder {path} has no config.json", hint) from None
    except (OSError, ValueError) as error:
        raise EngineFailure(
            f"{path / 'config.json'} cannot be read: {error}",
            "it must be the configuration of a Hugging Face model, in JSON",
        ) from error
    if not isinstance(config, dict):
        raise EngineFailure(
            f"{path / 'config.json'} holds no mapping",
            "it must be the configuration of a Hugging Face model, in JSON",
        )
    has_weights = any(next(path.glob(pattern), None) for pattern in WEIGHT_FILES)
    if weights == "load" and not has_weights:
        raise EngineFailure(
            f"the model folder {path} has no weights",
            "--weights dummy makes them up: times are the same, the text means nothing",
        )
    return Model(path.name, str(path), config, True, weights == "dummy" or not has_weights)
