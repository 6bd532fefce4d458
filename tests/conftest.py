"""Shared fixtures: the folder of real Nsight exports, and our own recorded captures."""

import hashlib
import json
import os
import tarfile
import tempfile
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of material beside the checkout; tests that need it are skipped without it."""
    folder = Path(os.environ.get("PROF_SHARED", ROOT.parent / "shared"))
    if not (folder / "data" / "real-exports.tar.xz").is_file():
        pytest.skip(f"no real exports: {folder}/data/real-exports.tar.xz is absent")
    return folder


@pytest.fixture(scope="session")
def nsight() -> Path:
    """Folder of a real nsys and ncu, which a machine without a GPU can have too."""
    named = os.environ.get("PROF_NSIGHT")
    if not named:
        pytest.skip("no Nsight tools: name the folder of nsys and ncu in PROF_NSIGHT")
    return Path(named)


@pytest.fixture(scope="session")
def real_exports(shared: Path) -> Path:
    """Folder of unpacked real exports of many tool versions (read only), cached by content."""
    archive = shared / "data" / "real-exports.tar.xz"
    key = hashlib.sha256(f"{archive.stat().st_size} {archive.stat().st_mtime_ns}".encode())
    cache = Path(tempfile.gettempdir()) / f"prof-real-exports-{key.hexdigest()[:12]}"
    if not cache.is_dir():
        with tempfile.TemporaryDirectory(dir=cache.parent) as partial:
            with tarfile.open(archive) as tar:
                tar.extractall(partial, filter="data")
            try:
                os.rename(partial, cache)
            except OSError:
                if not cache.is_dir():
                    raise
            Path(partial).mkdir(exist_ok=True)
    return cache


@pytest.fixture(scope="session")
def bench_schema() -> Draft202012Validator:
    """Validator of the records of benchmark targets: `bench_schema.validate(record)`."""
    schema = json.loads((ROOT / "parsers" / "bench.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)
