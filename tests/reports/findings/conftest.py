"""Real exports of others as runs."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.run.run import Run


@pytest.fixture(scope="session")
def imported(real_exports: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Opens a real export of others as a run."""

    def read(path: str) -> Run:
        out = tmp_path_factory.mktemp("imported") / "run"
        assert main(["import", str(real_exports / path), "--out", str(out), "--quiet"]) == 0
        return load_run(out)

    return cache(read)
