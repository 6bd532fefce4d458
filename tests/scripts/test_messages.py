"""The translations of the messages: files that are up to date, and take the same values."""

import subprocess
import sys
from pathlib import Path

import pytest

from nsight_prof.reports.page.catalogue import catalogue, entries

pytest.importorskip("babel", reason="translations are kept with Babel")


def test_translations_are_up_to_date_and_take_the_same_values(root: Path) -> None:
    script = root / "scripts" / "messages.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("language", ["ko", "zh"])
def test_our_reader_finds_what_babel_reads(root: Path, language: str) -> None:
    from babel.messages.pofile import read_po

    for path in sorted((root / "reports" / "words" / language).glob("*.po")):
        with path.open("rb") as file:
            wanted = {
                m.id if isinstance(m.id, str) else m.id[0]: m.string
                if isinstance(m.string, str)
                else m.string[0]
                for m in read_po(file, locale=language)
                if m.id
            }
        found = dict(entries(path.read_text("utf-8")))
        assert found == wanted
        assert {k: v for k, v in found.items() if v}.items() <= catalogue(language).items()
