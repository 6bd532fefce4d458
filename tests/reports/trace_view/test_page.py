"""What the page is given, and what its script makes of it in a real browser."""

import base64
import gzip
import json
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from nsight_prof.parsers.nsys.bins import reduced, single
from nsight_prof.reports.render.html_page import html_page
from nsight_prof.reports.trace_view.assets import script
from nsight_prof.reports.trace_view.models import IDLE, KERNELS, RANGES, Item, Node, Row
from nsight_prof.reports.trace_view.page import TIMELINE, TREE, TracePart, pack, parts_of
from scripts.bench_timeline import made_up

Ask = Callable[..., Any]
ITEMS = [
    Item("cuBLAS GEMM, bf16", "blue", 1, "decode", ("grid 8x1x1, block 128x1x1",)),
    Item("PyTorch add", "orange", 2, "decode", ("grid 4x1x1, block 256x1x1",)),
    Item("GPU idle", "quiet", facts=("the next call came late",)),
    Item("step & more"),
]
TEXT = f"""# Run

| # | Kernel | Launches |
| --- | --- | ---: |
| [1](#kernel-1) | cuBLAS GEMM, bf16 | 50 |
| [2](#kernel-2) | PyTorch add | 50 |

![timeline]({TIMELINE}.svg)

![tree]({TREE}.svg)

<a id="kernel-1"></a>

<details><summary>1</summary>

One

</details>

<a id="kernel-2"></a>

<details><summary>2</summary>

Two

</details>
"""


def numbers(*values: int) -> Any:
    return np.array(values, np.int64)


def rows() -> list[Row]:
    start = 1_000_000 + np.arange(100) * 10_000
    duration = np.where(np.arange(100) % 2, 2000, 6000)
    gaps = single(start[1:] - 1000, np.full(99, 1000), np.full(99, 2))
    return [
        Row("GPU 0", KERNELS, "stream 7", single(start, duration, np.arange(100) % 2)),
        Row("GPU 0", IDLE, "idle", gaps),
        Row("Process 1", RANGES, "NVTX ranges", single(numbers(0), numbers(1_990_000), numbers(3))),
    ]


def tree() -> Node:
    gemm = Node("cuBLAS GEMM, bf16", "kernel", 300_000, 0, 50, "blue", 1)
    add = Node("PyTorch add", "kernel", 100_000, 0, 50, "orange", 2)
    idle = Node("idle", "idle", 0, 99_000)
    step = Node("step & more", "range", 400_000, 99_000, 100, children=[gemm, add, idle])
    return Node("whole run", "range", 400_000, 99_000, 100, children=[step])


def parts() -> tuple[TracePart, ...]:
    return parts_of(rows(), ITEMS, tree())


def page() -> str:
    return html_page(TEXT, figures={part.name: part.html() for part in parts()})


def unpacked(data: str) -> tuple[dict[str, Any], list[list[Any]]]:
    """Read the block as the docstring of `pack` says, column by column."""
    block = gzip.decompress(base64.b64decode(data))
    size = int.from_bytes(block[:4], "little")
    head, at, columns = json.loads(block[4 : 4 + size]), 4 + size, []
    for row in head["rows"]:
        found = []
        for planes in row["bytes"]:
            part = np.frombuffer(block, np.uint8, planes * row["n"], at).reshape(planes, row["n"])
            found.append(sum(part[k].astype(np.int64) << 8 * k for k in range(planes)))
            at += part.size
        found[0] = head["origin"] + np.cumsum(found[0])
        columns.append(found)
    assert at == len(block)
    return head, columns


def test_the_block_holds_the_rows() -> None:
    given = rows()
    head, columns = unpacked(pack(given, ITEMS, tree(), (1_000_000, 2_000_000)))
    for row, shown, (start, duration, item) in zip(given, head["rows"], columns, strict=True):
        assert (row.group, row.kind, row.name) == (shown["group"], shown["kind"], shown["name"])
        assert (start == row.segments.start).all()
        assert (duration == row.segments.duration).all()
        assert (item == row.segments.item).all()
    assert head["tree"][2:5] == [400_000, 99_000, 100]


