"""Reads the YAML files that lie beside the code."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml

# LibYAML reads the same ten times as fast; PyYAML is built without it on some platforms. Recipes
# of users are not read with it: only the slow reader can quote the line that is wrong.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def packaged_yaml(package: str, name: str) -> Any:
    """Return the data of file `name` of `package`, anew in each call."""
    text = resources.files(package).joinpath(name).read_text(encoding="utf-8")
    return yaml.load(text, _Loader)
