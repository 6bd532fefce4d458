"""tables/sentences.json: what the English sentences with values of the tables are made of."""

from __future__ import annotations

import json
from pathlib import Path

from nsight_prof.parsers.reading import reading
from nsight_prof.parsers.run.sentences import Sentences, as_json, valid
from nsight_prof.parsers.whole_file import write_atomic

SENTENCES = "sentences.json"
WHAT = ("sentences of tables", "make the tables again: prof report RUN")


def write_sentences(folder: Path, sentences: Sentences) -> None:
    """Write what sentences of the tables in `folder` are made of."""
    text = json.dumps(as_json(sentences), indent=1, ensure_ascii=False)
    write_atomic(folder / SENTENCES, text + "\n")


def read_sentences(folder: Path) -> Sentences:
    """Read them back; none where an older version made the tables.

    Raises:
        ArtifactUnreadable: the file is damaged.
    """
    path = folder / SENTENCES
    if not path.is_file():
        return {}
    with reading(path, *WHAT):
        return valid(json.loads(path.read_bytes()))
