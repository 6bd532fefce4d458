"""The roofs of the host: what is measured, and the fit of t(n)."""

from argparse import Namespace
from typing import Any

import numpy as np
import pytest

from nsight_prof.targets.harness import Case, Setup, Unsupported
from nsight_prof.targets.roofline import host

torch = pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")


def cases(device: str) -> dict[str, Case]:
    return {case.name: case for case in host.cases(Namespace(device=device))}


def test_only_large_copies_are_candidates_for_a_roof() -> None:
    found = cases("cuda")
    kinds = {case.roof.kind for case in found.values() if case.roof is not None}
    assert kinds == {
        *(f"{way}-{memory}" for way in ("h2d", "d2h") for memory in ("pinned", "pageable")),
        "d2d-copy",
        "launch",
        "launch-graph",
    }
    for case in found.values():
        size = case.params.get("bytes")
        if size is not None:
            assert (case.roof is not None) == (int(size) >= host.ROOF_FROM)


def test_a_device_copy_reads_and_writes() -> None:
    case = cases("cuda")["host/d2d/4g"]
    assert case.work.bytes == case.footprint_bytes == 2 * 2**32


def test_a_device_copy_copies() -> None:
    setup = Setup(torch.device("cpu"), 2, "normal", 0, 1 << 16)
    calls: Any = cases("cpu")["host/d2d/4k"].prepare(setup)
    assert len(calls) == 2
    for call in calls:
        (source,) = call.args
        assert torch.equal(call(), source)
        assert source.numel() == 4096
        assert len(source.unique()) > 100


def test_what_needs_a_gpu_says_so() -> None:
    setup = Setup(torch.device("cpu"), 1, "normal", 0, 1 << 16)
    found = cases("cpu")
    with pytest.raises(Unsupported, match="CUDA device"):
        found["host/h2d/pinned/4k"].prepare(setup)
    for name in ("host/launch/driver", "host/launch-graph/node"):
        samples = found[name].samples
        assert samples is not None
        with pytest.raises(Unsupported, match="CUDA device"):
            samples(setup)


def test_the_fit_is_numpys() -> None:
    x = [1, 16, 128, 512]
    y = [9e-6 + 1.3e-6 * n + e for n, e in zip(x, [2e-7, -1e-7, 3e-7, 0.0], strict=True)]
    slope, intercept = np.polyfit(x, y, 1)
    assert host.fit(x, y) == pytest.approx((intercept, slope))
    assert host.fit(x, [9e-6 + 1.3e-6 * n for n in x]) == pytest.approx((9e-6, 1.3e-6))
