"""The translations of the messages: files that are up to date, and take the same values."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nsight_prof.reports.page.catalogue import catalogue, entries

pytest.importorskip("babel", reason="translations are kept with Babel")


def test_translations_are_up_to_date_and_take_the_same_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from scripts import messages

    monkeypatch.setattr(sys, "argv", ["messages.py", "--check"])
    assert messages.main() == 0, capsys.readouterr().err


def singular(text: str | Sequence[str] | None) -> str:
    return text if isinstance(text, str) else (text or [""])[0]


@pytest.mark.parametrize("language", ["ko", "zh"])
def test_our_reader_finds_what_babel_reads(root: Path, language: str) -> None:
    from scripts.messages import read

    for path in sorted((root / "reports" / "words" / language).glob("*.po")):
        messages = [m for m in read(language, path.stem) if m.id]
        wanted = {singular(m.id): singular(m.string) for m in messages}
        found = dict(entries(path.read_text("utf-8")))
        assert found == wanted
        assert {k: v for k, v in found.items() if v}.items() <= catalogue(language).items()
