"""Planted defects: verdicts on a trace with known ranges, and on the recorded run."""

from __future__ import annotations

import json
import math
import re
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.build.run_tables import build_tables
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.run.directory import RunDir, decompress
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.page import Text, Verbatim
from scripts.pages.first_look import first_look, read_first_look, write_first_look
from scripts.pages.marked import anchor
from scripts.pages.planted_page import Recording, planted_page, recording
from scripts.pages.proof import (
    FACTOR,
    Planted,
    Score,
    Verdict,
    left_out,
    planted,
    verdicts,
)
from scripts.pages.stage_run import stage_runs

RECORDED = "h200-planted-defects"


def a_plan(**changed: Any) -> Planted:
    values: dict[str, Any] = {
        "name": "idle", "title": "Idle GPU", "defect": "It waits.", "twin": "It does not.",
        "expects": ("idle",), "measure": "wall", "seconds": {"defect": 4.0, "twin": 1.0},
    }  # fmt: skip
    return Planted(**(values | changed))


def a_finding(key: str, cause: str = "") -> Finding:
    return Finding(key=key, rule=cause, verdict=Text("{key}.", key=Verbatim(key)))


@pytest.fixture(scope="module")
def folder(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run whose ranges are called as those of planted defects.

    Its prefill keeps the GPU busy and its decode does not: that is the defect.
    """
    path = tmp_path_factory.mktemp("proof") / "run"
    shutil.copytree(root / "captures" / "h200-top-kernels", path)
    step = path / "steps" / "1-trace"
    decompress(step / "trace.sqlite.xz", step / "trace.sqlite")
    (step / "trace.sqlite.xz").unlink()
    with sqlite3.connect(step / "trace.sqlite") as connection:
        for old, new in (("decode", "defect/idle"), ("prefill", "twin/idle")):
            for table, column in (("NVTX_EVENTS", "text"), ("StringIds", "value")):
                connection.execute(
                    f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (new, old)
                )
    times = {"defect": {"wall_s": 4.0, "gpu_s": 3.0}, "twin": {"wall_s": 1.0, "gpu_s": 1.0}}
    plan = {"name": "idle", "title": "Idle GPU", "defect": "It waits.", "twin": "It does not.",
            "expects": ["idle", "launch_bound", "host_bound"], "measure": "wall",
            "repeats": 1, "times": times}  # fmt: skip
    line = json.dumps({"target": "defects", "pairs": [plan]})
    (step / "stdout.log").write_text(f"a line of the program\n{{no json\n{line}\n")
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    manifest["recipe"]["stages"] = ["^defect/.*", "^twin/.*"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    build_tables(RunDir(path))
    return path


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return load_run(folder)


@pytest.fixture(scope="module")
def seen(run: Run) -> Recording:
    return recording(run)


def test_the_plan_comes_from_the_output_of_the_program(run: Run) -> None:
    (plan,), step = planted(run)
    assert step == "trace"
    assert plan.seconds == {"defect": 4.0, "twin": 1.0}  # wall times, as the plan says
    assert plan.gain == pytest.approx(0.75)


def test_a_defect_is_named_gone_and_priced(run: Run, seen: Recording) -> None:
    (verdict,) = seen.judged
    assert verdict.named
    assert verdict.gone
    # The oracle: idle over wall time of the decode stage in the table of the whole run, less what a
    # CUDA graph and nsys leave of each gap: no more than its launch call and 1 us.
    decode = run.stages.set_index("stage").loc["defect/idle"]
    gaps = run.idle_gaps.loc[run.idle_gaps["stage"] == "defect/idle", "gaps"].sum()
    calls = run.api_calls[run.api_calls["name"].str.contains("LaunchKernel")]
    kept = gaps * (calls["total_ns"].sum() / calls["calls"].sum() + 1000)
    idle, wall = decode["idle_ns"], decode["wall_ns"]
    assert (idle - kept) / wall <= verdict.estimate <= idle / wall
    assert verdict.estimate > 0.4
    assert verdict.ratio == pytest.approx(verdict.estimate / 0.75)


def test_a_stage_is_a_program_of_its_own(run: Run) -> None:
    stages = dict(stage_runs(run, ["defect/idle", "twin/idle"]))
    for stage in stages.values():
        assert stage.kernels["share"].sum() == pytest.approx(1)
        assert set(stage.counters["kernel_id"]) <= set(stage.kernels["kernel_id"])
        assert stage.roofs.equals(run.roofs)
    launches = sum(len(stage.launches) for stage in stages.values())
    assert launches == len(run.launches)
    # Most GPU time of any kernel is in one of the two, and no kernel is lost.
    ids = set.union(*(set(stage.kernels["kernel_id"]) for stage in stages.values()))
    assert ids == set(run.kernels["kernel_id"])


def test_the_page_tells_the_verdict(seen: Recording) -> None:
    page = planted_page([seen])
    assert "| question | first set, rules of now | wanted |" in page
    assert "| Is the planted cause the first finding? | 1 of 1 (100.0 %) | 90.0 % |" in page
    assert "**First set: in sample.**" in page
    assert "[Idle GPU](#idle-gpu)" in page
    assert "### Idle GPU" in page
    assert "under nsys, which lengthens each launch" in page  # the trace is the only clock here


def test_the_page_keeps_two_sets_and_two_looks_apart(seen: Recording) -> None:
    first = seen
    wrong = Verdict(a_plan(name="one", expects=("tail",)), (a_finding("idle"),), (), math.nan)
    look = first_look([wrong, *first.judged], "0123456789abcdef")
    second = replace(
        first, title="Second set", look=look, missing={"tail": "Mismatch: they differ"}
    )
    page = planted_page([first, second])
    assert "| question | first set, rules of now | second set, first look | " in page
    row = next(line for line in page.splitlines() if line.startswith("| Is the planted cause"))
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[2:6] == ["1 of 1 (100.0 %)", "1 of 2 (50.0 %)", "1 of 1 (100.0 %)", "90.0 %"]
    large = [line for line in page.splitlines() if line.startswith("| Fixes that gained 10.0 %")]
    assert len(large) == 3
    assert [cell.strip() for cell in large[0].split("|")][2:5] == ["n/a"] * 3 or first.judged[
        0
    ].planted.gain >= 0.1
    assert "**Second set: out of sample at its first look.**" in page
    assert "commit `0123456789`" in page
    assert "Not right then: `one` (named, priced)" in page
    assert "`tail`: Mismatch: they differ" in page
    assert "The third set" not in page
    third = planted_page([first, first, replace(first, title="Third set")])
    assert third.startswith(page[: page.index("1 and 1")] + "1, 1 and 1 small programs")
    assert "[third.yaml](../targets/defects/third.yaml)" in third
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    assert len(headings) == len(set(headings)), "GitHub would number anchors of equal headings"
    anchors = {anchor(heading) for heading in headings}
    assert set(re.findall(r"\]\(#([^)]*)\)", page)) <= anchors


def test_scores_of_large_repairs_are_counted_apart(seen: Recording) -> None:
    small = {"defect": 1.0, "twin": 0.95}
    named = Verdict(a_plan(name="one", expects=("tail",)), (a_finding("tail"),), (), 0.5)
    judged = [
        named,
        replace(named, planted=replace(named.planted, name="two", seconds=small)),
        Verdict(a_plan(name="three", expects=("tail",)), (a_finding("idle"),), (), math.nan),
    ]
    second = replace(seen, judged=judged, title="Second set")
    look = first_look([judged[2], replace(judged[2], planted=judged[1].planted), named], "abc")
    told = replace(second, look=replace(look, score=replace(look.score, programs=3)))
    rows = [
        line.split("|")[2:4]
        for line in planted_page([told]).splitlines()
        if "first finding?" in line
    ]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["1 of 3 (33.3 %)", "2 of 3 (66.7 %)"],
        ["1 of 2 (50.0 %)", "1 of 2 (50.0 %)"],
    ]
    other = replace(told, look=replace(look, score=replace(look.score, programs=4)))
    large = planted_page([other]).split("| Fixes that gained")[1]
    assert large.split("|")[1].strip() == "n/a", "of which programs that look was is not known"


def test_a_first_look_is_kept_and_never_overwritten(seen: Recording, tmp_path: Path) -> None:
    look = first_look(seen.judged, "abc")
    assert look.score == Score(programs=1, named=1, gone=1, priced=look.score.priced)
    assert read_first_look(tmp_path) is None
    write_first_look(tmp_path, look)
    assert read_first_look(tmp_path) == look
    with pytest.raises(ArtifactUnreadable, match="second look"):
        write_first_look(tmp_path, look)
    (tmp_path / "first_look.json").write_text('{"commit": "abc"}')
    with pytest.raises(ArtifactUnreadable, match="no first look"):
        read_first_look(tmp_path)


def test_pairs_that_failed_are_told_with_their_reason(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(folder, path)
    assert left_out(load_run(path)) == {}
    log = path / "steps" / "1-trace" / "stdout.log"
    failed = [{"name": "tail", "reason": "Mismatch: they differ"}]
    log.write_text(json.dumps({"target": "defects", "pairs": [], "failed": failed}))
    assert left_out(load_run(path)) == {"tail": "Mismatch: they differ"}


def an_output(names: list[str], failed: dict[str, str]) -> str:
    times = {side: {"wall_s": 1.0, "gpu_s": 1.0} for side in ("defect", "twin")}
    words = {"title": "T", "defect": "D.", "twin": "R.", "expects": ["tail"], "measure": "kernel"}
    pairs = [{"name": name, **words, "times": times} for name in names]
    rows = [{"name": name, "reason": reason} for name, reason in failed.items()]
    return json.dumps({"target": "defects", "pairs": pairs, "failed": rows})


@pytest.mark.parametrize("timed", ["untraced", "trace"])
def test_a_pair_that_failed_in_one_step_alone_is_told_and_not_judged(
    folder: Path, tmp_path: Path, timed: str
) -> None:
    path = tmp_path / "run"
    shutil.copytree(folder, path)
    outputs = {
        "trace": an_output(["idle", "tail"], {"atomics": "CudaError: gone"}),
        "untraced": an_output(["idle", "atomics"], {"tail": "OutOfMemoryError: none left"}),
    }
    if timed == "trace":  # counters are the other step
        outputs = {"counters": outputs["untraced"], "trace": outputs["trace"]}
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    (trace,) = (step for step in manifest["steps"] if step["name"] == "trace")
    manifest["steps"].insert(0, {**trace, "name": "untraced", "directory": "steps/0-untraced"})
    (path / "steps" / "0-untraced").mkdir()
    directories = {step["name"]: step["directory"] for step in manifest["steps"]}
    for step, output in outputs.items():
        (path / directories[step] / "stdout.log").write_text(output)
    (path / "manifest.json").write_text(json.dumps(manifest))
    run = load_run(path)
    found, clock = planted(run)
    assert clock == timed
    assert [plan.name for plan in found] == ["idle"]
    other = next(step for step in outputs if step != "trace")
    assert left_out(run) == {
        "tail": f"in step {other}: OutOfMemoryError: none left",
        "atomics": "in step trace: CudaError: gone",
    }
    assert [verdict.planted.name for verdict in verdicts(run)] == ["idle"]


@pytest.mark.parametrize(
    ("estimate", "priced"),
    [(0.75, True), (0.75 * FACTOR, True), (0.75 / FACTOR, True), (0.49, False), (math.nan, False)],
)
def test_an_estimate_is_right_within_the_factor(estimate: float, priced: bool) -> None:
    assert Verdict(a_plan(), (), (), estimate).priced is priced


def test_no_gain_is_no_right_price() -> None:
    slower = a_plan(seconds={"defect": 1.0, "twin": 1.1})
    verdict = Verdict(slower, (), (), 0.1)
    assert math.isnan(verdict.ratio)
    assert not verdict.priced


def test_only_the_first_finding_names_a_defect() -> None:
    other, ours = a_finding("kernel", "tail"), a_finding("idle")
    assert not Verdict(a_plan(), (other, ours), (), 0.1).named
    assert Verdict(a_plan(), (ours, other), (), 0.1).named
    assert Verdict(a_plan(expects=("tail",)), (other,), (), 0.1).named  # by its cause
    assert not Verdict(a_plan(), (), (), math.nan).named


def test_a_defect_is_gone_where_no_finding_names_it() -> None:
    assert Verdict(a_plan(), (), (a_finding("kernel", "tail"),), 0.1).gone
    assert not Verdict(a_plan(), (), (a_finding("time"), a_finding("idle")), 0.1).gone


def test_a_run_without_planted_defects_is_refused(recorded_run_of: Callable[[str], Run]) -> None:
    with pytest.raises(ArtifactUnreadable, match="no output of targets/defects"):
        planted(recorded_run_of("h200-top-kernels"))


def test_anchors_are_those_of_github() -> None:
    assert anchor("Matrix product without Tensor Cores") == "matrix-product-without-tensor-cores"
    assert anchor("L2 (thrashing), twice") == "l2-thrashing-twice"


def prepared(root: Path, name: str, open_run: Callable[[str], Run]) -> Run:
    """Return a recorded run with its tables; skips the test where it is not recorded."""
    if not (root / "captures" / name).is_dir():
        pytest.skip(f"captures/{name} is not recorded yet")
    return open_run(name)


@pytest.fixture(scope="module")
def recorded_run(root: Path, recorded_run_of: Callable[[str], Run]) -> Run:
    return prepared(root, RECORDED, recorded_run_of)


def test_nine_tenths_of_the_planted_causes_are_found_and_three_quarters_of_gains_are_right(
    root: Path,
) -> None:
    """`scripts/proof --check` of .ci/run judges all pairs and holds the page to them."""
    page = (root / "docs" / "proof-planted.md").read_text(encoding="utf-8")
    scores = re.findall(r"^\| Is .*?\? \| (\d+) of (\d+) .*\| ([\d.]+) % \|$", page, re.MULTILINE)
    assert [float(wanted) for _, _, wanted in scores] == [90, 90, 75]
    right = [100 * int(held) / int(of) >= float(wanted) for held, of, wanted in scores]
    assert right == [True] * 3, scores


@pytest.mark.every_run
def test_the_rules_of_now_find_each_fifth_planted_cause_and_price_it(recorded_run: Run) -> None:
    """`scripts/proof --check` judges all pairs: each fifth shows a rule that was broken sooner."""
    judged = verdicts(recorded_run, step=5)
    assert len(judged) == 5
    right = {one.planted.name: (one.named, one.gone, one.priced) for one in judged}
    assert right == dict.fromkeys(right, (True, True, True))


@pytest.mark.every_run
def test_local_memory_is_that_of_kernels_that_access_it(recorded_run: Run) -> None:
    """The oracle: local loads and stores of warps, of 4 bytes per thread (and 16 at most)."""
    values = recorded_run.metrics.drop_duplicates(["kernel_id", "metric"])
    table = values.pivot(index="kernel_id", columns="metric", values="value")
    names = [f"smsp__sass_inst_executed_op_local_{kind}.sum" for kind in ("ld", "st")]
    accesses = table[names].sum(axis=1)
    counted = recorded_run.counters.drop_duplicates("kernel_id").set_index("kernel_id")
    moved = counted["local_bytes"].reindex(accesses.index).astype(float)
    assert ((accesses > 0) == (moved > 0)).all()
    spills = moved[accesses > 0] / accesses[accesses > 0] / 32
    assert not spills.empty
    assert spills.between(3.9, 16.1).all()


@pytest.mark.every_run
def test_every_planned_defect_was_recorded(recorded_run: Run) -> None:
    from nsight_prof.targets.defects.pair import plans

    known, _ = planted(recorded_run)
    assert [one.name for one in known] == list(plans())
    assert all(one.gain > 0 for one in known), "each repair gains something"


@pytest.mark.every_run
@pytest.mark.parametrize("which", ["second", "third"])
def test_a_later_set_was_recorded_and_looked_at(
    which: str, root: Path, recorded_run_of: Callable[[str], Run]
) -> None:
    """What the rules of now make of them `scripts/proof --check` holds, which .ci/run starts."""
    from nsight_prof.targets.defects.pair import plans

    run = prepared(root, f"{RECORDED}-{which}", recorded_run_of)
    ran = [plan.name for plan in planted(run)[0]]
    assert set(ran) | set(left_out(run)) == set(plans(which))
    assert len(ran) >= 20
    look = read_first_look(root / "captures" / f"{RECORDED}-{which}")
    assert look is not None, "scripts/proof --first-look, before anybody reads the run"
    assert look.score.programs == len(ran)


def test_the_page_in_the_docs_tells_of_each_planned_pair(root: Path) -> None:
    from nsight_prof.targets.defects.pair import plans

    page = (root / "docs" / "proof-planted.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^### (.*)$", page, re.MULTILINE))
    assert {plan.title for plan in plans().values()} <= told, "scripts/proof writes it anew"
