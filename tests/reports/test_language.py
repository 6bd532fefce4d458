"""Reports in every language: the same sentences, the same numbers, nothing left out."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from nsight_prof.orchestrator.recipe.languages import LANGUAGES as IN_RECIPES
from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Text
from nsight_prof.reports.page.catalogue import ENGLISH, LANGUAGES, catalogue, entries, file_in
from nsight_prof.reports.page.values import placeholders
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.profile.views import report_view
from nsight_prof.reports.render.report import ReportPaths, render_report, render_template
from nsight_prof.reports.render.style import Style
from nsight_prof.reports.summary.models import SummaryView
from nsight_prof.reports.summary.summary import summarise

pytestmark = pytest.mark.usefixtures("no_pictures")

Rendered = Callable[..., ReportPaths]
OTHERS = [language for language in LANGUAGES if language != ENGLISH]
NUMBER = re.compile(
    r"\d[\d.,]*(?: (?:%|[munk]?s|[KMGT]i?B(?:/s)?|[kMGTP]FLOP(?:/s)?)(?![A-Za-z]))?"
)


def numbers(text: str) -> Counter[str]:
    return Counter(found.rstrip(".,") for found in NUMBER.findall(text))


def page_of(view: SummaryView, language: str) -> str:
    return render_template("stakeholder_summary.md.j2", {"view": view}, language=language)


def test_recipes_offer_the_languages_that_there_are() -> None:
    assert IN_RECIPES == LANGUAGES


@pytest.mark.parametrize("language", OTHERS)
def test_every_message_of_every_report_is_translated(language: str) -> None:
    folder = resources.files("nsight_prof.reports").joinpath("words", language)
    files = [file for file in folder.iterdir() if file.name.endswith(".po")]
    assert files
    for file in files:
        text = file.read_text("utf-8")
        assert [key for key, translation in entries(text) if not translation] == [], file.name


@pytest.mark.parametrize("language", OTHERS)
def test_translations_have_the_values_of_their_messages(language: str) -> None:
    for message, translation in catalogue(language).items():
        assert placeholders(translation) == placeholders(message), message


def test_a_sentence_without_a_translation_says_so(run: Run) -> None:
    odd = replace(summarise(report_view(run)), hints=(Text("Moons shine."),))
    assert "- Moons shine. \\[영어 원문\\]" in page_of(odd, "ko")
    assert "- Moons shine.\n" in page_of(odd, ENGLISH)


def test_lists_read_as_in_the_language() -> None:
    listed = Text("{several}", several=["a", "b", "c"])
    assert Writer("en").text(listed) == "a, b and c"
    assert Writer("ko").text(listed) == "a, b 및 c"
    assert Writer("zh").text(listed) == "a、b 和 c"


def test_a_question_of_the_users_own_stays_as_it_is(run: Run) -> None:
    own = replace(report_view(run), question="Why so slow?")
    assert "> Why so slow?" in page_of(summarise(own), "ko")


@pytest.mark.parametrize("language", OTHERS)
def test_a_summary_says_the_same_numbers_in_every_language(run: Run, language: str) -> None:
    view = summarise(report_view(run))
    ours, theirs = (
        page_of(view, one).split('<a id="more-terms">')[0] for one in (ENGLISH, language)
    )
    assert numbers(theirs) == numbers(ours)
    assert theirs.count("\n|") == ours.count("\n|")


@pytest.mark.parametrize("language", OTHERS)
def test_a_report_is_there_in_every_language(rendered: Rendered, language: str) -> None:
    folder = rendered(*OTHERS).folder
    page = (folder / f"report.{language}.md").read_text("utf-8")
    english = (folder / "report.md").read_text("utf-8")
    assert page.count("\n#") == english.count("\n#")
    assert f'<html lang="{language}">' in (folder / f"report.{language}.html").read_text("utf-8")
    linked = re.findall(r"\]\(([^)#]+\.(?:md|svg))", page)
    assert f"overview.{language}.svg" in linked
    assert not [name for name in linked if not (folder / name).is_file()]
    assert "](report.md)" in page  # the English one
    assert f"](report.{language}.md)" in english


@pytest.mark.parametrize("asked", [("ko", "zh"), LANGUAGES], ids=["two", "all"])
def test_each_language_has_one_file_and_they_name_each_other(
    rendered: Rendered, asked: tuple[str, ...]
) -> None:
    folder = rendered(*asked).folder
    pages = {p.name: p.read_text("utf-8") for p in folder.glob("stakeholder_summary*.md")}
    assert set(pages) == {file_in("stakeholder_summary.md", x) for x in (ENGLISH, *asked)}
    for name, page in pages.items():
        linked = {Path(link).name for link in re.findall(r"\]\(([^)]*summary[^)]*)\)", page)}
        assert linked == set(pages) - {name}
    assert "## " not in pages["stakeholder_summary.ko.md"]
    assert "가장 큰 작업" in pages["stakeholder_summary.ko.md"]
    assert "耗时最长的工作" in pages["stakeholder_summary.zh.md"]


def test_without_a_wish_there_is_one_summary_without_links(rendered: Rendered) -> None:
    folder = rendered().folder
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
    with pytest.raises(UsageError, match="'xx'"):
        render_report(run, Style(languages=("xx",)))


def test_a_run_keeps_the_languages_of_its_recipe(make_run: Callable[..., Path]) -> None:
    run = load_run(make_run())
    run.manifest.recipe["languages"] = ["zh"]
    assert (render_report(run).folder / "stakeholder_summary.zh.md").is_file()


def test_an_acronym_keeps_its_capitals_inside_of_a_sentence(run: Run) -> None:
    tables.write(run.kernels.assign(category="copy"), "kernels", run.directory.tables)
    view = summarise(report_view(load_run(run.path)))
    assert "is copying data inside the GPU" in page_of(view, ENGLISH)
    assert "GPU 내부 데이터 복사" in page_of(view, "ko")
    assert "GPU 内部的数据拷贝" in page_of(view, "zh")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (Text("{what} ({part})", what="矩阵乘法", part="5 %"), "矩阵乘法（5 %）"),
        (Text("{name}: {value}", name="DRAM", value="实测"), "DRAM：实测"),
        (Text("{a}, {b}", a="TTFT", b="TPOT"), "TTFT，TPOT"),
        (
            Text("{what} (in {stage})", what=Text("attention"), stage=Text("decode")),
            "注意力（解码阶段）",
        ),
        (Text("{what} (in {stage})", what=Text("attention"), stage="mine"), "注意力（mine 阶段）"),
        (Text("{n} client", "{n} clients", n=3), "3 个客户端"),
    ],
)
def test_chinese_has_its_own_marks_between_parts(text: Text, written: str) -> None:
    assert Writer("zh").text(text) == written


def test_chinese_lists_have_a_space_before_digits() -> None:
    assert Writer("zh").value(["7", "9"]) == "7 和 9"
    assert Writer("zh").value(["一", "二", "三"]) == "一、二和三"


def test_chinese_translations_part_their_characters_from_latin_letters() -> None:
    touching = re.compile(r"[\u4e00-\u9fff][A-Za-z0-9]|[A-Za-z0-9%][\u4e00-\u9fff]")
    assert [entry for entry in catalogue("zh").values() if touching.search(entry)] == []
