"""Sentences of tables: what they are made of is kept, and makes the same words again."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.run.directory import Manifest, RunDir, read_manifest, write_manifest
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.run.sentences import (
    Made,
    Sentence,
    joined,
    made_of,
    sentences_made,
    stored,
)
from nsight_prof.parsers.run.sentences_file import SENTENCES, read_sentences, write_sentences

RUNS = ("h200-roofline", "h200-vllm-kernels")


@pytest.mark.parametrize("name", RUNS)
def test_what_a_recorded_run_keeps_makes_the_same_words_again(
    recorded_run_of: Callable[[str], Run], name: str
) -> None:
    kept = read_sentences(recorded_run_of(name).directory.tables)
    assert kept
    assert {words: made.message.format(**made.values) for words, made in kept.items()} == {
        words: words for words in kept
    }


def test_a_table_holds_the_words_that_are_kept(recorded_run_of: Callable[[str], Run]) -> None:
    run = recorded_run_of("h200-roofline")
    details = set(run.roofs["detail"])
    assert details <= run.sentences.keys() | {"theoretical bandwidth as the driver reports it"}


def test_sentences_are_read_back_as_they_were_made(tmp_path: Path) -> None:
    with sentences_made() as found:
        part = stored("{count:,} launches", count=12345)
        whole = joined("; ", [part, "", stored("{share:.1%} of {what}", share=0.5, what="them")])
    assert whole == "12,345 launches; 50.0% of them"
    write_sentences(tmp_path, found)
    assert read_sentences(tmp_path) == found
    assert found[whole] == Made("{s0}; {s1}", {"s0": part, "s1": "50.0% of them"})
    assert found[part] == Made("{count:,} launches", {"count": 12345})


def test_tables_of_older_versions_have_none(tmp_path: Path) -> None:
    assert read_sentences(tmp_path) == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"a": {"message": "a"}}', '{"a": 1}'])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / SENTENCES).write_text(text)
    with pytest.raises(ArtifactUnreadable, match=SENTENCES):
        read_sentences(tmp_path)


def test_only_sentences_made_within_are_noted() -> None:
    stored("{n} before", n=1)
    with sentences_made() as found:
        stored("{n} within", n=2)
        stored("without values")
    stored("{n} afterwards", n=3)
    assert [*found] == ["2 within"]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_of_a_sentence_know_what_it_is_made_of(
    copied: Callable[[Sentence], Sentence],
) -> None:
    sentence = Sentence("{n:d} of {all}", {"n": 1, "all": "2"})
    assert copied(sentence) == sentence == "1 of 2"
    assert made_of([copied(sentence)]) == made_of([sentence]) != {}


def test_one_sentence_is_joined_to_itself() -> None:
    sentence = stored("{n} alone", n=1)
    assert joined("; ", ["", sentence]) is sentence
    assert joined("; ", []) == ""


def test_a_manifest_keeps_what_its_sentences_are_made_of(tmp_path: Path) -> None:
    manifest = Manifest("run", "", {})
    manifest.assumptions += [stored("{file} was given twice", file="a.csv"), "a user's own"]
    write_manifest(RunDir(tmp_path), manifest)
    again = read_manifest(RunDir(tmp_path))
    assert again.assumptions == ["a.csv was given twice", "a user's own"]
    assert again.sentences == {
        "a.csv was given twice": Made("{file} was given twice", {"file": "a.csv"})
    }
    write_manifest(RunDir(tmp_path), again)
    assert read_manifest(RunDir(tmp_path)) == again
