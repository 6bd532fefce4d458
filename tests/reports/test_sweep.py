import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run, load_variants
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.run.directory import (
    VARIANTS,
    Manifest,
    RunDir,
    read_manifest,
    write_manifest,
)
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Bullets, Evidence, Number
from nsight_prof.reports.page.json import section_json
from nsight_prof.reports.page.markdown import section_markdown
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.sweep.section import SweepRow, SweepView, sweep_section
from nsight_prof.reports.sweep.sweep import sweep_view


def view_of(path: Path) -> SweepView:
    return sweep_view(read_manifest(RunDir(path)), load_variants(RunDir(path)))


def row(rows: tuple[SweepRow, ...], name: str) -> SweepRow:
    return next(one for one in rows if one.name == name)


def verdicts(view: SweepView) -> list[str]:
    return [Writer().text(finding.verdict) for finding in sweep_section(view).findings]


def caveats(view: SweepView) -> str:
    parts = sweep_section(view).blocks
    items = [item for part in parts if isinstance(part, Bullets) for item in part.items]
    return " ".join(map(Writer().text, items))


@pytest.fixture
def sweep(tmp_path: Path, make_run: Callable[..., Path]) -> Path:
    """Batch 8 and batch 16; with 16 the kernels of prefill take twice as long."""
    path = tmp_path / "sweep"
    names = ["batch=8", "batch=16"]
    for name, factor in zip(names, (1, 2), strict=True):
        variant = path / VARIANTS / name
        shutil.copytree(make_run(), variant)
        run = load_run(variant)
        manifest = run.manifest
        manifest.recipe["target"]["args"]["batch"] = int(name.split("=")[1])
        write_manifest(RunDir(variant), manifest)
        frame = run.kernels.copy()
        prefill = frame["stage"] == "prefill"
        frame.loc[prefill, "total_ns"] *= factor
        frame["share"] = frame["total_ns"] / frame["total_ns"].sum()
        tables.write(frame, "kernels", variant / "tables")
        stages = run.stages.copy()
        stages.loc[stages["stage"] == "prefill", ["kernel_ns", "wall_ns"]] *= factor
        tables.write(stages, "stages", variant / "tables")
    recipe = {"name": "batches", "question": "What does a larger batch cost?"}
    write_manifest(RunDir(path), Manifest("sweep", "2026-11-21", recipe, variants=names))
    return path


def test_variants_stand_side_by_side_with_what_differs(sweep: Path) -> None:
    view = view_of(sweep)
    assert [column.name for column in view.variants] == ["batch=8", "batch=16"]
    assert [[f"{s.label}={s.value}" for s in c.settings] for c in view.variants] == [
        ["target.args.batch=8"],
        ["target.args.batch=16"],
    ]
    assert view.variants[0].ratio == 1
    assert view.variants[1].ratio == pytest.approx((24.2504 + 2 * 11.1) / 35.3504)
    assert "1.31x as much" in verdicts(view)[1]


def test_variants_with_other_work_compare_per_unit_of_it(sweep: Path) -> None:
    """Twice the batch in 1.31 times the time: a sequence takes 35 % less."""
    view = view_of(sweep)
    total = [column.gpu_time_ns or 0.0 for column in view.variants]
    assert view.unit == "batch item"
    assert [column.work for column in view.variants] == [1, 2]
    assert [column.per_unit_ns for column in view.variants] == [total[0] / 8, total[1] / 16]
    least, _, stages = sweep_section(view).findings
    assert "GPU time per batch item is least at target.args.batch = 16" in verdicts(view)[0]
    saved = 1 - total[1] / 16 / (total[0] / 8)
    assert [x.value for x in least.evidence if isinstance(x, Evidence)] == [
        Number(saved, "fraction", digits=3)
    ]
    assert stages.verdict.values["work"] == Number(2, "x", digits=3)


def test_variants_of_equal_or_unknown_work_compare_in_all(sweep: Path) -> None:
    path = RunDir(sweep / VARIANTS / "batch=16")
    manifest = read_manifest(path)
    manifest.recipe["target"]["args"]["batch"] = "auto"
    write_manifest(path, manifest)
    view = view_of(sweep)
    assert (view.unit, view.variants[1].per_unit_ns) == ("", None)
    assert "1.31x as much" in verdicts(view)[0]
    assert "per unit of work, not in total" in verdicts(view)[-1]


def test_stages_are_compared_with_the_first_variant(sweep: Path) -> None:
    stages = view_of(sweep).stages
    assert [cell.ratio for cell in row(stages, "prefill").cells] == [1, 2]
    assert [cell.ratio for cell in row(stages, "decode").cells] == [1, 1]


