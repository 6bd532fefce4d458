"""The catalogue against NVIDIA's CUPTI host library, without a GPU."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from parsers.errors import UsageError
from parsers.metrics import catalogue
from parsers.tables import tables

CHIPS = catalogue().chips
SETS = tuple(catalogue().sets)


@pytest.fixture(scope="module")
def script(root: Path) -> ModuleType:
    """scripts/metric_planner.py as a module."""
    spec = importlib.util.spec_from_file_location(
        "metric_planner", root / "scripts/metric_planner.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["metric_planner"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def planner(script: ModuleType) -> Any:
    try:
        return script.Planner()
    except (script.LibraryMissing, OSError) as error:
        pytest.skip(str(error))


def base(metric: str) -> str:
    return metric.split(".")[0]


@pytest.mark.parametrize("chip", sorted(catalogue().families))
def test_every_metric_exists_on_every_chip_that_the_catalogue_claims(
    chip: str, planner: Any, script: ModuleType
) -> None:
    known = catalogue()
    asked = known.tool_metrics(SETS, chip, list(known.tensor[known.family(chip)]))
    ours = [m for m in asked if not m.startswith(script.NCU_ONLY)]
    has = planner.metrics(chip)
    assert [m for m in ours if base(m) not in has] == []


@pytest.mark.parametrize("chip", CHIPS)
def test_recorded_passes_are_those_of_the_planner(
    chip: str, planner: Any, script: ModuleType
) -> None:
    known = catalogue()
    for sets in script.recorded_sets(list(SETS)):
        for dtypes in ([], *([dtype] for dtype in known.tensor[chip])):
            counted = planner.passes(chip, known.tool_metrics(sets, chip, dtypes))
            assert known.passes(sets, chip, dtypes) == counted, (sets, dtypes)


@pytest.mark.parametrize("chip", ["GA100", "GA102", "AD102", "GH100", "GB100", "GB202"])
def test_all_sets_stay_within_twelve_passes_and_five_without_stalls(chip: str) -> None:
    lean = [name for name in SETS if name != "stalls"]
    every, without = (catalogue().passes(sets, chip, ["bf16"]) for sets in (SETS, lean))
    assert every is not None
    assert every + 1 <= 12
    assert without is not None
    assert without + 1 <= 5


@pytest.mark.parametrize("chip", CHIPS)
def test_roofs_of_every_dtype_cost_no_pass(chip: str, planner: Any) -> None:
    known = catalogue()
    peaks = [counter.peak for counter in known.tensor[chip].values()]
    peaks += [roof.peak for roof in known.roofs if not roof.foreign]
    assert planner.passes(chip, peaks) == 1


def test_every_column_of_the_counters_table_is_in_the_catalogue() -> None:
    computed = {
        "kernel_id", "launch", "trace_duration_ns", "duration_difference",
        "top_stall", "top_stall_ratio", "bound_by", "roof_share",
    }  # fmt: skip
    declared = {c.name for c in tables()["counters"]} - computed
    shown = {c.name for c in catalogue().columns.values() if not c.helper}
    assert shown == declared


def test_every_column_is_asked_for_by_a_set() -> None:
    asked = {column for chosen in catalogue().sets.values() for column in chosen.columns}
    inner = {
        name
        for column in catalogue().columns.values()
        for source in column.sources
        for name in source.of
    }
    assert set(catalogue().columns) - asked - inner == set()


def test_inputs_come_before_the_columns_that_use_them() -> None:
    seen: set[str] = set()
    for column in catalogue().columns.values():
        used = {n for s in column.sources for n in s.of if n in catalogue().columns}
        assert used <= seen, column.name
        seen.add(column.name)


def test_only_the_dtypes_of_the_recipe_are_counted() -> None:
    asked = catalogue().tool_metrics(["roofline"], "GH100", ["bf16"])
    counted = [m for m in asked if "ops_path" in m and m.endswith(".sum")]
    assert counted == ["sm__ops_path_tensor_src_bf16_dst_fp32.sum"]


def test_a_dtype_that_the_chip_lacks_is_left_out() -> None:
    assert catalogue().tool_metrics(["roofline"], "GA100", ["fp8"]) == catalogue().tool_metrics(
        ["roofline"], "GA100", []
    )


def test_composite_throughput_metrics_are_never_asked_for() -> None:
    for chip in CHIPS:
        asked = catalogue().tool_metrics(SETS, chip, ["bf16"])
        assert [m for m in asked if "__throughput" in m] == []


def test_a_chip_without_a_catalogue_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="XX100") as error:
        catalogue().tool_metrics(["roofline"], "XX100", [])
    assert "GH100" in error.value.hint


def test_no_set_asks_for_nothing_on_any_chip() -> None:
    assert catalogue().tool_metrics([], "XX100", ["bf16"]) == []


def test_a_misspelt_set_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="roofine"):
        catalogue().tool_metrics(["roofine"], "GH100", [])


def test_chips_are_found_in_any_case() -> None:
    assert catalogue().family("gh100") == "GH100"
    assert catalogue().family("ad104") == "AD102"
