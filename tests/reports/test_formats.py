"""Numbers, units and names as reports show them."""

import locale
import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from nsight_prof.reports.page import Number, adding_up, formats, units
from nsight_prof.reports.page.writer import Writer

UNKNOWN = [None, math.nan, math.inf, -math.inf, pd.NA, "", "n/a"]


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        ("duration", 12_345, "12.3 us"),
        ("duration", 1_386_000, "1.39 ms"),
        ("duration", 999.96, "1.00 us"),
        ("duration", 7, "7.00 ns"),
        ("duration", 0, "0 ns"),
        ("duration", 83e9, "83.0 s"),
        ("data_size", 4_096, "4.10 kB"),
        ("data_size", 141e9, "141 GB"),
        ("data_size", 12, "12 B"),
        ("byte_rate", 4_814_304_000_000, "4.81 TB/s"),
        ("flop_rate", 786e12, "786 TFLOP/s"),
        ("flop_rate", 1_979e12, "1.98 PFLOP/s"),
        ("flop_count", 1.11669e12, "1.12 TFLOP"),
        ("clock", 1_980_000_000, "1.98 GHz"),
        ("intensity", 380.62, "381 FLOP/B"),
        ("intensity", 0.0625, "0.0625 FLOP/B"),
        ("percent", 31.24, "31.2 %"),
        ("percent", 0.01, "<0.1 %"),
        ("percent", -0.01, ">-0.1 %"),
        ("percent", 100, "100.0 %"),
        ("share", 0.3124, "31.2 %"),
        ("share", 0.0043, "0.43 %"),
        ("count", 12_345, "12,345"),
        ("speedup", 1.268, "1.27x"),
        ("difference", 0.031, "+3.1 %"),
        ("change", 1.031, "+3.1 %"),
        ("difference", -0.2, "-20.0 %"),
        ("significant", 4_067_203.88, "4,070,000"),
        ("significant", 3.2e12, "3.20e+12"),
        ("exact", 4_067_203.88, "4067203.88"),
        ("exact", 3.0, "3"),
    ],
)
def test_a_number_is_shown_with_fixed_digits_and_its_unit(
    function: str, value: float, text: str
) -> None:
    assert formats.FILTERS[function](value) == text


@pytest.mark.parametrize("value", UNKNOWN)
def test_unknown_is_never_shown_as_zero(value: object) -> None:
    numeric = "duration data_size byte_rate flop_rate flop_count clock intensity percent share"
    for name in [*numeric.split(), "count", "speedup", "difference", "significant", "exact"]:
        assert formats.FILTERS[name](value) == formats.NA
    assert formats.quantity(value, "warp") == formats.NA


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1200, "ns", "1.20 us"),
        (0.5, "fraction", "50.0 %"),
        (48, "warp", "48 warp"),
        (2.5, "", "2.50"),
        (128.0, "", "128"),
    ],
)
def test_a_quantity_follows_its_base_unit(value: float, unit: str, text: str) -> None:
    assert formats.quantity(value, unit) == text


def test_the_locale_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locale, "localeconv", lambda: {"decimal_point": ",", "thousands_sep": "."})
    assert formats.count(1234567) == "1,234,567"


@given(st.floats(min_value=1e-3, max_value=1e17))
def test_a_scaled_number_keeps_three_digits(value: float) -> None:
    digits, prefix = formats.byte_rate(value).split(" ")
    factor = {"B/s": 1.0, **{f"{p}B/s": f for f, p in units.SI}}[prefix]
    assert float(digits.replace(",", "")) * factor == pytest.approx(value, rel=5.1e-3)


NASTY = [
    "void foo<int, (Op)3>(T*, unsigned long)",
    "a|b `tick` _under_score_ *star* [x](y) ~~gone~~ #1 $x$ & &amp; <b>bold</b>",
    "back\\slash \\| {lambda(int)#1}",
    "-->",
    "``` fence",
]


def _shown(tokens: list) -> str:  # type: ignore[type-arg]
    """Return the text that a reader of the rendered markdown sees."""
    seen = ""
    for token in tokens:
        if token.type in ("text", "code_inline", "text_special"):
            seen += token.content
        if token.children:
            seen += _shown(token.children)
    return seen


@pytest.mark.parametrize("name", NASTY)
def test_an_escaped_name_is_shown_as_it_stands_in_a_table_cell(name: str) -> None:
    table = f"| a | b |\n| --- | --- |\n| {formats.escape(name)} | end |\n"
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(table)
    cells = [t for t in tokens if t.type == "inline"][2:]
    assert len(cells) == 2
    assert _shown([cells[0]]) == name
    assert not any(
        t.type in ("em_open", "strong_open", "link_open") for t in cells[0].children or ()
    )


