"""Models of the operations of networks, and networks added up from them, on made-up times."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nsight_prof.parsers.errors import UsageError
from nsight_prof.parsers.operations.models import (
    HOT,
    KernelModel,
    NetworkKernels,
    Operation,
    network_kernels,
)
from nsight_prof.parsers.operations.networks import (
    COMPILED,
    EAGER,
    GRAPH,
    Network,
    NetworkTime,
    OperationTime,
    bundled_networks,
    host_factors,
    is_network,
    network_time,
    read_network,
)
from nsight_prof.parsers.predict.costs import T1, T2, Estimate, datasheet

GPU = datasheet("h100-sxm")
L2 = 50e6


def linear(rows: int, n: int, k: int) -> Operation:
    return Operation(
        "linear", rows, (("k", k), ("n", n)), 2.0 * rows * n * k, 2.0 * rows * (n + k), 2.0 * n * k,
        "", "bf16",
    )  # fmt: skip


def added(elements: int, op: str = "add") -> Operation:
    inputs = 3 if op == "add" else 2
    return Operation(op, elements, (), float(elements), 2.0 * inputs * elements, 0.0, "", "bf16")


def truth(one: Operation, hot: bool = False) -> float:
    """Return the time that an operation is made to take: a roofline of its own, 2 us fixed."""
    rate = 8e12 if hot and one.activation_bytes + one.weight_bytes < L2 else 2.8e12
    moving = (one.activation_bytes + one.weight_bytes) / rate
    computing = one.flops / 6e14 if one.op == "linear" else 0.0
    return 2e-6 + float((computing**4 + moving**4) ** 0.25)


def operations() -> Iterator[Operation]:
    for n, k in ((768, 768), (2304, 768), (3072, 768), (768, 3072), (1024, 1024), (4096, 1024)):
        for rows in (1, 8, 64, 512, 4096):
            yield linear(rows, n, k)
    for power in range(10, 28, 2):
        yield added(1 << power)
        yield added(1 << power, "relu")
        yield added(1 << power, "fused")


def bench() -> pd.DataFrame:
    rows = []
    for one in operations():
        for mode in ("cold", "hot"):
            rows.append(_row(one, mode, truth(one, mode == "hot")))
    rows.append(_row(linear(1, 768, 768), "hot", 9e-6, "eager"))
    rows.append(_row(added(1 << 10), "hot", 5e-6, "eager"))
    # A time of a whole network is in no model.
    rows.append(_row(added(1 << 10), "hot", 1.0, "graph", "network"))
    return pd.DataFrame(rows)


def _row(
    one: Operation, mode: str, seconds: float, variant: str = "graph", family: str = ""
) -> dict[str, Any]:
    families = {"linear": "linear", "fused": "fused"}
    params = {
        "family": family or families.get(one.op, "elementwise"), "op": one.op, "layout": one.layout,
        "variant": variant, "weight_bytes": one.weight_bytes, "rows": one.rows, **dict(one.sizes),
    }  # fmt: skip
    return {
        "target": "network_kernels", "status": "ok", "data": "normal", "mode": mode,
        "dtype": one.dtype, "params": json.dumps(params), "flops": one.flops,
        "bytes": one.activation_bytes + one.weight_bytes, "median_s": seconds,
    }  # fmt: skip


@pytest.fixture(scope="module")
def kernels() -> NetworkKernels:
    return network_kernels(bench(), GPU, L2)


def model(kernels: NetworkKernels, op: str) -> KernelModel:
    return next(m for (key, mode), m in kernels.models.items() if key.op == op and mode == HOT)


def test_other_rows_of_a_known_shape_are_interpolated(kernels: NetworkKernels) -> None:
    found = model(kernels, "linear").of(linear(200, 2304, 768))
    assert found.tier == T2
    assert found.seconds == pytest.approx(truth(linear(200, 2304, 768), hot=True), rel=0.15)
    assert found.low < found.seconds < found.high


def test_other_shapes_come_from_near_ones(kernels: NetworkKernels) -> None:
    wanted = linear(512, 1536, 1024)
    found = model(kernels, "linear").of(wanted)
    assert found.tier == T1
    assert found.seconds == pytest.approx(truth(wanted, hot=True), rel=0.15)


def test_measured_sizes_are_given_back(kernels: NetworkKernels) -> None:
    wanted = linear(512, 2304, 768)
    assert model(kernels, "linear").of(wanted).seconds == pytest.approx(truth(wanted, hot=True))


def test_errors_are_those_of_what_was_left_out(kernels: NetworkKernels) -> None:
    held_out = model(kernels, "linear").held_out
    shapes = {case.operation.sizes for case in held_out if not case.known_shape}
    assert len(shapes) == 6
    rows = {case.operation.rows for case in held_out if case.known_shape}
    assert rows == {8, 64, 512}
    assert np.mean([abs(case.error) for case in held_out]) < 0.2
    # Elementwise operations have no shape but their rows: none can be left out.
    assert all(case.known_shape for case in model(kernels, "relu").held_out)


def test_the_host_is_known_where_it_was_slower_than_the_gpu(kernels: NetworkKernels) -> None:
    assert kernels.host(linear(64, 768, 768)) == 9e-6
    # Of an operation that no host launched, the median of others.
    assert kernels.host(added(4, "relu")) == pytest.approx(7e-6)


def network(rows: int = 1) -> Network:
    return Network(
        "three",
        (linear(rows, 2304, 768), added(rows * 2304), added(rows * 2304, "relu")),
    )


def test_a_network_is_the_sum_of_its_operations(kernels: NetworkKernels) -> None:
    time = network_time(kernels, network(64), GRAPH, L2)
    parts = sum(truth(one, hot=True) for one in network(64).operations)
    assert time.seconds.seconds == pytest.approx(parts, rel=0.1)
    assert time.seconds.low < time.seconds.seconds < time.seconds.high
    assert math.isnan(time.host_s)


def test_launched_by_the_host_it_takes_what_the_host_needs(kernels: NetworkKernels) -> None:
    time = network_time(kernels, network(), EAGER, L2)
    assert time.host_s == pytest.approx(9e-6 + 5e-6 + 7e-6)
    assert time.seconds.seconds == time.host_s
    assert time.bound == "host"
    many = network_time(kernels, network(1 << 16), EAGER, L2)
    assert many.bound == "gpu"
    assert many.seconds.seconds == many.gpu.seconds


def test_weights_come_from_dram_where_not_all_fit_the_cache(kernels: NetworkKernels) -> None:
    warm = network_time(kernels, network(), GRAPH, L2)
    cold = network_time(kernels, network(), GRAPH, 1e6)
    gained = cold.seconds.seconds - warm.seconds.seconds
    one = linear(1, 2304, 768)
    assert gained == pytest.approx(truth(one) - truth(one, hot=True), rel=0.2)


def test_batches_scale_what_grows() -> None:
    one, eight = network().operations[0], network().at(8).operations[0]
    assert (eight.rows, eight.flops) == (8 * one.rows, 8 * one.flops)
    assert eight.activation_bytes == 8 * one.activation_bytes
    assert (eight.weight_bytes, eight.sizes) == (one.weight_bytes, one.sizes)


def test_compiled_operations_between_products_are_one_kernel(kernels: NetworkKernels) -> None:
    merged = network(64).compiled()
    assert [one.op for one in merged.operations] == ["linear", "fused"]
    # Two inputs of the sum and one output, instead of those and what the activation moves.
    assert merged.operations[1].activation_bytes == added(64 * 2304).activation_bytes
    time = network_time(kernels, network(64), COMPILED, L2)
    assert time.seconds.seconds < network_time(kernels, network(64), GRAPH, L2).seconds.seconds


def test_an_operation_without_measurements_is_refused(kernels: NetworkKernels) -> None:
    unknown = Network("other", (added(64, "gelu"), *network().operations))
    with pytest.raises(UsageError, match=r"gelu bf16") as refused:
        network_time(kernels, unknown, GRAPH, L2)
    assert "network-kernels" in refused.value.hint


def test_bundled_networks_are_read_by_name_and_by_file(tmp_path: Any) -> None:
    assert "resnet-50" in bundled_networks()
    found = read_network("resnet-50")
    # 4.09 billion multiply-adds of convolutions and head (torchvision), and the rest.
    assert found.flops == pytest.approx(2 * 4.09e9, rel=0.02)
    assert found.weight_bytes == pytest.approx(2 * 25_557_032, rel=0.01)
    copied = tmp_path / "mine.json"
    calls = [{"op": "relu", "rows": 4, "sizes": {}, "flops": 4.0, "activation_bytes": 16.0,
              "weight_bytes": 0.0, "layout": "", "dtype": "bf16", "calls": 2}]  # fmt: skip
    copied.write_text(json.dumps({"model": "Mine", "calls": calls}), "utf-8")
    assert is_network(str(copied))
    assert read_network(str(copied)).name == "Mine"
    assert not is_network("qwen2.5-7b")


@pytest.mark.parametrize("text", ['{"calls": 3}', '{"model": "x", "calls": []}', '{"calls": [{}]}'])
def test_a_file_without_operations_is_refused(tmp_path: Any, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text, "utf-8")
    with pytest.raises(UsageError):
        read_network(str(path))


def test_the_host_of_a_pass_is_bounded_by_networks_that_were_left_out() -> None:
    """Oracle: passes recorded on an H100, whose host needed more than for its operations alone."""
    every, without = host_factors(), host_factors("vit-b-16")
    assert 1 < without.value < every.value
    assert every.low < every.value < every.high
    timed = OperationTime(network().operations[0], Estimate(1e-5, 1e-5, 1e-5, "T2"), 1e-4)
    time = NetworkTime(network(), EAGER, (timed,), every)
    assert tuple(time.seconds[:3]) == pytest.approx([1e-4 * factor for factor in every])
    assert math.isnan(NetworkTime(network(), GRAPH, (timed,), every).host_s)
