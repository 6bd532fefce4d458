"""Operators that others measured: reading aiconfigurator's tables, and costs from them."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.predict import aiconfigurator
from nsight_prof.parsers.predict.aiconfigurator import read_aiconfigurator
from nsight_prof.parsers.predict.costs import T1, datasheet
from nsight_prof.parsers.predict.imported import Completed, Imported, benchmarked
from nsight_prof.parsers.predict.measured import Cases, Products
from nsight_prof.parsers.predict.operators import Kind, Operator, Step, operators
from nsight_prof.parsers.serving.model_shape import ModelShape, Quantized, read_model_shape
from nsight_prof.parsers.tables import empty
from tests.parsers.aiconfigurator_tables import DEVICE, product_s, quantization_s, write_tables

H200 = datasheet(DEVICE)
LENGTHS = st.integers(1, 16384)


@pytest.fixture(scope="module")
def shape(root: Path) -> ModelShape:
    return read_model_shape(root / "targets/serving/configs/llama-3.1-8b")


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    folder = write_tables(tmp_path_factory.mktemp("aic"))
    return read_aiconfigurator(folder, "h200_sxm", "vllm", "").frame


@pytest.fixture(scope="module")
def costs(frame: pd.DataFrame, shape: ModelShape) -> Imported:
    return Imported(frame, H200, shape)


def product(m: int, n: int = 4096, k: int = 4096) -> Operator:
    moved = 2.0 * (m * k + n * k + m * n)
    return Operator("o_proj", Kind.PRODUCT, 1, m, n, k, 2.0 * m * n * k, moved)


def test_tables_are_read_in_base_units(tmp_path: Path) -> None:
    found = read_aiconfigurator(write_tables(tmp_path), "", "vllm", "0.2.0")
    assert (found.device, found.system) == (DEVICE, "h200_sxm")
    counts = found.frame.groupby("kind").size()
    assert set(counts.index) == {
        "product", "prefill attention", "decode attention", "all_reduce", "all_gather",
    }  # fmt: skip
    row = found.frame[found.frame["kind"].eq("all_reduce")].iloc[0]
    assert (row["gpus"], row["bytes"], row["seconds"]) == (2, 2 * 128, pytest.approx(5.01e-6))
    # Eager rows time launches; types of 1 byte are no all-gather of ours.
    assert counts["all_reduce"] == 8
    assert counts["all_gather"] == 4
    decode = found.frame[found.frame["kind"].eq("decode attention")]
    assert set(decode["tokens"]) == {1}
    assert set(decode["context"]) == {127, 1023, 8191}
    assert decode["window"].isna().all()


def test_the_newest_version_and_what_it_reuses_are_found(tmp_path: Path) -> None:
    folder = write_tables(tmp_path)
    newest = read_aiconfigurator(folder, "h200_sxm", "vllm", "")
    assert "gemm/vllm/0.10.0/gemm_perf.parquet" in newest.files
    reused = read_aiconfigurator(folder, "h200_sxm", "vllm", "0.9.0")
    assert "gemm/vllm/0.10.0/gemm_perf.parquet" in reused.files
    # What its description says of NCCL goes before the newest; an all-reduce is of the last before.
    assert "comm/nccl/2.1/nccl_perf.parquet" in newest.files
    assert "comm/vllm/0.2.0/custom_allreduce_perf.parquet" in newest.files


@pytest.mark.parametrize(
    ("system", "framework", "version", "words"),
    [
        ("b200_sxm", "vllm", "", "no system b200_sxm"),
        ("h200_sxm", "sglang", "", "no products and attention of sglang"),
        ("h200_sxm", "vllm", "7.0", "no gemm_perf of vllm 7.0"),
    ],
)
def test_what_is_not_there_is_said(
    tmp_path: Path, system: str, framework: str, version: str, words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_aiconfigurator(write_tables(tmp_path), system, framework, version)
    assert words in caught.value.message
    assert caught.value.hint


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no tables of aiconfigurator"):
        read_aiconfigurator(tmp_path, "", "vllm", "")


def test_a_pointer_of_git_lfs_is_no_table(tmp_path: Path) -> None:
    folder = write_tables(tmp_path)
    path = folder / "systems/data/h200_sxm/gemm/vllm/0.2.0/gemm_perf.parquet"
    path.write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ArtifactUnreadable) as caught:
        read_aiconfigurator(folder, "", "vllm", "0.2.0")
    assert "git lfs pull" in caught.value.hint


def test_a_table_of_another_layout_names_what_it_lacks(tmp_path: Path) -> None:
    folder = write_tables(tmp_path)
    path = folder / "systems/data/h200_sxm/gemm/vllm/0.2.0/gemm_perf.parquet"
    pd.read_parquet(path).drop(columns=["k", "latency"]).to_parquet(path)
    with pytest.raises(ArtifactUnreadable, match="lacks k, latency"):
        read_aiconfigurator(folder, "", "vllm", "0.2.0")


@pytest.mark.parametrize(("part", "refused"), [(0.005, False), (0.2, True)])
def test_rows_faster_than_the_datasheet_are_left_out_and_many_refuse_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: float, refused: bool
) -> None:
    monkeypatch.setattr(aiconfigurator, "FALSE_ROWS", 0.1)
    folder = write_tables(tmp_path)
    path = folder / "systems/data/h200_sxm/attention/vllm/0.2.0/context_attention_perf.parquet"
    table = pd.read_parquet(path).sort_values("latency", ascending=False, ignore_index=True)
    table.loc[: int(part * len(table)), "latency"] = 1e-9
    table.to_parquet(path)
    if refused:
        with pytest.raises(ArtifactUnreadable, match="cannot be trusted: 2"):
            read_aiconfigurator(folder, "", "vllm", "0.2.0")
    else:
        found = read_aiconfigurator(folder, "", "vllm", "0.2.0")
        assert "rows were left out" in found.notes[-1]


@pytest.mark.parametrize("m", [1, 64, 4096])
@pytest.mark.parametrize("n", [1024, 4096])
def test_a_measured_product_is_returned_as_it_is(costs: Imported, m: int, n: int) -> None:
    found = costs.of(product(m, n))
    assert found.seconds == pytest.approx(product_s(m, n, 4096), rel=1e-9)
    assert found.low <= found.seconds <= found.high
    assert found.tier == T1


@given(low=st.integers(1, 4095), more=st.integers(1, 512))
def test_products_are_monotonic_between_measured_sizes(
    costs: Imported, low: int, more: int
) -> None:
    first, second = (costs.of(product(m)).seconds for m in (low, min(4096, low + more)))
    assert first <= second * (1 + 1e-9)


@pytest.mark.parametrize(("n", "k"), [(3000, 4096), (6144, 2048), (20000, 8192)])
def test_products_of_other_shapes_follow_their_neighbours(costs: Imported, n: int, k: int) -> None:
    for m in (1, 100, 4096, 20_000):
        assert costs.of(product(m, n, k)).seconds == pytest.approx(product_s(m, n, k), rel=0.1)


def fp8_costs(frame: pd.DataFrame, shape: ModelShape) -> tuple[Imported, dict[str, Operator]]:
    narrow = dataclasses.replace(shape, quantized=Quantized("fp8", dynamic=True))
    step = Step(decode=64, context=1023)
    return Imported(frame, H200, narrow), {one.name: one for one in operators(narrow, step)}


def test_a_product_in_fp8_and_the_quantization_of_its_input_are_apart(
    frame: pd.DataFrame, shape: ModelShape
) -> None:
    """Both were measured together, so that their sum must be what was measured."""
    costs, found = fp8_costs(frame, shape)
    product, added = costs.of(found["o_proj"]), costs.of(found["quantize_o_proj"])
    assert product.seconds == pytest.approx(product_s(64, 4096, 4096), rel=1e-9)
    assert added.seconds == pytest.approx(1.5 * quantization_s(64, 4096), rel=1e-9)
    assert (added.low, product.low > 0) == (0.0, True)
    # Widths between two measured ones lie on the line through them.
    between = dataclasses.replace(found["quantize_o_proj"], k=2560)
    assert costs.of(between).seconds == pytest.approx(1.5 * quantization_s(64, 2560), rel=1e-9)


@pytest.mark.parametrize("gpus", [1, 2])
def test_routed_products_are_those_of_such_experts(
    frame: pd.DataFrame, root: Path, gpus: int
) -> None:
    config = root / "targets/serving/configs/qwen3-30b-a3b"
    shape = read_model_shape(config).shard(gpus)
    experts = next(o for o in operators(shape, Step(decode=64)) if o.kind is Kind.ROUTED)
    found = Imported(frame, H200, shape).of(experts)
    assert found.seconds == pytest.approx(0.104e-3 / gpus)
    # The interval holds every way of sharing out tokens that was measured.
    assert found.low <= 0.9 * found.seconds
    assert found.high >= 1.2 * found.seconds
    with pytest.raises(UsageError, match="no routed products of such experts"):
        Imported(frame, H200, read_model_shape(config).shard(4)).of(experts)


def test_models_without_imported_experts_are_refused(frame: pd.DataFrame, root: Path) -> None:
    shape = read_model_shape(root / "targets/serving/configs/qwen3-30b-a3b")
    experts = next(o for o in operators(shape, Step(decode=64)) if o.kind is Kind.ROUTED)
    dense = frame[~frame["kind"].eq("routed products")]
    with pytest.raises(UsageError, match="no run has them"):
        Imported(dense, H200, shape).of(experts)
    notes = benchmarked(Cases(), frame, H200, shape, frozenset())[1]
    assert any(note.key == "expert-spread" for note in notes)


def test_fp8_without_its_quantization_and_in_blocks_is_left_out(
    tmp_path: Path, frame: pd.DataFrame, shape: ModelShape
) -> None:
    assert set(frame["dtype"].unique()) == {"bf16", "fp8"}
    old = read_aiconfigurator(write_tables(tmp_path), "", "vllm", "0.2.0")
    assert any("hold the quantization" in note for note in old.notes)
    costs, found = fp8_costs(old.frame, shape)
    with pytest.raises(UsageError, match="too few products in fp8"):
        costs.of(found["o_proj"])
    assert costs.of(found["quantize_o_proj"]).low == 0
    cached = dataclasses.replace(shape, kv_bytes=1)
    attention = next(o for o in operators(cached, Step(decode=1)) if o.kind is Kind.DECODE)
    with pytest.raises(UsageError, match="KV cache in fp8"):
        Imported(frame, H200, cached).of(attention)


def test_products_that_are_held_out_are_not_used(frame: pd.DataFrame, shape: ModelShape) -> None:
    bare = Imported(frame, H200, shape, frozenset({(4096, 4096)}))
    assert (4096, 4096) not in bare.products("bf16").curves
    none = frozenset((n, k) for n in (1024, 4096, 16384) for k in (1024, 4096, 16384))
    with pytest.raises(UsageError, match="too few products in bf16"):
        Imported(frame, H200, shape, none).of(product(8))


def test_measured_attention_is_returned_as_it_is(costs: Imported, frame: pd.DataFrame) -> None:
    for kind, step in (
        (Kind.PREFILL, Step(prefill=((1024, 0),) * 4)),
        (Kind.DECODE, Step(decode=4, context=1023)),
    ):
        item = next(o for o in operators(costs.shape, step) if o.kind is kind)
        rows = frame[frame["kind"].eq(str(kind)) & frame["batch"].eq(4)]
        rows = rows[rows["heads"].eq(32) & rows["kv_heads"].eq(8)]
        length = "tokens" if kind is Kind.PREFILL else "context"
        row = rows[rows[length].eq(1024 if kind is Kind.PREFILL else 1023)].iloc[0]
        assert costs.of(item).seconds == pytest.approx(row["seconds"], rel=1e-9)


@given(new=LENGTHS, before=st.integers(0, 8192), batch=st.integers(1, 64))
def test_attention_is_never_faster_than_the_roofline_of_a_table_that_is_not(
    costs: Imported, new: int, before: int, batch: int
) -> None:
    step = Step(prefill=((new, before),), decode=batch, context=new)
    for item in operators(costs.shape, step):
        if item.kind in (Kind.PREFILL, Kind.DECODE):
            found = costs.of(item)
            assert found.seconds >= H200.roofline(item)
            assert math.isfinite(found.high)


def test_heads_between_measured_ones_lie_between_them(frame: pd.DataFrame, root: Path) -> None:
    """28 heads (Qwen2.5-7B) between 16 and 32 of as many key-value heads."""
    qwen = read_model_shape(root / "targets/serving/configs/qwen2.5-7b")
    between = Imported(frame, H200, qwen)
    item = next(
        o for o in operators(qwen, Step(prefill=((1024, 0),) * 4)) if o.kind is Kind.PREFILL
    )
    ends = frame[frame["kind"].eq(str(Kind.PREFILL)) & frame["kv_heads"].eq(4)]
    ends = ends[ends["batch"].eq(4) & ends["tokens"].eq(1024)]
    low, high = (float(ends[ends["heads"].eq(n)]["seconds"].iloc[0]) for n in (16, 32))
    assert low < between.of(item).seconds < high


def test_heads_that_nobody_measured_are_refused(frame: pd.DataFrame, root: Path) -> None:
    small = read_model_shape(root / "targets/serving/configs/qwen2.5-0.5b")
    item = next(o for o in operators(small, Step(prefill=((64, 0),))) if o.kind is Kind.PREFILL)
    costs = Imported(frame, H200, small)
    with pytest.raises(UsageError, match="no prefill attention with heads of 64 values"):
        costs.of(item)


def test_collectives_are_known_among_as_many_gpus(frame: pd.DataFrame, shape: ModelShape) -> None:
    two = Imported(frame, H200, shape.shard(2))
    moved = Operator("all_reduce", Kind.COLLECTIVE, 1, 1, bytes=2 * 128)
    assert two.of(moved).seconds == pytest.approx(5.01e-6)
    large = Operator("all_reduce", Kind.COLLECTIVE, 1, 1, bytes=2 * 128 * 2**40)
    largest = Operator("all_reduce", Kind.COLLECTIVE, 1, 1, bytes=2 * 128 * 2**18)
    assert two.of(large).seconds == pytest.approx(2**22 * two.of(largest).seconds)
    with pytest.raises(UsageError, match="no all_reduce among 8 GPUs"):
        Imported(frame, H200, shape.shard(8)).of(moved)


def test_own_products_go_before_imported_ones(frame: pd.DataFrame, shape: ModelShape) -> None:
    sizes = np.array([(m, n, 4096.0) for m in (1, 64, 4096) for n in (1024.0, 2048.0, 4096.0)])
    own = Products.fitted(H200, sizes, np.array([2 * product_s(*row) for row in sizes]))
    both = Completed.of_both({"bf16": own}, Imported(frame, H200, shape.shard(2)))
    assert both.of(product(64)).seconds == pytest.approx(2 * product_s(64, 4096, 4096), rel=1e-6)
    moved = Operator("all_reduce", Kind.COLLECTIVE, 1, 1, bytes=2 * 128)
    assert both.of(moved).seconds == pytest.approx(5.01e-6)


@pytest.mark.parametrize(("noise", "imports"), [(0.0, False), (0.5, True)])
def test_products_of_unknown_shapes_are_of_the_source_that_misses_less_of_itself(
    frame: pd.DataFrame, shape: ModelShape, noise: float, imports: bool
) -> None:
    random = np.random.default_rng(1)
    sizes = np.array([(m, n, 4096.0) for m in (1, 64, 4096) for n in (1024.0, 2048.0, 5120.0)])
    seconds = np.array([product_s(*row) for row in sizes]) * (1 + noise * random.random(9))
    own = Products.fitted(H200, sizes, seconds)
    tables = Imported(frame, H200, shape)
    both = Completed.of_both({"bf16": own}, tables)
    narrower = tables.products("bf16").residuals.width < own.residuals.width
    assert narrower or not imports
    expected = tables.products("bf16") if narrower else own
    assert both.source(product(64, 3000)) is expected
    # What was measured goes before what is near it, and own cases before imported ones.
    assert both.source(product(64, 5120)) is own
    assert both.source(product(64, 16384)) is tables.products("bf16")
    assert both.source(product(64, 1024)) is own
    # Beyond the measured tokens it is no longer between measured cases.
    assert not own.has(product(20_000, 1024))


def test_notes_say_what_stands_in(frame: pd.DataFrame, shape: ModelShape) -> None:
    _, none = benchmarked(Cases(), empty("imported_operators"), H200, shape, frozenset())
    assert none == []
    costs, notes = benchmarked(Cases(), frame, H200, shape, frozenset())
    assert isinstance(costs, Imported)
    assert [note.key for note in notes] == ["imported", "small-operators"]
    kinds = str(dict(notes[0].values)["kinds"])
    assert "product, prefill attention" in kinds
    assert "collective" not in kinds
    assert dict(notes[1].values)["time"] == "3 us"