def test_bins_bring_busy_time_and_launches() -> None:
    start, duration = np.arange(5000) * 700, np.full(5000, 400)
    segments = reduced(start, duration, np.arange(5000) % 2, 900)
    _, ((*_, busy, count),) = unpacked(
        pack([Row("GPU 0", KERNELS, "s", segments)], ITEMS, tree(), (0, 1))
    )
    assert (busy.sum(), count.sum()) == (5000 * 400, 5000)


def test_a_million_launches_stay_small() -> None:
    made, items = made_up(1_000_000)
    assert made[0].segments.count.sum() == 1_000_000
    assert len(pack(made, items, tree(), (0, 1))) < 10e6


def test_the_same_run_gives_the_same_bytes() -> None:
    first, again = ([(part.svg(), part.html()) for part in parts()] for _ in range(2))
    assert first == again


def test_pictures_are_whole_svg_and_say_what_they_show() -> None:
    for part in parts():
        root = ElementTree.fromstring(part.svg())
        words = " ".join(root.itertext())
        assert part.alt in words
        assert "var(--" not in part.svg()
        assert "step & more" in words
    assert "matrix products, convolutions" in parts()[0].svg()


@pytest.mark.parametrize("part", parts(), ids=lambda part: part.name)
def test_the_page_has_the_still_picture_in_its_own_colours(part: TracePart) -> None:
    assert "var(--blue)" in part.html()
    assert "#0072" not in part.html().partition('class="still"')[2]


WAIT = """
  const trace = document.getElementById("trace");
  for (let turn = 0; turn < 200 && !trace.dataset.view; turn++)
    await new Promise((done) => setTimeout(done, 20));
  const canvas = trace.querySelector("canvas");
  const frame = () => new Promise((done) => setTimeout(done, 20));
  const press = async (key) => {
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    await frame();
    return trace.dataset.view.split(" ").map(Number);
  };
"""


def test_keys_zoom_move_and_show_the_whole_run(in_browser: Ask) -> None:
    whole, near, later, again = in_browser(
        page(),
        WAIT
        + """
      const whole = trace.dataset.view.split(" ").map(Number);
      return [whole, await press("+"), await press("ArrowRight"), await press("Home")];
    """,
    )
    assert whole == again == [1_000_000, 1_992_000]
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2)
    assert later[0] > near[0]
    assert later[1] - later[0] == pytest.approx(near[1] - near[0])


def test_colours_are_drawn_and_follow_the_theme(in_browser: Ask) -> None:
    light, dark = in_browser(
        page(),
        WAIT
        + """
      const colours = () => {
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const found = new Set();
        for (let i = 0; i < data.length; i += 4) found.add(data.slice(i, i + 3).join(","));
        return [...found];
      };
      for (let turn = 0; turn < 4; turn++) await press("+");
      const painted = async (one) => {
        for (let turn = 0; turn < 60 && !colours().includes(one); turn++) await frame();
        return colours();
      };
      const light = await painted("0,114,178");
      document.getElementById("theme").click();
      return [light, await painted("75,163,227")];
    """,
    )
    assert {"255,255,255", "0,114,178", "230,159,0"} <= set(light)
    assert {"20,24,29", "75,163,227", "240,177,61"} <= set(dark)
    assert "255,255,255" not in dark


