"""The launches of a trace as frames, and as a Parquet file written part by part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet

from nsight_prof.parsers import tables
from nsight_prof.parsers.nsys.sqlite.database import Array
from nsight_prof.parsers.nsys.stages.work import Work

ROWS = 1 << 18  # launches of a row group: a frame of them takes 120 MB

COUNTING = ("index", "start_ns", "correlation", "memory_before")
"""Columns that grow from launch to launch: their differences are short."""


def launch_frames(work: Work, size: int = ROWS) -> Iterator[pd.DataFrame]:
    """Table `launches`, ordered by start, in frames of `size` rows with the same categories."""
    rows = work.kernels
    done = np.zeros(len(rows.kernels), np.int64)
    kernel_ids = pd.CategoricalDtype([kernel.kernel_id for kernel in rows.kernels])
    kernel_of = rows.configs[:, 0]
    for start in range(0, max(len(rows.start), 1), size):
        chunk = slice(start, start + size)
        kernel = kernel_of[rows.config[chunk]]
        frame = _columns(work, chunk)
        frame["kernel_id"] = pd.Categorical.from_codes(kernel, dtype=kernel_ids)
        within = pd.Series(kernel).groupby(kernel, sort=False).cumcount().to_numpy()
        frame["index"] = done[kernel] + within
        done += np.bincount(kernel, minlength=len(done))
        yield tables.check(frame, "launches")


def write_launches(path: Path, frames: Iterator[pd.DataFrame]) -> None:
    """Write frames of the same layout as one Parquet file."""
    first = pa.Table.from_pandas(next(frames), preserve_index=False)
    counting = dict.fromkeys(COUNTING, "DELTA_BINARY_PACKED")
    others = [name for name in first.column_names if name not in counting]
    # The least and the greatest of texts tell nobody which launches to skip, and take a third.
    numbers = [field.name for field in first.schema if not pa.types.is_dictionary(field.type)]
    with parquet.ParquetWriter(
        path,
        first.schema,
        use_dictionary=others,
        column_encoding=counting,
        write_statistics=numbers,
    ) as writer:
        writer.write_table(first)
        for frame in frames:
            writer.write_table(pa.Table.from_pandas(frame, schema=first.schema))


def _columns(work: Work, chunk: slice) -> pd.DataFrame:
    rows, found = work.kernels, work.attributed
    config = rows.configs[rows.config[chunk]]
    queue = rows.queues[rows.queue[chunk]]
    call = rows.call[chunk]
    stage = found.stage_of(call)
    frame = pd.DataFrame(
        {
            "start_ns": rows.start[chunk],
            "duration_ns": rows.duration[chunk].astype(np.int64),
            "device": queue[:, 0],
            "pid": _known(queue[:, 3]),
            "context": queue[:, 1],
            "stream": queue[:, 2],
            "correlation": _known(rows.correlation[chunk]),
            "registers": _known(config[:, 1]),
            "static_shared_bytes": config[:, 2],
            "dynamic_shared_bytes": config[:, 3],
        }
    )
    kernel = config[:, 0]
    for name in ("grid", "block"):
        frame[name] = _category([getattr(k, name) for k in rows.kernels], kernel)
    frame["stage"] = pd.Categorical.from_codes(stage, pd.Index(found.stages))
    frame["nvtx_path"] = _category([None, *found.path_texts[1:]], found.path[call])
    frame["graph_node"] = _graph_node(rows.graph_node, chunk, len(frame))
    frame["memory_before"] = _memory_before(work, rows.start[chunk], queue)
    return frame


def _memory_before(work: Work, start: Array, queue: Array) -> pd.Series:
    """Number of copies and memsets of a GPU and process that began before each of its kernels.

    Unknown where the trace does not tell the GPU or process of these, or of the kernel.
    """
    found, memory = np.zeros(len(start), np.int64), work.memory
    for code, (device, pid) in enumerate(memory.places):
        here = (queue[:, 0] == device) & (queue[:, 3] == pid)
        found[here] = np.searchsorted(memory.start[memory.place_code == code], start[here])
    is_known = all(device >= 0 and pid > 0 for device, pid in memory.places)
    return pd.Series(found, dtype="Int64").where(is_known & (queue[:, 0] >= 0) & (queue[:, 3] > 0))


def _known(numbers: Array) -> pd.Series:
    """Numbers of which 0 says that the trace does not tell."""
    column = pd.Series(numbers, dtype="Int64")
    return column if numbers.all() else column.mask(column == 0)


def _category(texts: Sequence[str | None], codes: Array) -> pd.Categorical[str]:
    """Categories from texts that may repeat; None is no value."""
    distinct = list(dict.fromkeys(text for text in texts if text is not None))
    code = {text: number for number, text in enumerate(distinct)}
    lookup = np.array([-1 if text is None else code[text] for text in texts], np.int32)
    return pd.Categorical.from_codes(lookup[codes], pd.Index(distinct))


def _graph_node(nodes: Array | None, chunk: slice, size: int) -> pd.Series:
    if nodes is None:
        return pd.Series(pd.arrays.IntegerArray(np.zeros(size, np.int64), np.ones(size, bool)))
    here = pd.Series(nodes[chunk], dtype="Int64")
    return here.mask(here < 0)
