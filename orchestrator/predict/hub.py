"""Finds the configuration of a Hugging Face model in the local cache; never asks the network.

The folders are those of huggingface_hub: models--ORG--NAME/snapshots/REVISION/config.json below
HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub; refs/main names the revision.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from nsight_prof.parsers.errors import UsageError

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
CONFIG = "config.json"


def is_hub_name(given: str) -> bool:
    """Tell whether a text that is no path here may be the name of a model on the hub."""
    return NAME.fullmatch(given) is not None and not Path(given).exists()


def cache() -> Path:
    """Return the folder of the cache, whether it is there or not."""
    if folder := os.environ.get("HF_HUB_CACHE"):
        return Path(folder).expanduser()
    cached = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    home = os.environ.get("HF_HOME") or cached / "huggingface"
    return Path(home).expanduser() / "hub"


def cached_config(name: str, bundled: Collection[str] = ()) -> Path:
    """Return the config.json of a model on the hub; of those `bundled` the hint names one.

    Raises:
        UsageError: it is not in the cache.
    """
    folder = cache() / f"models--{name.replace('/', '--')}"
    try:
        revisions = [(folder / "refs" / "main").read_text(encoding="utf-8").strip()]
    except (OSError, ValueError):
        revisions = []
    found = [folder / "snapshots" / revision / CONFIG for revision in revisions if revision]
    found += sorted(folder.glob(f"snapshots/*/{CONFIG}"))
    file = next((path for path in found if path.is_file()), None)
    if file is None:
        same = name.partition("/")[2].lower()
        instead = f"the bundled {same}" if same in bundled else "its folder, or a bundled name"
        raise UsageError(
            f"{name} is not in the cache of Hugging Face, {cache()}",
            f"huggingface-cli download {name} {CONFIG} puts it there; or give a {CONFIG}, "
            f"{instead}",
        )
    return file
