"""Colours of all pictures: colour-blind safe, one meaning each; no matplotlib is needed."""

from __future__ import annotations

from nsight_prof.reports.page.figure_models import COPIES, GRAPHS

INK, QUIET, GRID = "#1a1a1a", "#595959", "#d9d9d9"
ON_BRIGHT = "#1b1b1b"
"""Text on a colour that is bright on dark pages, too: it stays dark there, where INK turns pale."""
# Okabe and Ito, "Color Universal Design" (2008): apart for all common kinds of colour blindness.
ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#999999"
# No kernels, so no hue of kernels: darker than "other" on paper, paler on dark pages.
HOST_COPY, WHOLE_GRAPH = "#4d4d4d", "#8c6d46"
# The nearer to the SM, the paler: a hue that no kind of kernel has.
LEVEL_COLOURS = {"dram": "#3F1F69", "l2": "#7A4FB5", "l1": "#A37ADB"}
SERIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILLION, YELLOW)
STAGES = {"prefill": "#bbbbbb", "decode": QUIET}
"""Stages of an engine, in greys as in the strip of the first picture: hues are kinds of kernels."""
_FAMILIES = {
    BLUE: ("matrix products, convolutions", ("gemm", "gemv", "conv", "rnn", "moe")),
    VERMILLION: ("attention", ("attention", "kv_cache", "rotary")),
    GREEN: ("norm, softmax, reduction", ("norm", "softmax", "reduction")),
    ORANGE: ("elementwise", ("elementwise", "quantize", "random", "fill")),
    SKY: ("copies inside the GPU", ("copy", "memory")),
    YELLOW: ("communication", ("collective",)),
    PURPLE: ("embedding, sampling, sort", ("embedding", "sampling", "sort")),
}


def family(category: str) -> tuple[str, str]:
    """Return (colour, name) of the family that a kernel category belongs to."""
    for colour, (name, members) in _FAMILIES.items():
        if category in members:
            return colour, name
    return GREY, "other"


def families() -> dict[str, str]:
    """Return the name of each family of kernels, and of other work of GPUs, by its colour."""
    by_colour = {colour: name for colour, (name, _) in _FAMILIES.items()}
    return by_colour | {GREY: "other", HOST_COPY: COPIES, WHOLE_GRAPH: GRAPHS}


def text_on(colour: str) -> str:
    """Return the colour of text on a part of this colour, to be read on pale and on dark pages."""
    if colour in (BLUE, VERMILLION, GREEN, QUIET, HOST_COPY, WHOLE_GRAPH):
        return "white"
    return ON_BRIGHT if colour in (*SERIES, GREY) else INK


COLOURS = {
    "#ffffff": "paper", INK: "ink", QUIET: "quiet", GRID: "grid", "#000000": "ink",
    ON_BRIGHT: "on-bright",
    "#f2f2f2": "faint", "#dddddd": "grid", "#cccccc": "rest", "#bbbbbb": "rest",
    ORANGE: "orange", SKY: "sky", GREEN: "green", YELLOW: "yellow", BLUE: "blue",
    VERMILLION: "vermillion", PURPLE: "purple", GREY: "grey",
    HOST_COPY: "host-copy", WHOLE_GRAPH: "whole-graph",
    **{colour: f"level-{level}" for level, colour in LEVEL_COLOURS.items()},
}  # fmt: skip
"""Colours of the figures and the CSS variable of the page (without --) that stands for each."""
