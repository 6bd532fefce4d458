import json
from pathlib import Path

import pytest

from nsight_prof.orchestrator.cli import main
from nsight_prof.orchestrator.imports.importing import import_files


def test_a_plan_is_printed_and_told_as_json(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = root / "captures" / "h200-known-gemm" / "steps" / "1-trace" / "trace.sqlite.xz"
    run = import_files([trace], tmp_path / "run").path
    assert main(["plan", str(run), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["whole_ns"] > 0
    left = data["whole_ns"]
    for step in data["steps"]:
        left -= step["saves_ns"]
        assert step["after_ns"] == pytest.approx(left)
    assert main(["plan", str(run)]) == 0
    assert "of the run" in capsys.readouterr().out
