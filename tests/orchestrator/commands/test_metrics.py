"""`prof metrics`: the catalogue as text, names and JSON."""

import json

import pytest
from click.testing import CliRunner

from nsight_prof.orchestrator.commands.metrics import command
from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.metrics.catalogue import catalogue


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_table_shows_every_column_its_meaning_and_what_the_sets_cost() -> None:
    text = run()
    for column in catalogue().columns.values():
        assert column.helper or column.name in text
    assert "together" in text
    assert "H200" in text


def test_names_of_tool_metrics_stay_whole() -> None:
    text = run("--set", "roofline")
    assert "lts__t_sectors_srcunit_tex.sum.peak_sustained" in text
    assert "sm__ops_path_tensor_src_bf16_dst_fp32.sum" in text


def test_stall_reasons_are_explained_where_the_chip_has_them() -> None:
    assert "gmma" in run("--set", "stalls")
    assert "gmma" not in run("--set", "stalls", "--chip", "ga100")


def test_names_are_ready_for_ncu() -> None:
    names = run("--names", "--set", "occupancy").strip().split(",")
    assert names == catalogue().tool_metrics(["occupancy"], "GH100", ["bf16"])


def test_json_holds_everything() -> None:
    data = json.loads(run("--json", "--chip", "ad104", "--dtype", "fp8"))
    assert (data["chip"], data["like"]) == ("AD104", "AD102")
    assert data["passes"] == catalogue().passes(list(data["sets"]), "AD102", ["fp8"])
    assert {"column", "unit", "meaning", "formula", "from", "source"} <= set(data["columns"][0])


@pytest.mark.parametrize(
    ("gpu", "chip"),
    [
        ("H100", "GH100"),
        ("h200", "GH100"),
        ("NVIDIA GH200 480GB", "GH100"),
        ("A100", "GA100"),
        ("NVIDIA A100-SXM4-80GB", "GA100"),
        ("B200", "GB100"),
        ("GB300", "GB110"),
        ("L4", "AD102"),
        ("L40S", "AD102"),
        ("RTX 4090", "AD102"),
        ("rtx4090", "AD102"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "AD102"),
        ("NVIDIA RTX 2000 Ada Generation", "AD102"),
        ("NVIDIA RTX A6000", "GA102"),
        ("NVIDIA A10G", "GA102"),
        ("GeForce RTX 5090", "GB202"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "GB202"),
        ("Tesla T4", "TU102"),
        ("Quadro RTX 6000", "TU102"),
        ("GeForce GTX 1660 Ti", "TU116"),
        ("Tesla V100-SXM2-16GB", "GV100"),
    ],
)
def test_a_gpu_stands_for_its_chip(gpu: str, chip: str) -> None:
    assert catalogue().chip_of(gpu) == chip
    assert f"Columns on {chip} " in run("--chip", gpu, "--set", "occupancy")


@pytest.mark.parametrize("name", ["XX100", "P100", "GTX 1080", "L400", "H1000", ""])
def test_an_unknown_chip_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"does not have the chip {name}") as caught:
        run("--chip", name)
    assert "H100, H200" in caught.value.hint


def test_every_product_that_the_catalogue_names_is_a_name_of_its_chip() -> None:
    known = catalogue()
    for chip, products in known.products.items():
        for product in products.split(", "):
            gpu = f"{product}60" if product[-2:] in ("16", "20", "30", "40", "50") else product
            gpu = product if product in ("A30", "A40") else gpu
            assert known.chip_of(gpu) == chip, product


@pytest.mark.parametrize(("chip", "dtype"), [("GH100", "bf61"), ("GA100", "fp8")])
def test_an_input_type_that_the_chip_does_not_count_is_refused(chip: str, dtype: str) -> None:
    with pytest.raises(UsageError, match=f"{chip} has no counter .* {dtype}") as caught:
        run("--chip", chip, "--dtype", dtype)
    assert "bf16" in caught.value.hint


def test_a_chip_that_does_not_count_the_default_input_type_is_shown_all_the_same() -> None:
    assert "Columns on TU102" in run("--chip", "tu102")
