"""Sentences that tables and manifests keep in English, on pages in other languages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.run.sentences import Made, joined, stored
from nsight_prof.reports.page.catalogue import knowing, stored_messages
from nsight_prof.reports.page.values import Quoted, Text, Verbatim
from nsight_prof.reports.page.writer import InHtml, Writer, in_english

MEASURED = "DRAM moved {moved:.3f} times the bytes of the work"
LANGUAGES = ("ko", "zh")


def numbers(text: str) -> Counter[str]:
    """Return the numbers of a text, how often each stands there."""
    return Counter(re.findall(r"\d+(?:[.,]\d+)*", text))


def latin_words(text: str) -> list[str]:
    """Return words in lower case, which no name of a unit or a roof is."""
    return re.findall(r"(?<![\w.-])[a-z]{4,}(?![\w.-])", text)


@pytest.mark.parametrize("language", LANGUAGES)
def test_how_a_roof_was_measured_is_said_in_the_language(
    recorded_run_of: Callable[[str], Run], language: str
) -> None:
    run, write = recorded_run_of("h200-roofline"), Writer(language)
    details = list(run.roofs.loc[run.roofs["source"] == "measured", "detail"])
    with knowing(run.sentences):
        written = [write.value(Verbatim(detail)) for detail in details]
    for detail, text in zip(details, written, strict=True):
        assert numbers(text) == numbers(detail)
        assert {"times", "bytes", "work", "confirmed", "samples"}.isdisjoint(latin_words(text))


@pytest.mark.parametrize("language", LANGUAGES)
def test_sentences_inside_of_sentences_are_said_too(language: str) -> None:
    translated = stored_messages(language)[MEASURED].format(moved="0.999")
    words = joined("; ", ["steady: gemm", stored(MEASURED, moved=0.999)])
    assert Writer(language).value(words).endswith(translated)


def test_english_pages_have_the_words_as_they_are() -> None:
    words = stored(MEASURED, moved=0.5)
    assert Writer("en").value(words) == "DRAM moved 0.500 times the bytes of the work"


@pytest.mark.parametrize("language", LANGUAGES)
def test_only_exactly_the_words_of_a_sentence_are_translated(language: str) -> None:
    write, words = Writer(language), str(stored(MEASURED, moved=0.5))
    assert write.value(words) == words  # no run keeps it
    with knowing({words: Made(MEASURED, {"moved": 0.5})}):
        assert write.value(words) == stored_messages(language)[MEASURED].format(moved="0.500")
        for other in (f"{words} ", words.replace("0.500", "0.501"), "DRAM"):
            assert write.value(other) == other


@pytest.mark.parametrize(
    "made",
    [
        Made("{s0}; {s1}", {"s0": "a; b", "s1": "a; b"}),
        Made("{s0:>999999999}", {"s0": 1}),
        Made("{s0.__class__}", {"s0": 1}),
        Made("no message of ours {n}", {"n": 1}),
        Made(MEASURED, {"other": 1}),
        Made("not collected: {absent} and {more:d} more", {"absent": "a", "more": 0.5}),
    ],
)
def test_a_file_that_somebody_made_up_does_no_harm(made: Made) -> None:
    with knowing({"a; b": made}):
        assert len(Writer("zh").value("a; b")) < 20


def test_a_sentence_is_known_without_the_stop_at_its_end() -> None:
    words = "The node {node} was lost; its ranks were imported on others."
    sentence = stored(words, node="n1")
    with knowing({sentence: Made(words, {"node": "n1"})}):
        whole = Writer("zh").value(str(sentence))
        assert Writer("zh").value(sentence.rstrip(".")) == whole.rstrip("。")


def test_words_of_a_text_are_said_in_the_language_of_the_page() -> None:
    words = in_english(Text("{points} points", points="10"))
    assert words == "10 points"
    assert Writer("en").value(words) == "10 points"
    assert Writer("zh").value(words) == "10 个百分点"


def test_words_of_another_program_are_marked_as_english() -> None:
    assert Writer("zh", InHtml()).value(Quoted("a < b")) == '<span lang="en">a &lt; b</span>'
    assert Writer("en", InHtml()).value(Quoted("a < b")) == "a &lt; b"
