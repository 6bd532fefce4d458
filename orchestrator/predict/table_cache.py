"""Keeps what predictions read of recorded runs, tables and traces, in prof's cache folder.

To make them takes longer than to predict. Runs are not written to: a recorded one may be read-only.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from nsight_prof import parsers
from nsight_prof.orchestrator.tools.shim import cache_folder
from nsight_prof.parsers.run.directory import RunDir
from nsight_prof.parsers.whole_file import whole_file

RUNS = 64
"""Runs whose tables are kept; those that were made first go first."""
Known = Mapping[str, Any]


def cached(run: RunDir, make: Callable[[], Known | None]) -> Known | None:
    """Return what `make` returns, without making it where it was made before.

    The captures of the run must be those that its manifest names; what else tables depend on, the
    code and pandas, is in the file's name. A cache that cannot be written or read is none.
    """
    path = cache_folder(os.environ) / "predict" / f"{_key(run)}.pickle"
    # What a pickle that is not whole raises depends on where it ends.
    with suppress(OSError, EOFError, ValueError, LookupError, AttributeError, ImportError,
                  pickle.UnpicklingError):  # fmt: skip
        found: Known = pickle.loads(path.read_bytes())
        return found
    known = make()
    if known is not None:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with whole_file(path) as partial:
                partial.write_bytes(pickle.dumps(known, pickle.HIGHEST_PROTOCOL))
            files = sorted(path.parent.glob("*.pickle"), key=lambda file: file.stat().st_mtime)
            for file in files[:-RUNS]:
                file.unlink()
    return known


def _key(run: RunDir) -> str:
    """Return a digest of the manifest, which holds those of all captures, and of the code."""
    versions = f"{sys.version} {pd.__version__}".encode()
    return hashlib.sha256(_code() + versions + run.manifest_path.read_bytes()).hexdigest()


@cache
def _code() -> bytes:
    """Return a digest of what is known of the files of the readers without reading them."""
    code = hashlib.sha256()
    readers = (*Path(*parsers.__path__).rglob("*"), *Path(__file__).parent.iterdir())
    for path in sorted(readers):
        if path.suffix in (".py", ".yaml"):
            state = path.stat()
            code.update(f"{path.name} {state.st_size} {state.st_mtime_ns}".encode())
    return code.digest()
