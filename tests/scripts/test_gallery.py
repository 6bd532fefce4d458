"""The gallery says of every run what its report says, and docs/ shows no links that are lost."""

import json
from pathlib import Path
from typing import Any

import pytest

from scripts import gallery
from scripts.gallery import Entry


def make(folder: Path, name: str, pictures: tuple[str, ...] = (), **metrics: Any) -> Entry:
    report = folder / name / "report"
    report.mkdir(parents=True)
    facts = {"kind": "bench", "question": "How fast?", "answer": ["a", "b", "c", "d"], "bench": []}
    (report / "metrics.json").write_text(json.dumps(facts | metrics), encoding="utf-8")
    shown = "\n".join(f"![drawn]({picture}.svg)" for picture in pictures)
    (report / "report.md").write_text(f"# x\n\n[more](details.md#x)\n\n{shown}\n", encoding="utf-8")
    (report / "stakeholder_summary.md").write_text("# half\n", encoding="utf-8")
    for picture in pictures:
        (report / f"{picture}.svg").write_text("<svg/>", encoding="utf-8")
    manifest = {"created": "2026-01-02T03:04:05Z", "gpus": [{"name": "G1"}, {"name": "G1"}]}
    (folder / name / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return Entry(name, report)


def test_runs_of_all_kinds_stand_in_the_order_given(tmp_path: Path) -> None:
    entries = [
        make(tmp_path, "first", kind="report", kernels=[1, 2], rest_kernels=3),
        make(tmp_path, "second", bench=[{}, {}]),
        make(tmp_path, "third", kind="sweep", variants=[1]),
    ]
    text = gallery.render_page(entries, [], tmp_path)
    assert "| [first](#first) | How fast? | 5 kernels | G1 (2 in the machine), 2026-01-02 |" in text
    assert "| 2 cases |" in text
    assert "| 1 variant |" in text
    assert text.index("## first") < text.index("## second") < text.index("## third")
    assert "[report](second/report/report.md)" in text
    assert "Comparisons" not in text


def test_the_first_sentences_and_one_picture_are_shown(tmp_path: Path) -> None:
    entries = [
        make(tmp_path, "roofline", ("latency", "roofline-measured"), answer=["1 | 2 <b>", "b"]),
        make(tmp_path, "mine", ("time", "stalls")),
        make(tmp_path, "bare"),
    ]
    text = gallery.render_page(entries, [], tmp_path)
    assert "![roofline](roofline/report/roofline-measured.svg)" in text
    assert "![mine](mine/report/time.svg)" in text
    assert text.count("![") == 2
    assert "1. 1 \\| 2 &lt;b&gt;" in text or "1. 1 \\| 2 \\<b\\>" in text
    assert "4. d" not in text


def test_comparisons_stand_last(tmp_path: Path) -> None:
    entry = make(tmp_path, "mine")
    page = tmp_path / "compared" / "a-b.md"
    page.parent.mkdir()
    page.write_text("# x\n\n1. one\n2. two\n3. three\n4. four\n", encoding="utf-8")
    _, section = gallery.render_page([entry], [page], tmp_path).split("## Comparisons")
    assert "[comparison](compared/a-b.md)\n\n1. one\n2. two\n3. three\n" in section
    assert "four" not in section


@pytest.fixture
def entries(tmp_path: Path) -> list[Entry]:
    """A gallery of the example, with more pictures than docs/ takes, and a run that has one."""
    pictures = ("time", "tree", "stalls", "occupancy", "roofline-tensor")
    return [
        make(tmp_path, gallery.EXAMPLE, pictures, kind="report", kernels=[1], rest_kernels=0),
        make(tmp_path, "roofline", ("latency", "roofline-measured")),
        make(tmp_path, "mine", ("time",)),
    ]


def test_docs_show_one_report_with_few_pictures_and_no_link_to_what_is_not_there(
    entries: list[Entry],
) -> None:
    texts, pictures = gallery.docs_texts(entries, []), gallery.docs_pictures(entries)
    kept = ["roofline-tensor.svg", "time.svg", "tree.svg", "stalls.svg"]
    assert sorted(pictures) == sorted(
        ["pictures/roofline-roofline-measured.svg", *(f"example/{name}" for name in kept)]
    )
    report = texts["example/report.md"]
    assert "occupancy" not in report
    assert "\nmore\n" in report
    page = texts["gallery.md"]
    assert "[report](example/report.md)" in page
    assert "![roofline](pictures/roofline-roofline-measured.svg)" in page
    assert page.count("](") == page.count("](#") + page.count("(proof-planted.md)") + page.count(
        "https://"
    ) + page.count("example/") + page.count("pictures/")


def test_what_is_stale_or_leads_nowhere_is_told(entries: list[Entry], tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    texts, pictures = gallery.docs_texts(entries, []), gallery.docs_pictures(entries)
    for name in (*texts, *pictures):
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).write_text(texts.get(name, "<svg/>"), encoding="utf-8")
    (docs / "proof-planted.md").write_text("# Proof\n", encoding="utf-8")
    nothing = tmp_path / "nothing"
    assert gallery.faults(nothing, texts, list(pictures), docs) == []
    (docs / "example" / "report.md").write_text("# y\n\n[z](#z) [x](#y)\n", encoding="utf-8")
    (docs / "example" / "time.svg").unlink()
    stale, picture, place = gallery.faults(nothing, texts, list(pictures), docs)
    assert stale.startswith("docs/example/report.md is not what the code renders")
    assert picture == "docs/example/time.svg is not there"
    assert place.endswith("report.md: #z: no such place")
    # The reports themselves are looked at, too: these lead to pages that nobody made.
    lost = gallery.faults(tmp_path / "mine", {}, [], docs)
    assert [line.rpartition("/")[2] for line in lost] == ["report.md: details.md#x: no such file"]


def test_links_in_code_and_to_other_sites_are_none_of_ours(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '<a id="a"></a>\n```\n[x](y.md)\n```\n[x](https://x.y) [a](#a) [b](page.md#a)\n'
    )
    assert list(gallery.lost_links(page)) == []
