"""Reads the measured operators of NVIDIA's aiconfigurator into table `imported_operators`.

Its repository and its package keep them in `systems/data/SYSTEM/OP/FRAMEWORK/VERSION/*.parquet`.
Latencies are milliseconds of one call among others in a CUDA graph. `isl` and `step` of an
attention are new tokens of each request, and tokens that its KV cache holds before them.
`message_size` counts elements, of 2 bytes in every row that is taken; that of an all-gather is what
each GPU has at the end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow.parquet as parquet
import yaml

from nsight_prof.parsers import safe_yaml
from nsight_prof.parsers.cells import records
from nsight_prof.parsers.errors import ArtifactUnreadable, UsageError
from nsight_prof.parsers.predict.costs import Gpu, datasheet
from nsight_prof.parsers.predict.operators import DYNAMIC, FP8, STATIC, Kind
from nsight_prof.parsers.tables import check, tables

TABLE = "imported_operators"
ALL_REDUCE, ALL_GATHER = "all_reduce", "all_gather"
BELOW = ("", "systems", "src/aiconfigurator_core/systems", "aiconfigurator_core/systems",
         "aic-core/src/aiconfigurator_core/systems", "src/aiconfigurator/systems")  # fmt: skip
"""Where the folder of systems lies below the repository, the package, or what was unpacked."""
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "bf16"}
"""Names of types there -> here; half of NCCL's are 2 bytes, whichever they mean."""
GEMM, PREFILL, DECODE = "gemm_perf", "context_attention_perf", "generation_attention_perf"
REDUCE, NCCL = "custom_allreduce_perf", "nccl_perf"
SCALE, COMPUTE = "scale_matrix_perf", "computescale_perf"
"""Quantization of activations by a known scale, and what finding the scale of each token adds."""
MOE = "moe_perf"
"""Both products of the experts with choosing them, by `num_tokens` of all GPUs; `inter_size` is
that of an expert before it is split over `moe_tp_size` GPUs."""
FOLDERS = {GEMM: "gemm", PREFILL: "attention", DECODE: "attention", REDUCE: "comm", NCCL: "comm",
           MOE: "moe", SCALE: "quantize", COMPUTE: "quantize"}  # fmt: skip
NUMBERS = {
    GEMM: ("m", "n", "k"),
    PREFILL: ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "step"),
    DECODE: ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "step"),
    REDUCE: ("num_gpus", "message_size"),
    NCCL: ("num_gpus", "message_size"),
    MOE: (
        "num_tokens",
        "hidden_size",
        "inter_size",
        "topk",
        "num_experts",
        "moe_tp_size",
        "moe_ep_size",
    ),
    SCALE: ("m", "k"),
    COMPUTE: ("m", "k"),
}
TYPES = {GEMM: ("gemm_dtype",), PREFILL: ("attn_dtype", "kv_cache_dtype"),
         DECODE: ("attn_dtype", "kv_cache_dtype"), REDUCE: ("allreduce_dtype",),
         NCCL: ("nccl_dtype", "op_name"), SCALE: ("quant_dtype",),
         COMPUTE: ("quant_dtype",), MOE: ("moe_dtype", "distribution")}  # fmt: skip
ELEMENT_BYTES = 2
FALSE_ROWS = 0.01
"""Part of a file's rows that may be false (they are left out) before all of it is refused."""
KEY = ("kind", "dtype", "kv_dtype", "m", "n", "k", "batch", "tokens", "context", "heads",
       "kv_heads", "head_dim", "window", "experts", "used", "load", "gpus", "bytes")  # fmt: skip


@dataclass(frozen=True)
class Imported:
    """The operators of one GPU and serving framework; `device` is the name that its driver has.

    `files` are those that were read, below the folder of the system.
    """

    frame: pd.DataFrame
    system: str
    device: str
    files: tuple[str, ...]
    notes: tuple[str, ...]


