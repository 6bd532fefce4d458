"""The roofline that can be zoomed: what its script is given, and what it works out, by node."""

import json
import math
import re
import shutil
import subprocess
from typing import Any

import pytest

from nsight_prof.reports.profile.view_models import ReportView
from nsight_prof.reports.render.html_page import html_page
from nsight_prof.reports.trace_view import assets
from nsight_prof.reports.trace_view.live_roofline import live, live_rooflines


@pytest.fixture(scope="module")
def data(view: ReportView) -> Any:
    return json.loads(next(iter(live_rooflines(view).values())))


def by_node(data: Any, script: str) -> Any:
    """What a script returns that is given `data` and the functions of the page's `roofline`."""
    if shutil.which("node") is None:
        pytest.skip("no node on this machine")
    code = assets.script().partition("const roofline = ")[2].partition("\nconst drawRoofline")[0]
    text = f"const roofline = {code};\nconst data = {json.dumps(data)};\n"
    text += f"console.log(JSON.stringify((() => {{ {script} }})()));"
    done = subprocess.run(["node", "-e", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_page_with_a_still_roofline_carries_what_draws_a_live_one(data: Any) -> None:
    name = "</script><b>kernel"
    text = json.dumps(data | {"title": name}).replace("<", "\\u003c")
    html = html_page("![roofline](roofline.svg)", figures={"roofline": live("r", "<svg/>", text)})
    assert "drawRoofline(host)" in html
    assert "<svg/>" in html.partition('class="still"')[2]
    assert name not in html


def test_filters_leave_the_kernels_that_are_asked_for(data: Any) -> None:
    kernel = data["kernels"][0]
    asked = {"stage": kernel["stages"][0], "kind": kernel["kind"], "words": kernel["name"][:6]}
    found = by_node(data, f"""
      const all = roofline.chosen(data.kernels, {{}});
      const some = roofline.chosen(data.kernels, {json.dumps(asked | {"level": "dram"})});
      return [all, some, roofline.chosen(data.kernels, {{ words: "no such kernel" }})];
    """)  # fmt: skip
    everything, some, none = found
    assert everything == data["kernels"]
    assert kernel["number"] in [one["number"] for one in some]
    assert {point["level"] for one in some for point in one["points"]} == {"dram"}
    assert none == []


def test_looking_closer_keeps_the_place_and_ends_at_the_whole(data: Any) -> None:
    whole, near, moved, far = by_node(data, """
      const whole = roofline.whole(data), [x, y] = [whole.x[0] + 1, whole.y[0] + 1];
      const near = roofline.zoom(whole, 0.5, x, y, whole);
      const far = roofline.zoom(near, 99, x, y, whole);
      return [whole, near, roofline.pan(near, 99, -99, whole), far];
    """)  # fmt: skip
    for axis in ("x", "y"):
        low, high = whole[axis]
        from_, to = near[axis]
        assert to - from_ == pytest.approx((high - low) / 2)
        assert (low + 1 - from_) / (to - from_) == pytest.approx(1 / (high - low))
        assert far[axis] == pytest.approx(whole[axis])
    assert moved["x"][1] == pytest.approx(whole["x"][1])
    assert moved["y"][0] == pytest.approx(whole["y"][0])
    every = [math.log10(point["at"]) for kernel in data["kernels"] for point in kernel["points"]]
    assert whole["x"][0] < min(every)
    assert max(every) < whole["x"][1]


def test_a_roof_of_memory_ends_where_it_meets_the_highest_pipe(data: Any) -> None:
    roofs = [roof for roof in data["roofs"] if roof["key"] in ("dram", "tensor", "fp32")]
    lines, met = by_node(data | {"roofs": roofs}, """
      const whole = roofline.whole(data);
      const lines = data.roofs.map((roof) => roofline.line(roof, data.roofs, whole));
      return [lines, roofline.ridges(data.roofs)];
    """)  # fmt: skip
    (memory,) = [n for n, roof in enumerate(roofs) if roof["memory"]]
    top = max(roof["value"] for roof in roofs if not roof["memory"])
    assert lines[memory][1][1] == pytest.approx(math.log10(top))
    assert top / roofs[memory]["value"] in [pytest.approx(one["at"]) for one in met]


def test_a_point_is_found_near_the_pointer_and_numbers_do_not_cover_each_other(data: Any) -> None:
    near, far, free, moved = by_node(data, """
      const spots = [{ x: 10, y: 10, r: 3 }, { x: 30, y: 10, r: 3 }];
      const texts = [[0, 0], [5, 3], [20, 3]].map((place) => ({ places: [place], width: 9 }));
      const mark = { x: -2, y: 0, width: 4, of: 1 };
      const label = (of) => ({ places: [[0, 0], [0, 30]], width: 9, of });
      return [roofline.nearest(spots, 26, 10, 6), roofline.nearest(spots, 99, 10, 6),
        roofline.free(texts).map((text) => text.x),
        [1, 2].map((of) => roofline.free([label(of)], [mark])[0].y)];
    """)  # fmt: skip
    assert near["x"] == 30
    assert far is None
    assert free == [0, 20]
    assert moved == [0, 30]  # a number gives way to the marks of other kernels, not to its own


def test_all_that_scripts_write_can_be_translated() -> None:
    written = set(re.findall(r'word\("((?:[^"\\]|\\.)*)"', assets.script()))
    assert written
    assert written <= set(assets.messages())
    assert all(message in json.loads(assets.words("zh")) for message in written)
    assert assets.words("en") == ""