def test_kernels_are_compared_by_name_with_their_bound(sweep: Path) -> None:
    kernels = view_of(sweep).kernels
    cells = row(kernels, "cuBLAS GEMM 256x128").cells
    assert [cell.ratio for cell in cells] == [1, 2]
    assert {cell.bound_by for cell in cells} == {"tensor"}
    assert cells[0].calls == 4
    assert kernels[0].name == "cuBLAS GEMM 256x128"


def test_tables_of_the_page_are_numbers(sweep: Path) -> None:
    tables = {t["key"]: t for t in section_json(sweep_section(view_of(sweep)))["tables"]}
    times = {row[0]: row[1:] for row in tables["stages"]["rows"]}
    ratios = {row[0]: row[1:] for row in tables["stages-relative"]["rows"]}
    assert [cell["unit"] for cell in times["prefill"]] == ["ns", "ns"]
    assert [cell["value"] for cell in ratios["prefill"]] == [1, 2]
    assert tables["kernels"]["rows"][0][-1] == "Tensor Cores"


def test_a_kernel_of_one_variant_has_an_empty_cell_in_the_other(sweep: Path) -> None:
    run = load_run(sweep / VARIANTS / "batch=16")
    frame = run.kernels[run.kernels["short_name"] != "PyTorch softmax"]
    tables.write(frame, "kernels", run.directory.tables)
    cells = row(view_of(sweep).kernels, "PyTorch softmax").cells
    assert cells[0].total_ns == 396800
    assert (cells[1].total_ns, cells[1].ratio) == (None, None)


def test_a_variant_that_failed_keeps_its_column_and_says_why(sweep: Path) -> None:
    shutil.rmtree(sweep / VARIANTS / "batch=16")
    view = view_of(sweep)
    assert view.variants[1].gpu_time_ns is None
    assert "not a run directory" in view.variants[1].problem
    assert "nothing to compare" in verdicts(view)[0]
    assert caveats(view).startswith("No numbers of batch=16")


def test_the_baseline_is_the_first_variant_that_has_numbers(sweep: Path) -> None:
    shutil.rmtree(sweep / VARIANTS / "batch=8")
    view = view_of(sweep)
    assert [cell.ratio for cell in row(view.kernels, "cuBLAS GEMM 256x128").cells] == [None, 1]
    assert [column.ratio for column in view.variants] == [None, 1]


def test_equal_variants_are_called_equal(sweep: Path) -> None:
    manifest = read_manifest(RunDir(sweep))
    shutil.rmtree(sweep / VARIANTS / "batch=16")
    shutil.copytree(sweep / VARIANTS / "batch=8", sweep / VARIANTS / "batch=16")
    view = view_of(sweep)
    assert manifest.variants == ["batch=8", "batch=16"]
    assert verdicts(view) == ["All variants take the same GPU time within 2.0 %."]
    assert "do not differ" in caveats(view)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        view_of(tmp_path)


def test_benchmarks_compare_case_by_case(
    tmp_path: Path, make_bench_run: Callable[..., Run], bench_row: Callable[..., dict[str, Any]]
) -> None:
    """One case takes four times as long, the other as long as before: twice in the mean."""
    path = tmp_path / "sweep"
    times = {"slow=0": (1e-3, 5e-4), "slow=1": (4e-3, 5e-4)}
    for name, (x, y) in times.items():
        made = make_bench_run([bench_row("x", median_s=x), bench_row("y", median_s=y)])
        shutil.copytree(made.path, path / VARIANTS / name)
        shutil.rmtree(made.path)
    write_manifest(RunDir(path), Manifest("s", "2026-11-21", {"name": "s"}, variants=[*times]))
    view = view_of(path)
    assert view.kernels == ()
    assert [column.ratio for column in view.variants] == [1, pytest.approx(2)]
    assert [column.problem for column in view.variants] == ["", ""]
    assert [[c.total_ns for c in r.cells] for r in view.cases] == [[1e6, 4e6], [5e5, 5e5]]
    assert "most at slow=1, 2.00x (geometric mean" in verdicts(view)[0]


def test_variants_with_long_names_go_by_their_number(sweep: Path) -> None:
    """Four keys in a name are more than a heading or a bar has room for; the table says which."""
    names = ["batch=8,attention=flash-attention-3,compile=off", "batch=16"]
    (sweep / VARIANTS / "batch=8").rename(sweep / VARIANTS / names[0])
    manifest = read_manifest(RunDir(sweep))
    manifest.variants = names
    write_manifest(RunDir(sweep), manifest)
    for name, question in zip(names, ("Which? " * 20, "What?"), strict=True):
        variant = RunDir(sweep / VARIANTS / name)
        recipe = read_manifest(variant)
        recipe.recipe["question"] = question  # sets nothing: it is in no sentence
        write_manifest(variant, recipe)
    page = section_markdown(sweep_section(view_of(sweep)))
    assert "| Stage | variant 1 | batch=16 |" in page
    assert f"variant 1: `{names[0]}`" in page
    assert "least at `target.args.batch = 16`" in page
    assert "Which?" not in page