def read_aiconfigurator(given: Path, system: str, framework: str, version: str) -> Imported:
    """Return the measured operators below `given`.

    Args:
        given: the repository, its package, its folder `systems`, or the folder of one system.
        system: name such as h200_sxm; empty where there is only one.
        framework: whose kernels were measured: vllm, sglang, trtllm.
        version: of it; empty: the newest that has products and attention.

    Raises:
        UsageError: there is no such system, framework or version.
        ArtifactUnreadable: a table is damaged or of another layout.
    """
    folder = _system(given, system)
    version = version or _newest(folder, framework)
    found: dict[str, Path] = {}
    for table in (GEMM, PREFILL, DECODE):
        path = _table(folder, table, framework, version)
        if path is None:
            known = ", ".join(_versions(folder / FOLDERS[table] / framework)) or "none"
            raise UsageError(
                f"{folder} has no {table} of {framework} {version}",
                f"give another --backend-version (known: {known}) or --framework",
            )
        found[table] = path
    notes = []
    for table, of in ((REDUCE, framework), (NCCL, "nccl")):
        path = _table(folder, table, of, version if table is REDUCE else _nccl(folder))
        if path is None:
            notes.append(f"no {table} of {of}: tensor parallelism may lack a collective")
        else:
            found[table] = path
    optional = {table: _table(folder, table, framework, version) for table in (SCALE, COMPUTE, MOE)}
    found |= {table: path for table, path in optional.items() if path is not None}
    frames, device = {}, ""
    for table, path in found.items():
        frame = _read(path, table)
        device = device or next(iter(frame.get("device", pd.Series(dtype=str)).dropna()), "")
        source = path.relative_to(folder).as_posix()
        frames[table] = _tidy(frame, table).assign(source=source)
    notes += _without_quantization(frames)
    if not device:
        raise ArtifactUnreadable(
            f"the tables in {folder} do not say which GPU they were measured on",
            "use tables of a newer version, with a column device",
        )
    cleaned, dropped = _cleaned(pd.concat(frames.values(), ignore_index=True), _known_gpu(device))
    if dropped:
        notes.append(
            f"{dropped:,} rows were left out: no time, or more FLOP/s than the datasheet has"
        )
    files = tuple(path.relative_to(folder).as_posix() for path in found.values())
    return Imported(cleaned, folder.name, device, files, tuple(notes))


def _system(given: Path, system: str) -> Path:
    """Return the folder of a system's tables."""
    if (given / "gemm").is_dir() and system in ("", given.name):
        return given
    for below in BELOW:
        data = given / below / "data"
        if not data.is_dir():
            continue
        names = sorted(path.name for path in data.iterdir() if path.is_dir())
        chosen = system or (names[0] if len(names) == 1 else "")
        if chosen in names:
            return data / chosen
        raise UsageError(
            f"{data} holds no system {system}" if system else f"{data} holds several systems",
            f"--system knows {', '.join(names)}",
        )
    reason = "no folder systems/data in it" if given.is_dir() else "there is no such folder"
    raise UsageError(
        f"{given} holds no tables of aiconfigurator: {reason}",
        "give a checkout of its repository (git lfs pull, where its tables are pointers), the "
        "installed package aiconfigurator_core, or a folder such as systems/data/h200_sxm",
    )