def test_a_pointer_tells_and_a_click_leads_to_the_kernel(in_browser: Ask) -> None:
    told, hash_, opened = in_browser(
        page(),
        WAIT
        + """
      for (let turn = 0; turn < 5; turn++) await press("+");
      await press("n");
      const [from, to] = trace.dataset.view.split(" ").map(Number);
      const box = canvas.getBoundingClientRect(), gutter = box.width < 600 ? 0 : 150;
      const middle = Math.ceil((from - 1e6) / 20000) * 20000 + 1e6 + 3000;
      const x = box.left + gutter + (middle - from) / (to - from) * (box.width - gutter);
      const y = box.top + 24 + 22 + (gutter ? 0 : 13) + 15;
      const at = (type) => canvas.dispatchEvent(new PointerEvent(
        type, { clientX: x, clientY: y, bubbles: true, pointerId: 1 }));
      canvas.setPointerCapture = () => {};
      at("pointermove");
      const told = document.getElementById("tip").innerText;
      at("pointerdown"); at("pointerup");
      await frame();
      return [told, location.hash, document.getElementById("kernel-1").open];
    """,
    )
    assert told.splitlines()[0] == "cuBLAS GEMM, bf16"
    for words in ("6 us", "stage decode", "grid 8x1x1", "kernel 1"):
        assert words in told
    assert (hash_, opened) == ("#kernel-1", True)


def test_search_and_kernel_rows_lead_to_launches(in_browser: Ask) -> None:
    found, none, of_kernel, searched, buttons, view = in_browser(
        page(),
        WAIT
        + """
      const search = trace.querySelector("input"), state = trace.querySelector(".state");
      const ask = async (words) => {
        search.value = words;
        search.dispatchEvent(new Event("input"));
        await frame();
        return state.textContent;
      };
      const found = await ask("GEMM"), none = await ask("softmax");
      document.querySelector("main table a[href='#trace']").click();
      await frame();
      const view = await press("f");
      return [found, none, state.textContent, search.value,
        document.querySelectorAll("details .trace-go").length, view];
    """,
    )
    assert "50 launches, 300 us" in found
    assert "none" in none
    assert "Kernel 1: 50 launches" in of_kernel
    assert searched == "cuBLAS GEMM, bf16"
    assert buttons == 2
    assert view == [994_000, 1_012_000]


def test_the_tree_zooms_and_leads_to_kernels_by_keys(in_browser: Ask) -> None:
    names, wide, focused, back = in_browser(
        page(),
        WAIT
        + """
      const live = document.querySelector("#trace-tree .live");
      const all = () => [...live.querySelectorAll("button")];
      const names = all().map((one) => one.textContent);
      const key = (name) => document.activeElement.dispatchEvent(
        new KeyboardEvent("keydown", { key: name, bubbles: true }));
      all()[0].focus();
      key("ArrowDown"); key("ArrowDown"); key("ArrowRight");
      const focused = document.activeElement.getAttribute("aria-label");
      all().find((one) => one.textContent === "PyTorch add").click();
      await frame();
      const hash = location.hash;
      key("ArrowUp"); document.activeElement.click();
      const step = all().find((one) => one.textContent.startsWith("step"));
      return [names, step.offsetWidth / live.clientWidth, focused, hash];
    """,
    )
    assert names == ["whole run", "step & more", "cuBLAS GEMM, bf16", "PyTorch add", "idle"]
    assert wide == pytest.approx(1, abs=0.01)
    assert focused.startswith("PyTorch add, 100 us, 20 % of all, 50 launches")
    assert back == "#kernel-2"


def test_without_decompression_the_picture_and_a_sentence_stay(
    in_browser: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = script().replace('typeof DecompressionStream === "undefined"', "true")
    assert old != script()
    monkeypatch.setattr("nsight_prof.reports.trace_view.assets.script", lambda: old)
    still, sentence, hidden = in_browser(
        page(),
        """
      const trace = document.getElementById("trace");
      return [".still", ".fallback"].map((one) => trace.querySelector(one).offsetHeight)
        .concat(trace.querySelector(".live").hidden);
    """,
    )
    assert still > 50
    assert sentence > 5
    assert hidden


def test_it_fits_a_telephone(in_browser: Ask) -> None:
    wide, inner = in_browser(
        page(),
        WAIT + "return [Math.max(canvas.offsetWidth, trace.scrollWidth), innerWidth];",
        size=(500, 800),
    )
    assert wide <= inner
