"""A recorded trace with answers of a model beside it."""

import json
import shutil
from pathlib import Path

from nsight_prof.parsers.build.load import load_run
from nsight_prof.reports.engine.predictions import section
from nsight_prof.reports.page.writer import InMarkdown, Writer


def test_answers_lead_to_their_files(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(root / "captures" / "h200-known-gemm", folder)
    step = folder / "steps/1-trace"
    for part in ("predictions", "visualizations"):
        (step / part).mkdir()
    said = {"request": "a b", "tokens": [1, 2], "text": "x" * 500, "boxes": []}
    (step / "predictions/a b.json").write_text(json.dumps(said))
    (step / "predictions/cat.json").write_text(json.dumps({"classes": {"cat": 0.9, "dog": 0.1}}))
    (step / "visualizations/a b.png").touch()
    run = load_run(folder)
    assert list(run.predictions["answer"]) == ["x" * 200, "cat"]
    shown = section(run)
    assert shown is not None
    (table,) = shown.tables
    writer = Writer(markup=InMarkdown())
    first, second = ([writer.value(cell) for cell in row] for row in table.cells)
    assert first[0] == "[`a b`](../steps/1-trace/predictions/a%20b.json)"
    assert first[4] == "[`a b.png`](../steps/1-trace/visualizations/a%20b.png)"
    assert second[4] == "–"


def test_an_answer_that_is_broken_is_told(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(root / "captures" / "h200-known-gemm", folder)
    (folder / "steps/1-trace/predictions").mkdir()
    (folder / "steps/1-trace/predictions/p.json").write_text("[")
    run = load_run(folder)
    assert section(run) is None
    told = run.gaps[run.gaps["table"] == "predictions"]["reason"]
    assert told.str.contains("p.json cannot be read").all()
    assert len(told) == 1