def _versions(folder: Path) -> list[str]:
    """Return the versions below a folder, oldest first."""
    names = [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    return sorted(names, key=_order)


def _order(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _newest(folder: Path, framework: str) -> str:
    for version in reversed(_versions(folder / "gemm" / framework)):
        if all(_table(folder, table, framework, version) for table in (GEMM, PREFILL, DECODE)):
            return version
    known = [path.name for path in (folder / "gemm").glob("*") if path.is_dir()]
    raise UsageError(
        f"{folder} has no products and attention of {framework}",
        f"--framework knows {', '.join(sorted(known)) or 'none there'}",
    )


def _nccl(folder: Path) -> str:
    """Return the version of NCCL that the system is described with, else the newest."""
    described = folder.parent.parent / f"{folder.name}.yaml"
    if described.is_file():
        facts = _yaml(described)
        misc = facts.get("misc") if isinstance(facts, dict) else None
        version = str(misc.get("nccl_version", "")) if isinstance(misc, dict) else ""
        if _table(folder, NCCL, "nccl", version):
            return version
    return next(reversed(_versions(folder / "comm" / "nccl")), "")


def _table(folder: Path, table: str, framework: str, version: str) -> Path | None:
    """Return the file of a table: that of the version, or of the one that it is reused from."""
    here = folder / FOLDERS[table] / framework
    path = here / version / f"{table}.parquet"
    if not version or path.is_file():
        return path if version else None
    reuse = here / version / "reuse.yaml"
    facts = _yaml(reuse) if reuse.is_file() else {}
    for entry in facts.get("reuse") or () if isinstance(facts, dict) else ():
        if isinstance(entry, dict) and entry.get("table") == table:
            donor = here / str(entry.get("from_version")) / f"{table}.parquet"
            return donor if donor.is_file() else None
    if table == REDUCE:
        older = [v for v in _versions(here) if _order(v) < _order(version)]
        files = [here / v / f"{table}.parquet" for v in reversed(older)]
        return next((file for file in files if file.is_file()), None)
    return None


def _yaml(path: Path) -> object:
    try:
        return safe_yaml.parse(path.read_text(encoding="utf-8"))[1]
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ArtifactUnreadable(f"{path} cannot be read: {error}", "get the file again") from error


def _read(path: Path, table: str) -> pd.DataFrame:
    try:
        frame: pd.DataFrame = parquet.ParquetFile(path).read().to_pandas()
    except (OSError, ValueError) as error:
        raise ArtifactUnreadable(
            f"{path} is no Parquet file: {str(error).splitlines()[0]}",
            "get the file again; in a checkout without Git LFS it is a pointer: git lfs pull",
        ) from error
    required = (*NUMBERS[table], *TYPES[table], "latency")
    lacking = [name for name in required if name not in frame.columns]
    if lacking:
        raise ArtifactUnreadable(
            f"{path} lacks {', '.join(lacking)}",
            "take the tables of another version (--backend-version)",
        )
    return frame


def _tidy(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """Return the rows of a table in the columns of ours, without `source`."""
    frame = frame.assign(seconds=pd.to_numeric(frame["latency"]) / 1e3)
    types = [frame[name].map(lambda value: DTYPES.get(value, value)) for name in TYPES[table]]
    if table == GEMM:
        frame = frame.assign(kind=str(Kind.PRODUCT), dtype=types[0])
        products: pd.DataFrame = frame[["kind", "dtype", "m", "n", "k", "seconds"]]
        return products
    if table == MOE:
        return _experts(frame.assign(dtype=types[0]))
    if table in (SCALE, COMPUTE):
        kinds = {SCALE: STATIC, COMPUTE: DYNAMIC}
        frame = frame.assign(kind=kinds[table], dtype=types[0])
        small: pd.DataFrame = frame[["kind", "dtype", "m", "k", "seconds"]]
        return small
    if table in (PREFILL, DECODE):
        kind = Kind.PREFILL if table == PREFILL else Kind.DECODE
        none = pd.Series(0, index=frame.index)
        window: pd.Series = frame.get("window_size", none)
        names = {"batch_size": "batch", "isl": "tokens", "step": "context", "num_heads": "heads",
                 "num_key_value_heads": "kv_heads", "head_dim": "head_dim"}  # fmt: skip
        frame = frame.assign(
            kind=str(kind), dtype=types[0], kv_dtype=types[1], window=window.where(window > 0)
        )
        added = ["seconds", "kind", "dtype", "kv_dtype", "window"]
        attention: pd.DataFrame = frame[[*names, *added]].rename(columns=names)
        return attention
    if table == REDUCE:
        # Outside of a graph the launches are timed, and not the kernels.
        source = frame.get("kernel_source", pd.Series("", index=frame.index)).astype(str)
        frame = frame.assign(kind=ALL_REDUCE)[~source.str.contains("eager")]
    else:
        frame = frame.assign(kind=frame["op_name"])[frame["op_name"].eq(ALL_GATHER)]
    frame = frame.assign(
        dtype=frame[TYPES[table][0]].map(lambda value: DTYPES.get(value, value)),
        gpus=frame["num_gpus"],
        bytes=frame["message_size"] * ELEMENT_BYTES,
    )
    chosen: pd.DataFrame = frame[["kind", "dtype", "gpus", "bytes", "seconds"]]
    return chosen[frame["dtype"].eq("bf16")]


def _experts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return routed products in bf16 of experts that are not shared out among GPUs."""
    names = {"num_tokens": "m", "hidden_size": "k", "num_experts": "experts", "topk": "used",
             "distribution": "load"}  # fmt: skip
    frame = frame[frame["dtype"].eq("bf16") & frame["moe_ep_size"].eq(1)]
    frame = frame.assign(kind=str(Kind.ROUTED), n=frame["inter_size"] // frame["moe_tp_size"])
    return frame[["kind", "dtype", "n", *names, "seconds"]].rename(columns=names)


def _without_quantization(frames: dict[str, pd.DataFrame]) -> list[str]:
    """Bring products in fp8 and quantizations apart, in place; return what is to be said.

    A product in fp8 was measured with the quantization of its input, by the scales of tokens, and
    that with the scale found beside one that is known. Products in fp8_block hold their own, and
    were timed outside of a CUDA graph: what they take at few tokens is their launches.
    """
    products = frames[GEMM]
    block, narrow = products["dtype"].eq("fp8_block"), products["dtype"].eq(FP8)
    notes = []
    if block.any():
        notes.append(
            f"{block.sum():,} products in fp8_block were left out: their launches were timed, and "
            "not their kernels"
        )
    if not {SCALE, COMPUTE} <= frames.keys():
        if narrow.any():
            notes.append(
                f"{narrow.sum():,} products in fp8 were left out: they hold the quantization of "
                "activations, and no table tells how long that takes"
            )
        frames[GEMM] = products[~block & ~narrow]
        return notes
    size = ["dtype", "m", "k"]
    known = frames[SCALE].groupby(size)["seconds"].median()
    total = known + frames[COMPUTE].groupby(size)["seconds"].median()
    inside = total.reindex(pd.MultiIndex.from_frame(products[size])).to_numpy()
    seconds = products["seconds"].where(~narrow, products["seconds"] - inside)
    frames[GEMM] = products.assign(seconds=seconds)[~block & seconds.notna()]
    source = frames[COMPUTE]["source"].iloc[0]
    frames[COMPUTE] = total.dropna().reset_index().assign(kind=DYNAMIC, source=source)
    return notes


def _known_gpu(device: str) -> Gpu | None:
    try:
        return datasheet(device)
    except UsageError:
        return None


def _cleaned(frame: pd.DataFrame, gpu: Gpu | None) -> tuple[pd.DataFrame, int]:
    """Return one row for each operator (medians), and how many rows cannot be true.

    Raises:
        ArtifactUnreadable: so many rows of a file are false that none can be trusted.
    """
    columns = [column.name for column in tables()[TABLE]]
    frame = frame.reindex(columns=columns)
    good = frame["seconds"].gt(0)
    if gpu is not None:
        rate = gpu.flop_per_s * frame["dtype"].eq("bf16").map({True: 1.0, False: 2.0})
        good &= ~(_flops(frame) > rate * frame["seconds"])
    for source, fraction in (~good).groupby(frame["source"]).mean().items():
        if fraction > FALSE_ROWS:
            raise ArtifactUnreadable(
                f"{source} cannot be trusted: {fraction:.0%} of its rows have no time, or more "
                "FLOP/s than the datasheet of the GPU",
                "take the tables of another version (--backend-version)",
            )
    groups = frame[good].groupby(list(KEY), sort=False, dropna=False)
    merged = groups.agg({"seconds": "median", "source": "first"}).reset_index()
    return check(merged[columns], TABLE), int((~good).sum())


def _flops(frame: pd.DataFrame) -> pd.Series:
    """Return FLOPs of products and of the attention of whole prompts; 0 of others."""
    products = 2.0 * frame["m"] * frame["n"] * frame["k"]
    width = frame["window"].fillna(frame["tokens"]).clip(upper=frame["tokens"])
    pairs = frame["tokens"] * width - width**2 / 2
    attention = 4.0 * frame["batch"] * pairs * frame["heads"] * frame["head_dim"]
    attention = attention.where(frame["kind"].eq(str(Kind.PREFILL)))
    return products.fillna(attention).fillna(0.0)


@dataclass(frozen=True)
class Counted:
    """Rows of one kind and type in a file."""

    kind: str
    dtype: str
    source: str
    rows: int


def counted(frame: pd.DataFrame) -> list[Counted]:
    """Return how many rows the table has of each kind, type and file."""
    groups = frame.groupby(["kind", "dtype", "source"], sort=False).size().reset_index(name="rows")
    return [
        Counted(str(row["kind"]), str(row["dtype"]), str(row["source"]), int(row["rows"]))
        for row in records(groups)
    ]