@pytest.mark.parametrize("name", NASTY)
def test_a_name_inside_html_is_shown_as_it_stands(name: str) -> None:
    text = f"<b>{formats.escape_html(name)}</b>"
    inline = MarkdownIt("commonmark").enable(["strikethrough"]).parse(text)[1]
    assert _shown([inline]) == name


def test_a_fence_is_longer_than_any_backticks_inside() -> None:
    assert formats.fenced("a ```` b").startswith("`````text\n")
    block = MarkdownIt("commonmark").parse(formats.fenced("```\n</details>\n| x"))[0]
    assert block.content == "```\n</details>\n| x\n"


def test_line_breaks_in_a_name_do_not_break_the_table() -> None:
    assert formats.escape("a\n\nb\tc") == "a b c"


def test_a_brief_name_keeps_whole_words() -> None:
    name = "cuBLAS GEMM, bf16, tile 128x8x64, 12 stages, cluster 2x1, TN"
    assert formats.brief(name, 40) == "cuBLAS GEMM, bf16, tile 128x8x64, TN"
    assert formats.brief(name, 34) == "cuBLAS GEMM, bf16, tile 128x8x64"
    assert formats.brief(name, 20) == "cuBLAS GEMM, bf16"
    assert formats.brief("PyTorch mul, bf16, strided") == "PyTorch mul, bf16, strided"
    assert len(formats.brief("x" * 99, 40)) <= 43


def test_a_long_name_keeps_both_ends() -> None:
    short = formats.shorten("start" + "x" * 100 + "end", 20)
    assert len(short) <= 20
    assert short.startswith("start")
    assert short.endswith("end")
    assert formats.shorten("short", 20) == "short"


def test_the_least_telling_parts_of_a_name_go_first() -> None:
    name = "cuBLAS GEMM, bf16, tile 64x8x64, 16 stages, cluster 2x1, split-K, TN"
    assert formats.briefer(name)[1:4] == [
        "cuBLAS GEMM, bf16, tile 64x8x64, cluster 2x1, split-K, TN",
        "cuBLAS GEMM, bf16, tile 64x8x64, split-K, TN",
        "cuBLAS GEMM, bf16, tile 64x8x64, split-K",
    ]
    assert formats.briefer(name)[-1] == "cuBLAS GEMM"


def test_a_number_of_things_has_its_plural() -> None:
    assert formats.counted(1, "call") == "1 call"
    assert formats.counted(1264, "launch") == "1,264 launches"
    assert formats.listed(["a"]) == "a"
    assert formats.listed(["a", "b", "c"]) == "a, b and c"


def test_parts_add_up_as_they_are_shown() -> None:
    parts = (Number(2.07e6, "ns"), Number(45.49e6, "ns"))
    shown = adding_up(Number(47.56e6, "ns"), *parts, digits=3)
    assert [Writer().value(number) for number in shown] == ["47.6 ms", "2.1 ms", "45.5 ms"]
    thirds = formats.adding_up([1 / 3] * 3, 1.0, "fraction")
    assert sorted(thirds) == ["33.3 %", "33.3 %", "33.4 %"]
    assert formats.adding_up([None, 377e3, 124.1e6], 124.477e6) == ["n/a", "0.4 ms", "124.1 ms"]
    # Of what is no division of the total, each part is rounded by itself.
    assert formats.adding_up([10.04e6, 20.04e6], 90e6) == ["10.0 ms", "20.0 ms"]


def test_what_is_left_is_the_whole_less_what_was_saved_as_shown() -> None:
    left = formats.countdown([19.5e6, 6.81e6], 124.46e6)
    assert left == [("19.5 ms", "105.0 ms"), ("6.8 ms", "98.2 ms")]
    parts = [8.13e6, 6.04e6, 18.52e6]
    assert formats.countdown(parts, 325.88e6)[1][0] == "6.1 ms"
    assert formats.together(parts, 325.88e6) == "32.7 ms"
    # However many parts are listed, each is rounded alike, and the others are one.
    parts = [19.98e6, 1.3e6, 1.86e6, 0.74e6, 0.62e6]
    every, listed = (formats.countdown(parts, 46.5e6, n) for n in (5, 3))
    assert listed[:3] == every[:3]
    assert listed[3][1] == every[-1][1]
