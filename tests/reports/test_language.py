"""The summary in every language: the same sentences, the same numbers, nothing left out."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from nsight_prof.orchestrator.languages import LANGUAGES as IN_RECIPES
from nsight_prof.orchestrator.recipe_files import bundled
from nsight_prof.parsers import tables
from nsight_prof.parsers.errors import UsageError
from nsight_prof.reports.language import ENGLISH, LANGUAGES, catalogue, english_sections, words_of
from nsight_prof.reports.language.words import placeholders
from nsight_prof.reports.load import Run, load_run
from nsight_prof.reports.render import render_report
from nsight_prof.reports.summary import summarise
from nsight_prof.reports.summary_models import SummaryView
from nsight_prof.reports.templating import Style
from nsight_prof.reports.view_models import Fact, GlossaryEntry
from nsight_prof.reports.views import report_view

OTHERS = [language for language in LANGUAGES if language != ENGLISH]
SECTIONS = [section for section in catalogue(ENGLISH) if section != "plainer"]
NUMBER = re.compile(
    r"\d[\d.,]*(?: (?:%|[munk]?s|[KMGT]i?B(?:/s)?|[kMGTP]FLOP(?:/s)?)(?![A-Za-z]))?"
)


def english(section: str, key: str) -> str:
    """Return what the summary says in English, in plainer words where it has some."""
    own = catalogue(ENGLISH)
    return (
        own["plainer"].get(key, own[section][key]) if section == "sentences" else own[section][key]
    )


def numbers(text: str) -> Counter[str]:
    return Counter(found.rstrip(".,") for found in NUMBER.findall(text))


def shown(view: SummaryView) -> str:
    """Return all sentences of a summary; its table, too."""
    rows = [f"{row.what} {row.limited_by} {row.kernels}" for row in view.rows]
    facts = [f"{fact.label} {fact.value}" for fact in view.facts]
    rows += [f"{row.time_ns} {row.share} {row.gain_ns}" for row in (*view.rows, view.total) if row]
    lines = (view.answer, *view.learned, *view.next_steps, *view.reservations, *rows, *facts)
    return "\n".join(lines)


def test_recipes_offer_the_languages_that_there_are() -> None:
    assert IN_RECIPES == LANGUAGES


@pytest.mark.parametrize("language", OTHERS)
@pytest.mark.parametrize("section", SECTIONS)
def test_all_languages_have_the_same_keys(language: str, section: str) -> None:
    assert set(catalogue(language)[section]) == set(catalogue(ENGLISH)[section])


@pytest.mark.parametrize("language", OTHERS)
@pytest.mark.parametrize("section", SECTIONS)
def test_all_languages_take_the_same_values(language: str, section: str) -> None:
    for key, text in catalogue(language)[section].items():
        assert placeholders(text) == placeholders(english(section, key)), key
        assert text.strip() or english(section, key).strip() in ("", "."), key


def test_what_is_said_in_plainer_words_is_a_sentence_that_is_recognised() -> None:
    own = catalogue(ENGLISH)
    for key, text in own["plainer"].items():
        assert placeholders(text) <= placeholders(own["sentences"][key]), key


def test_advice_of_one_key_is_the_same_in_all_rules() -> None:
    # The last would hide the others, which then stayed English in every language.
    from importlib import resources

    import yaml

    for name in ("findings.yaml", "kernel_rules.yaml"):
        loaded = yaml.safe_load(
            resources.files("nsight_prof.reports").joinpath(name).read_text("utf-8")
        )
        for rules in (loaded.get("rules") or {}, loaded.get("backends") or {}):
            for key, rule in rules.items():
                assert rule.get(
                    "advice", english("advice", key) if key in english_sections()["advice"] else ""
                ) in ("", english_sections()["advice"].get(key, "")), key
        for key, text in (loaded.get("advice") or {}).items():
            assert text == english_sections()["advice"][key], key


def test_every_question_of_a_bundled_recipe_is_there() -> None:
    from nsight_prof.orchestrator.recipe import load_recipe

    known = set(catalogue(ENGLISH)["questions"].values())
    asked = {load_recipe(path).question for path in bundled()}
    assert asked == known


@pytest.mark.parametrize("language", OTHERS)
@pytest.mark.parametrize("section", ["sentences", "advice"])
def test_every_sentence_is_recognised_with_its_values(language: str, section: str) -> None:
    words = words_of(language)
    for key, text in catalogue(ENGLISH)[section].items():
        values = {name: f"{place}7.{place} %" for place, name in enumerate(placeholders(text))}
        said = words.of(text.replace("(s)", "s").format(**values))
        wanted = catalogue(language)[section][key]
        kept = [values[name] for name in placeholders(wanted) if name != "why"]
        assert all(value in said for value in kept), key
        assert words.marked("") not in said or "{why}" in text, key
        # Equal advice under two keys is one sentence.
        if section == "sentences":
            marked = {n: words.marked(v) if n == "why" else v for n, v in values.items()}
            # Chinese has a space beside Latin letters and digits, whatever the values are.
            assert said.replace(" ", "") == wanted.format(**marked).replace(" ", ""), key


@pytest.mark.parametrize("language", OTHERS)
def test_what_is_not_known_stays_english_with_a_mark(language: str) -> None:
    words = words_of(language)
    mark = words.marked("")
    assert words.of("A new thing takes 3.5 ms.") == words.marked("A new thing takes 3.5 ms.")
    mixed = words.of("A new thing takes 3.5 ms. A part of the measurement failed; see the report.")
    assert mixed.startswith(words.marked("A new thing takes 3.5 ms."))
    assert mixed.count(mark) == 1
    assert "see the report" not in mixed
    why = words.of("What limits the kernels is not known: ncu found 3 moons.")
    assert words.marked("ncu found 3 moons") in why
    assert words.word("kinds", "no such kind", "-") == "-"
    assert words.terms([GlossaryEntry("moon", "it shines")])[0].meaning == words.marked("it shines")
    assert words.fact(Fact("Moons", "3")) == Fact(words.marked("Moons"), "3")


def test_english_passes_and_has_no_mark() -> None:
    words = words_of(ENGLISH)
    assert words.of("A new thing takes 3.5 ms.") == "A new thing takes 3.5 ms."
    assert words.of("q: the tile pads the work by 8.0 %") == (
        "q: the GPU computes in whole blocks, which adds 8.0 % of work"
    )


def test_a_row_of_the_english_page_without_other_words_stays_as_it_is() -> None:
    assert words_of(ENGLISH).fact(Fact("Moons", "3")) == Fact("Moons", "3")


def test_a_plainer_sentence_is_found_among_others() -> None:
    told = "Moons shine. 4 cases of 9 were noisy; none of them is a roof. They set."
    said = (
        "Moons shine. 4 of 9 measurements varied a lot; none of them is used as a limit. They set."
    )
    assert words_of(ENGLISH).of(told) == said


def test_advice_is_no_plainer_sentence_of_the_same_key() -> None:
    # "padding" is the key of a sentence with values and of an advice without.
    advice = catalogue(ENGLISH)["advice"]["padding"]
    assert words_of(ENGLISH).of(advice) == advice


def test_lists_read_as_in_the_language() -> None:
    assert words_of("en").listed(["a", "b", "c"]) == "a, b and c"
    assert words_of("ko").listed(["a", "b", "c"]) == "a, b 및 c"
    assert words_of("zh").listed(["甲", "乙", "丙"]) == "甲、乙和丙"
    # Latin letters have a space beside Chinese.
    assert words_of("zh").listed(["a", "b", "c"]) == "a、b 和 c"
    assert words_of("zh").listed(["a"]) == "a"


def test_a_question_of_the_users_own_stays_as_it_is() -> None:
    assert words_of("ko").quoted("Why so slow?") == "Why so slow?"


@pytest.mark.parametrize("language", OTHERS)
def test_a_summary_says_the_same_numbers_in_every_language(run: Run, language: str) -> None:
    view = report_view(run)
    ours, theirs = summarise(view), summarise(view, language)
    assert numbers(shown(theirs)) == numbers(shown(ours))
    assert words_of(language).marked("").strip() not in shown(theirs)
    for ours_row, theirs_row in zip(
        (*ours.rows, ours.total), (*theirs.rows, theirs.total), strict=True
    ):
        assert ours_row is not None
        assert theirs_row is not None
        assert (ours_row.time_ns, ours_row.share, ours_row.reached, ours_row.gain_ns) == (
            theirs_row.time_ns,
            theirs_row.share,
            theirs_row.reached,
            theirs_row.gain_ns,
        )
    assert len(theirs.terms) == len(ours.terms)


@pytest.mark.parametrize("language", OTHERS)
def test_a_reason_in_english_is_marked_and_nothing_is_dropped(
    trace_only_run: Run, language: str
) -> None:
    view = report_view(trace_only_run)
    ours, theirs = summarise(view), summarise(view, language)
    assert len(theirs.reservations) == len(ours.reservations)
    assert words_of(language).marked("").strip() in theirs.reservations[0]
    assert numbers(shown(theirs)) == numbers(shown(ours))


@pytest.mark.parametrize("asked", [("ko", "zh"), LANGUAGES], ids=["two", "all"])
def test_each_language_has_one_file_and_they_name_each_other(
    run: Run, asked: tuple[str, ...]
) -> None:
    folder = render_report(run, Style(languages=asked)).folder
    pages = {p.name: p.read_text("utf-8") for p in folder.glob("stakeholder_summary*.md")}
    assert set(pages) == {f"stakeholder_summary{x}.md" for x in ("", ".ko", ".zh")}
    for name, page in pages.items():
        assert {other for other in pages if f"]({other})" in page} == set(pages) - {name}
    assert "## " not in pages["stakeholder_summary.ko.md"]
    assert "실행에는 " in pages["stakeholder_summary.ko.md"]
    assert "整次运行耗时" in pages["stakeholder_summary.zh.md"]


def test_without_a_wish_there_is_one_summary_without_links(run: Run) -> None:
    folder = render_report(run).folder
    pages = {p.name: p.read_text("utf-8") for p in folder.glob("stakeholder_summary*")}
    assert set(pages) == {"stakeholder_summary.md", "stakeholder_summary.html"}
    assert not [name for name, page in pages.items() if "other languages" in page.lower()]


def test_a_benchmark_has_its_summary_in_every_language_too(
    make_bench_run: Callable[..., Run],
) -> None:
    folder = render_report(make_bench_run([]), Style(languages=("ko",))).folder
    text = (folder / "stakeholder_summary.ko.md").read_text("utf-8")
    assert "이 실행에는 질문에 답할 수 있는 데이터가 없습니다." in text


def test_a_language_that_there_is_not_is_refused_by_name(run: Run) -> None:
    with pytest.raises(UsageError, match="'fr'"):
        render_report(run, Style(languages=("fr",)))
    with pytest.raises(UsageError, match="'fr'"):
        words_of("fr")


def test_a_run_keeps_the_languages_of_its_recipe(make_run: Callable[..., Path]) -> None:
    run = load_run(make_run())
    run.manifest.recipe["languages"] = ["zh"]
    assert (render_report(run).folder / "stakeholder_summary.zh.md").is_file()


def test_an_acronym_keeps_its_capitals_inside_of_a_sentence(run: Run) -> None:
    tables.write(run.kernels.assign(category="copy"), "kernels", run.directory.tables)
    view = report_view(load_run(run.path))
    assert "to copying data inside the GPU" in summarise(view).answer
    assert "GPU 내부 데이터 복사" in summarise(view, "ko").answer
    assert "GPU 内部的数据拷贝" in summarise(view, "zh").answer
