"""Reads the log of cuBLASLt: each matrix product with its layouts and the algorithm it chose.

cuBLASLt writes a line for each call where CUBLASLT_LOG_LEVEL is 2 (cuBLAS documentation, "cuBLASLt
Logging"; format seen with 13.1.0); cublasGemmEx comes as cublasLtTSTMatmul.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.cells import Row, records, text

LOG = "cublaslt.log"
JOINED, SEVERAL = "name", "several kernels fit"
_CALL = re.compile(r"\[cublasLt\]\[\d+\]\[Trace\]\[(cublasLt\w*Matmul)\] (.*)")
_PART = re.compile(r"(\w+)=(?:\[([^\]]*)\]|(\S+))")
_LAYOUT = re.compile(r"_([TN])([TN])[TN]$")
_CLUSTER = re.compile(r"_(\d+x\d+)_[hv]_")
_TILE, _STAGES, _SHAPE = "MATMUL_TILE_", "MATMUL_STAGES_", "CLUSTER_SHAPE_"


def read_cublas_calls(path: Path, kernels: pd.DataFrame) -> pd.DataFrame:
    """Return table `cublas_calls`: the different calls of the log, most frequent first.

    A call is joined to the kernel of `kernels` whose name alone has its tile, cluster, split of K,
    layouts and bias.
    Lines that are no whole call, as the last of a program that was ended, are left out.

    Raises:
        OSError: the log cannot be read.
    """
    with path.open(encoding="utf-8", errors="replace") as stream:
        found = Counter(call for line in stream if (call := _call(line)) is not None)
    names = [column.name for column in tables.tables()["cublas_calls"]]
    keys = names[: names.index("calls")]
    known = records(kernels)
    rows = []
    for call, calls in found.most_common():
        row: Row = dict(zip(keys, call, strict=True)) | {"calls": calls}
        fitting = [text(kernel["kernel_id"]) for kernel in known if _fits(row, kernel)]
        row["kernel_id"] = fitting[0] if len(fitting) == 1 else ""
        row["join"] = JOINED if len(fitting) == 1 else SEVERAL if fitting else ""
        rows.append(row)
    return tables.check(pd.DataFrame(rows, columns=names), "cublas_calls")


def _call(line: str) -> tuple[object, ...] | None:
    """Return what tells a call from others, in the order of the table; None for another line."""
    match = _CALL.search(line)
    if match is None:
        return None
    fields = {key: inner or bare for key, inner, bare in _PART.findall(match[2])}
    a, b, d, compute, algorithm = (
        dict(re.findall(r"(\w+)=(\S+)", fields.get(key, "")))
        for key in ("Adesc", "Bdesc", "Ddesc", "computeDesc", "algo")
    )
    try:
        is_transposed = compute.get("transa", "OP_N") != "OP_N"
        sizes = [int(d["rows"]), int(d["cols"]), int(a["rows" if is_transposed else "cols"])]
        leading = [int(matrix["ld"]) for matrix in (a, b, d)]
        split, workspace = int(algorithm.get("numSplitsK", 1)), int(fields["workSpaceSizeInBytes"])
        batch = int(d.get("batchCount", 1))
        return (
            match[1], *sizes, batch, a["type"], b["type"], d["type"],
            compute.get("transa", "OP_N"), compute.get("transb", "OP_N"), *leading,
            compute["computeType"], compute.get("epilogue", ""), int(algorithm["algoId"]),
            algorithm.get("tile", "").removeprefix(_TILE),
            algorithm.get("stages", "").removeprefix(_STAGES),
            algorithm.get("clusterShape", "").removeprefix(_SHAPE), max(split, 1), workspace,
        )  # fmt: skip
    except (KeyError, ValueError):
        return None


def _fits(row: Row, kernel: Row) -> bool:
    """Tell whether a kernel's name has tile, cluster, split, layouts and bias of a call."""
    name = text(kernel["name"])
    cluster, layout = _CLUSTER.search(name), _LAYOUT.search(name)
    layouts = f"{row['transa'][3]}{row['transb'][3]}"
    same_tile = text(kernel["tile"]).split("x")[:2] == text(row["tile"]).split("x")
    same_cluster = cluster is None or text(row["cluster"]).startswith(f"{cluster[1]}x")
    same_form = layout is None or (
        layout[1] + layout[2] == layouts and ("_bias" in name) == ("BIAS" in row["epilogue"])
    )
    same_split = ("splitK" in name) == (row["split_k"] > 1)
    return same_tile and same_cluster and same_form and same_split
