"""Turns the Tensor Core operation counters of a capture, of any chip, into operations and dtype."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pandas as pd

# sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum.peak_sustained: instruction,
# accumulator and sparsity are there or not, by chip (CUPTI 13.0.85).
_COUNTER = re.compile(
    r"^sm__ops_path_tensor_(?:op_(?P<op>[a-z0-9]+)_)?src_(?P<src>[a-z0-9]+(?:_fp\d)*)"
    r"(?:_dst_[a-z0-9]+)?(?P<sparsity>_sparsity_(?:on|off))?\.sum(?P<peak>\.peak_sustained)?$"
)
# Blackwell counts one instruction for all narrow types; it runs at the FP8 rate.
_DTYPES = {"fp4_fp6_fp8": "fp8", "fp4_fp6": "fp6"}


@dataclass(frozen=True)
class _Counter:
    metric: str
    dtype: str
    level: int  # 0: total of the dtype; 1: by sparsity; 2: by instruction; 3: by both
    is_peak: bool


def tensor_inputs(wide: pd.DataFrame) -> pd.DataFrame:
    """Return what the catalogue calls `tensor_operations`, `…_dtype` and `…_peak`.

    `wide` has one row per kernel and one column per tool metric. Operations are summed over the
    dtypes that the capture has; the dtype is the one with the most; the peak, in FLOP per cycle of
    the whole GPU, is the highest that the capture states for it (the sparse rate
    where it has one).
    """
    counters = [c for c in map(_counter, wide.columns) if c is not None]
    by_dtype = {}
    for dtype in {c.dtype for c in counters if not c.is_peak}:
        of_dtype = [c for c in counters if c.dtype == dtype and not c.is_peak]
        level = min(c.level for c in of_dtype)
        names = [c.metric for c in of_dtype if c.level == level]
        by_dtype[dtype] = wide[names].sum(axis=1, min_count=1)
    operations = pd.DataFrame(by_dtype, index=wide.index, dtype="float64")
    known = operations[(operations > 0).any(axis=1)]
    dtypes = known.idxmax(axis=1).reindex(wide.index).astype(object)
    peaks = {
        dtype: wide[[c.metric for c in counters if c.is_peak and c.dtype == dtype]].max(axis=1)
        for dtype in {c.dtype for c in counters if c.is_peak}
    }
    return pd.DataFrame(
        {
            "tensor_operations": operations.sum(axis=1, min_count=1),
            "tensor_operations_dtype": dtypes,
            "tensor_operations_peak": [
                peaks[dtype].iloc[i] if dtype in peaks else float("nan")
                for i, dtype in enumerate(dtypes)
            ],
        },
        index=wide.index,
    )


def _counter(metric: str) -> _Counter | None:
    match = _COUNTER.match(metric)
    if match is None:
        return None
    level = 2 * (match["op"] is not None) + (match["sparsity"] is not None)
    dtype = _DTYPES.get(match["src"], match["src"])
    return _Counter(metric, dtype, level, match["peak"] is not None)
