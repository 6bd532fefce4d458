"""The gallery says of every run what its report says, whatever kind of run it is."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def gallery(root: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(
        "gallery", root / "scripts" / "gallery.py"
    )
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["gallery"] = module
    specification.loader.exec_module(module)
    return module


def make(folder: Path, name: str, pictures: tuple[str, ...] = (), **metrics: Any) -> None:
    report = folder / name / "report"
    report.mkdir(parents=True)
    facts = {"kind": "bench", "question": "How fast?", "answer": ["a", "b", "c", "d"], "bench": []}
    (report / "metrics.json").write_text(json.dumps(facts | metrics), encoding="utf-8")
    shown = "\n".join(f"![drawn]({picture}.svg)" for picture in pictures)
    (report / "report.md").write_text(f"# x\n{shown}\n", encoding="utf-8")
    manifest = {"created": "2026-01-02T03:04:05Z", "gpus": [{"name": "G1"}, {"name": "G1"}]}
    (folder / name / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def printed(gallery: ModuleType, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert gallery.main(words) == 0
    return capsys.readouterr().out


def test_runs_of_all_kinds_stand_in_the_order_given(
    gallery: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, "second", bench=[{}, {}])
    make(tmp_path, "first", kind="report", kernels=[1, 2], rest_kernels=3)
    make(tmp_path, "third", kind="sweep", variants=[1])
    text = printed(gallery, capsys, str(tmp_path), "first=example", "second", "third")
    assert "| [first](#first) | How fast? | 5 kernels | G1 (2 in the machine), 2026-01-02 |" in text
    assert "| 2 cases |" in text
    assert "| 1 variant |" in text
    assert text.index("## first") < text.index("## second") < text.index("## third")
    assert "[report](example/report.md)" in text
    assert "[report](examples/second/report.md)" in text


def test_the_first_sentences_and_one_picture_are_shown(
    gallery: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(
        tmp_path, "roofline", ("latency", "roofline-measured"), answer=["1 | 2 <b>", "b", "c", "d"]
    )
    make(tmp_path, "mine", ("time", "stalls"))
    make(tmp_path, "bare")
    text = printed(gallery, capsys, str(tmp_path), "roofline", "mine", "bare")
    assert "(examples/roofline/roofline-measured.png)" in text
    assert "(examples/mine/time.png)" in text
    assert text.count("![") == 2
    assert "1. 1 \\| 2 &lt;b&gt;" in text or "1. 1 \\| 2 \\<b\\>" in text
    assert "4. d" not in text


def test_comparisons_stand_last(
    gallery: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, "mine")
    (tmp_path / "compared").mkdir()
    page = "# x\n\n1. one\n2. two\n3. three\n4. four\n"
    (tmp_path / "compared" / "a-b.md").write_text(page, encoding="utf-8")
    text = printed(gallery, capsys, str(tmp_path), "mine", "a-b=examples/compare-a-b.md")
    _, section = text.split("## Comparisons")
    assert "[comparison](examples/compare-a-b.md)\n\n1. one\n2. two\n3. three\n" in section
    assert "four" not in section
