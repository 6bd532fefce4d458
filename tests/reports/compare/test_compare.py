"""The whole comparison: nightly runs, limits for CI, checks of what may be compared, formats."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from nsight_prof.orchestrator.commands.compare import command
from nsight_prof.parsers import tables
from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.run.directory import Manifest, RunDir, write_manifest
from nsight_prof.reports.compare.answer import findings
from nsight_prof.reports.compare.changes import Comparison
from nsight_prof.reports.compare.comparison import compare
from nsight_prof.reports.compare.limits import check_limits, parse_limit
from nsight_prof.reports.compare.section import as_json, github, markdown, schema
from nsight_prof.reports.compare.sides import Side, open_side
from nsight_prof.reports.page import Finding, Number, Text, Value
from nsight_prof.reports.page.writer import Writer

Maker = Callable[..., Side]
Launches = list[Any]
"""Of Launch, see conftest.py."""


def jittered(launches: Launches, seed: int, clock: float = 1.0) -> Launches:
    """Return another run of the same program: each launch differs a little, all share a clock."""
    random = np.random.default_rng(seed)
    factors = clock * random.normal(1, 0.01, len(launches))
    return [x.lasting(x.duration * f) for x, f in zip(launches, factors, strict=True)]


def slower(launches: Launches, word: str, factor: float) -> Launches:
    return [x.lasting(x.duration * factor) if word in x.name else x for x in launches]


def total(view: Comparison, key: str = "total_gpu_time") -> Any:
    return next(change for change in view.totals if change.key == key)


def test_two_nightly_runs_differ_by_noise_only(make_run: Maker, recorded: Launches) -> None:
    view = compare(
        make_run("A", jittered(recorded, 1)), make_run("B", jittered(recorded, 2, clock=1.008))
    )
    assert total(view).verdict == "same"
    assert "No difference" in verdict(view)
    wrong = [row for row in view.kernels if row.total.verdict in ("faster", "slower")]
    assert sum(abs(row.program or 0) for row in wrong) < 0.002


def test_a_slower_kernel_is_found_beside_the_noise(make_run: Maker, recorded: Launches) -> None:
    b = slower(jittered(recorded, 2), "RMS", 1.0)
    b = slower(b, "flash_fwd_kernel", 1.30)
    view = compare(make_run("A", jittered(recorded, 1)), make_run("B", b))
    (row,) = [row for row in view.kernels if row.total.verdict == "slower"]
    assert row.number == 1
    assert "FlashAttention" in row.title
    assert row.total.ratio == pytest.approx(1.30, abs=0.03)
    # It runs twice: what that tells of the noise is less than what single launches do.
    assert row.total.low is None


def test_repeats_tell_a_small_change_that_single_runs_cannot(
    make_run: Maker, recorded: Launches
) -> None:
    """1.5 % is below what single runs can show; five runs of each side show it."""
    clocks = [1.0, 1.002, 0.998, 1.001, 0.999]
    a, b = (
        [jittered(recorded, seed + i, clock * scale) for i, clock in enumerate(clocks)]
        for seed, scale in ((10, 1.0), (20, 1.015))
    )
    single = compare(make_run("A", a[0]), make_run("B", b[0]))
    assert total(single).verdict == "same"
    repeated = compare(make_run("A", a[0], repeats=a[1:]), make_run("B", b[0], repeats=b[1:]))
    assert total(repeated).verdict == "slower"
    assert total(repeated).basis == Text("{a} and {b} runs", a=5, b=5)


def test_rows_add_up_to_the_totals(make_run: Maker, recorded: Launches) -> None:
    view = compare(make_run("A", recorded), make_run("B", recorded[: len(recorded) // 2]))
    for side in ("a", "b"):
        rows = sum(getattr(row.total, side) or 0.0 for row in view.kernels)
        assert rows == pytest.approx(getattr(total(view), side), rel=1e-6)
        stages = sum(
            getattr(c, side) or 0.0 for s in view.stages for c in s.changes if c.key == "gpu_time"
        )
        assert stages == pytest.approx(rows, rel=1e-6)


def of_rule(view: Comparison, rule: str) -> Finding:
    return next(finding for finding in findings(view) if finding.rule == rule)


def verdict(view: Comparison) -> str:
    return Writer().text(findings(view)[0].verdict)


def evidence_of_work(view: Comparison) -> Mapping[str, Value]:
    (work,) = [x for x in findings(view)[0].evidence if isinstance(x, Text) and "work" in x.values]
    return work.values


LIMITS = {
    "total_gpu_time>+5%": "broken",
    "total_gpu_time > +20%": "kept",
    "total_gpu_time>+500us": "broken",
    "total_gpu_time>+50ms": "kept",
    "total_gpu_time>1ms": "broken",
    "total_gpu_time<1ms": "kept",
    "total_gpu_time<-5%": "kept",
    "stage:decode:gpu_time>+5%": "broken",
    "stage:prefill:gpu_time>+5%": "kept",
    "kernel:nvjet.*>+10%": "broken",
    "kernel:flash_fwd_kernel.*>+10%": "kept",
    "kernel:new_kernel>+10%": "broken",
    "launches>+1": "broken",
    "launches>+2": "kept",
}


def test_limits(make_run: Maker, recorded: Launches) -> None:
    b = [x.lasting(x.duration * 1.2) if x.stage == "decode" else x for x in recorded]
    b += [type(recorded[0])("decode", "new_kernel", "1x1x1", 3e3)] * 2
    rules = [parse_limit(rule) for rule in LIMITS]
    view = compare(make_run("A", recorded), make_run("B", b), rules)
    assert {limit.rule: limit.state for limit in view.limits} == LIMITS


def test_a_limit_within_the_noise_does_not_fail(make_run: Maker, recorded: Launches) -> None:
    view = compare(
        make_run("A", recorded),
        make_run("B", jittered(recorded, 1, 1.01)),
        [parse_limit("total_gpu_time>+0.5%")],
    )
    (limit,) = view.limits
    assert limit.state == "noise"
    assert "repeats" in Writer().text(limit.sentence)


@pytest.mark.parametrize(
    "rule", ["total_gpu_time", "total_gpu_time>5%", "total_gpu_time>+5 parsecs", ">+5%", ""]
)
def test_what_is_no_rule_is_refused_with_the_forms(rule: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_limit(rule)
    assert "+5" in error.value.hint or "us" in error.value.hint


def test_a_rule_that_names_nothing_lists_what_there_is(make_run: Maker, recorded: Launches) -> None:
    view = compare(make_run("A", recorded), make_run("B", recorded))
    for rule in ("gpu_tiem>+5%", "stage:warmup:gpu_time>+5%", "kernel:nothing_like_this>+1%"):
        with pytest.raises(UsageError) as error:
            check_limits([parse_limit(rule)], view)
        assert "total_gpu_time" in error.value.hint
    with pytest.raises(UsageError, match="regular expression"):
        check_limits([parse_limit("kernel:*>+1%")], view)


def test_another_gpu_is_refused_unless_forced(make_run: Maker, recorded: Launches) -> None:
    a = make_run("A", recorded)
    b = make_run("B", recorded, gpus=[{"device": 0, "name": "NVIDIA H100"}])
    with pytest.raises(UsageError, match="NVIDIA H200 against NVIDIA H100") as error:
        compare(a, b)
    assert "--force" in error.value.hint
    forced = compare(a, b, force=True)
    assert forced.checks[0].level == "refuse"
    assert "GPU" in Writer().value(of_rule(forced, "verdict").disproof)


def test_kernels_are_not_held_against_graphs_traced_as_wholes(
    make_run: Maker, recorded: Launches
) -> None:
    a, b = make_run("A", recorded), make_run("B", recorded[:9])
    stages = b.run.stages.copy()
    stages["wall_ns"] += 2 * stages["kernel_ns"]  # the GPU works on, neither in kernels nor copies
    tables.write(stages.assign(memory_ns=0), "stages", b.run.directory.tables)
    with pytest.raises(UsageError, match="of a trace but those in CUDA graphs"):
        compare(a, open_side("B", b.run.path))


def test_a_terminal_gets_the_page_without_links(
    recorded_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    command.main([str(recorded_run)] * 2, standalone_mode=False)
    page = capsys.readouterr().out
    assert page.startswith("# ")
    assert "](#" not in page
    assert "<a id" not in page


def test_versions_and_arguments_that_differ_are_named(make_run: Maker, recorded: Launches) -> None:
    a = make_run("A", recorded, recipe={"target": {"file": "block.py", "args": {"batch": 8}}})
    b = make_run(
        "B",
        recorded,
        recipe={"target": {"file": "block.py", "args": {"batch": 64, "compile": True}}},
        software={"driver": "580.1", "torch": "2.12"},
    )
    view = compare(a, b)
    assert [(c.label, c.a, c.b) for c in view.settings] == [
        ("batch", "8", "64"),
        ("compile", "not set", "true"),
    ]
    assert [c.key for c in view.checks if c.level == "warn"] == ["torch"]
    assert evidence_of_work(view)["work"] == Number(8, "x")
    assert "batch 8 → 64" in Writer().text(of_rule(view, "settings").verdict)


def test_runs_without_stages_in_common_are_matched_as_wholes(
    make_run: Maker, recorded: Launches
) -> None:
    bare = [type(x)("", x.name, x.grid, x.duration, x.block) for x in recorded]
    view = compare(make_run("A", recorded), make_run("B", bare))
    assert any("without stages" in note.message for note in view.notes)
    assert {row.match for row in view.kernels} == {"identical"}


def test_stages_that_a_framework_numbers_are_one(make_run: Maker, recorded: Launches) -> None:
    def numbered(first: int) -> Launches:
        return [
            type(x)(f"step {first + i // 40}", x.name, x.grid, x.duration, x.block)
            for i, x in enumerate(recorded)
        ]

    view = compare(make_run("A", numbered(0)), make_run("B", numbered(1000)))
    assert [stage.stage for stage in view.stages] == ["step *"]
    assert {row.match for row in view.kernels} == {"identical"}


def test_json_is_as_its_schema_says(make_run: Maker, recorded: Launches, root: Path) -> None:
    published = json.loads((root / "reports/compare/compare.schema.json").read_text("utf-8"))
    assert published == schema()
    Draft202012Validator.check_schema(published)
    one = [type(recorded[0])("", "once", "1x1x1", 10.0)]
    for b in (recorded, one, slower(recorded, "flash", 2.0)):
        view = compare(make_run("A", recorded), make_run("B", b))
        Draft202012Validator(published).validate(json.loads(as_json(view)))


def test_times_per_unit_of_work(make_run: Maker, recorded: Launches) -> None:
    """Eight times the batch in four times the time: half the time a request."""
    a, b = (
        make_run(str(n), [x.lasting(x.duration * scale) for x in recorded],
                 recipe={"target": {"file": "block.py", "args": {"batch": n, "steps": 2}}})
        for n, scale in ((8, 1), (64, 4))
    )  # fmt: skip
    view = compare(a, b, [parse_limit("total_gpu_time_per_unit>+0%")], per="batch * steps")
    assert total(view, "total_gpu_time_per_unit").ratio == pytest.approx(0.5)
    assert total(view, "wall_time_per_unit").verdict == "faster"
    assert view.limits[0].state == "kept"
    assert "B is faster: GPU time per batch * steps" in verdict(view)
    assert evidence_of_work(view) == {
        "work": Number(8, "x"),
        "gpu": Number(total(view).ratio, "x"),
        "wall": Number(total(view, "wall_time").ratio, "x"),
    }
    by_itself = compare(a, b)
    assert by_itself.unit == "batch item"
    assert by_itself.work == view.work
    assert compare(a, b, per="none").work is None
    with pytest.raises(UsageError, match="no number for the argument sequences") as error:
        compare(a, b, per="sequences")
    assert "batch, steps" in error.value.hint


def test_kernels_are_held_against_what_the_work_lets_expect(
    make_run: Maker, recorded: Launches
) -> None:
    """Eight times the time for eight times the batch, but twice that of attention."""
    factor = {"flash": 16.0, "RMS": 4.0}
    b = [
        x.lasting(x.duration * next((f for word, f in factor.items() if word in x.name), 8.0))
        for x in recorded
    ]
    sides = [
        make_run(str(n), launches, recipe={"target": {"file": "block.py", "args": {"batch": n}}})
        for n, launches in ((8, recorded), (64, b))
    ]
    view = compare(sides[0], sides[1])
    for row in view.kernels:
        names = " ".join(m.kernel.name for m in row.a)
        expected = "slower" if "flash" in names else "faster" if "RMS" in names else "same"
        assert row.total.verdict == expected, row.title
    # What kernels add per unit of work is what the program adds.
    per_unit = total(view, "total_gpu_time_per_unit").ratio
    assert per_unit is not None
    assert sum(row.program or 0.0 for row in view.kernels) == pytest.approx(per_unit - 1)
    assert total(view, "total_gpu_time").verdict == "more"


def test_formats_say_the_same(make_run: Maker, recorded: Launches) -> None:
    b = slower(recorded, "flash_fwd", 1.5)
    view = compare(make_run("A", recorded), make_run("B", b), [parse_limit("total_gpu_time>+0.1%")])
    data = json.loads(as_json(view))
    assert data["kind"] == "compare"
    assert data["view"]["kernels"][0]["total"]["verdict"] == "slower"
    for text in (markdown(view), github(view)):
        assert "FlashAttention" in text
        assert "`total_gpu_time>+0.1%`" in text
    assert "> [!CAUTION]" in github(view) or "> [!WARNING]" in github(view)
    assert len(github(view)) < 65_536


def test_a_kernel_says_why_it_changed(make_run: Maker, recorded: Launches) -> None:
    launch = type(recorded[0])
    a = [launch("decode", "softmax_kernel", "8x1x1", 1e5)] * 8
    b = [launch("decode", "softmax_kernel", "8x1x1", 2e5)] * 2
    view = compare(make_run("A", a), make_run("B", b))
    (reason,) = view.kernels[0].reasons
    assert reason.values == {
        "a": 8,
        "b": 2,
        "before": Number(1e5, "ns", digits=3),
        "after": Number(2e5, "ns", digits=3),
    }
    assert "2 launches instead of 8, 200 us each instead of 100 us" in markdown(view)


def test_github_is_cut_to_what_github_takes(make_run: Maker, recorded: Launches) -> None:
    names = [f"kernel_{'x' * 200}_{i}" for i in range(300)]
    launch = type(recorded[0])
    a = [launch("decode", name, "1x1x1", 1e5) for name in names]
    text = github(compare(make_run("A", a), make_run("B", [x.lasting(3e5) for x in a])))
    assert len(text) <= 60_000
    assert text.count("<details>") == text.count("</details>")


def test_runs_without_times_are_refused(
    make_run: Maker, recorded: Launches, tmp_path: Path
) -> None:
    a = make_run("A", recorded)
    shutil.copytree(a.run.path, tmp_path / "bare")
    for table in (tmp_path / "bare" / "tables").glob("*.parquet"):
        table.unlink()
    with pytest.raises(ArtifactUnreadable, match="no times in common"):
        compare(open_side("A", tmp_path / "bare"), open_side("B", tmp_path / "bare"))


def test_the_command_fails_ci_on_a_regression(recorded_run: Path, tmp_path: Path) -> None:
    where = str(recorded_run)
    out = tmp_path / "compare.md"
    runner = CliRunner()
    kept = runner.invoke(
        command, [where, where, "--fail-on", "wall_time>+5%", "-o", str(out)], standalone_mode=False
    )
    assert kept.return_value == 0, kept.output
    assert "Within the noise: 66 of 66" in out.read_text(encoding="utf-8")
    broken = runner.invoke(
        command, [where, where, "--fail-on", "launches>1000"], standalone_mode=False
    )
    assert broken.return_value == 1
    assert "broken: launches>1000" in broken.output


def sweep_of(folder: Path, source: Path, key: str) -> Path:
    """Write a sweep of two variants, copies of one run."""
    for value in (1, 2):
        shutil.copytree(source, folder / "variants" / f"{key.split('.')[-1]}={value}")
    recipe = {"name": "s", "sweep": {key: [1, 2]}}
    names = [path.name for path in sorted((folder / "variants").iterdir())]
    manifest = Manifest("s", "2026-11-21T08:00:00Z", recipe, variants=names)
    write_manifest(RunDir(folder), manifest)
    return folder


def test_a_sweep_over_repeat_is_a_run_with_its_repeats(recorded_run: Path, tmp_path: Path) -> None:
    side = open_side("A", sweep_of(tmp_path / "s", recorded_run, "target.env.REPEAT"))
    assert len(side.runs) == 2
    view = compare(side, open_side("B", recorded_run))
    assert total(view).basis == Text("{a} and {b} runs", a=2, b=1)
    assert total(view).verdict == "same"


def test_another_sweep_names_its_variants(recorded_run: Path, tmp_path: Path) -> None:
    folder = sweep_of(tmp_path / "s", recorded_run, "target.args.batch")
    with pytest.raises(UsageError, match="batch=1, batch=2") as error:
        open_side("A", folder)
    assert "variants/batch=1" in error.value.hint
