"""The script that makes recorded runs small, as a module."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def slim(root: Path) -> ModuleType:
    """scripts/slim_capture.py; what it puts on the path of imports is taken off again."""
    spec = importlib.util.spec_from_file_location("slim_capture", root / "scripts/slim_capture.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module
