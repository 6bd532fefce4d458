"""Joins what the trace and the counters say of each kernel into one row per kernel."""

from __future__ import annotations

import math

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.cells import Row, number, records, text
from nsight_prof.parsers.ncu import kernel_code
from nsight_prof.parsers.ncu.capture import DURATION
from nsight_prof.parsers.ncu.registers import (
    exchanged,
    fixed_stores,
    products_added,
    scalar_halves,
)
from nsight_prof.parsers.run.run import Run, once
from nsight_prof.reports.analysis.evidence import threshold

INDEXED_CONSTANTS = r"\bU?LDC\b.*\[R\d"
"""Loads of constant memory at an address of the thread's own: other than that of a uniform register
(UR) or a number, threads of a warp may ask for several, which come one after another."""
TRACE_ONLY = (
    *("short_name", "name", "library", "category", "dtype", "tile", "grid", "block", "stage"),
    *("calls", "share", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns", "std_ns"),
)
"""Columns of `kernels` that `counters` does not have under the same name."""
MEMORY_ACCESS = r"(?P<guard>@!?P\d )?.*?(?P<what>STG|LDG|LDGSTS)\.(?P<sizes>[\w.]*) (?P<rest>.*)"
"""An instruction that loads from global memory or stores there."""
WIDTHS = (("128", 16.0), ("64", 8.0), ("16", 2.0), ("8", 1.0))
"""How the end of its name tells the bytes of a thread, else 4."""
IN_LOOP = 0.75
"""Part of the times of the most frequent load from which on another one is in the same loop."""
LOADS, FLOATS = r"\bLDG?\b", r"\b[DFH](?:ADD|MUL|FMA|MNMX|SETP|SET)2?\b|\bMUFU\b"
"""Instructions that load from global memory into registers, and that compute floats."""
OF_SORTS = r"block_radix_(?:sort|rank)|merge_sort|radix_rank_sort|bitonic"
"""Files of CUB whose functions sort within a block."""
OF_TRITON, EXCHANGED = "triton/language/standard.py", r"\bflip\b"
"""Where the functions of Triton are that sort, and what is in lines of theirs that exchange."""
WRITTEN = ("", "other", "Triton")
"""Libraries of kernels that the program has itself: none."""
OF_RANDOM = "triton/language/random.py"
DRAWS, EACH_NUMBER = {"rounds": "umulhi", "numbers": r"where\(x < 0"}, 0.055
"""Where Triton draws random numbers, four at a time, lines of its rounds and of each number that is
used, and the instructions of one of these for each of the rounds (Triton 3.6)."""
TRIANGLE = (
    r"\bfor\b[^;]*;[^;]*<=? *(?:\w+\()?(?:threadIdx\.\w|tid|lane|gid|idx|index|i|me|self|own)\b\)?;"
)
"""A loop up to the index of the thread, or of its element."""
EXACT_MORE = {r"\bFCHK\b|\b0x727fffff\b": 8, r"\bI2F\S*U32\.RP\b": 16, r"\bI2F\S*U64\.RP\b": 60}
"""Instructions that tell whether an exact division, or square root, of floats is an easy case, or
that begin a division of integers (or a remainder), and those that each such sequence takes (10 of
floats, 20 and 64 of integers on Hopper) more than an approximate one, or a shift and a product."""

OF_CODE = (
    *("fixed", "halves", "exchanged", "drawn", "triangle"),
    *("heap", "calls", "lookups", "sides", "same", "special"),
    *("pairs", "functions", "tree", "again"),
)
"""What the code of kernels tells that are no library's."""
SCHEDULERS, FROM_DRAM = 4, 0.7
"""Schedulers of an SM, each of which issues an instruction a cycle, and the part of the bytes that
threads load which DRAM delivers where L2 keeps none of them for other blocks."""


@once
def profiled(run: Run) -> list[Row]:
    """Return a row for each kernel that has counters, most GPU time first.

    Columns are those of `kernels` (identity and time), of `counters`, and `stalls` (the share of
    each stall reason), `stall_share` (that of the top one), `loose_join` (joined by a name that
    the two tools write differently), `constants_share` (of the samples of warps, those at loads of
    constants by an index of the thread), `passing_share` (those beyond a first return at which all
    but RETURNING of the warps end), `exact_share` (of its instructions, those that exact divisions
    and square roots take more than cheaper ones), `sorting_share` (those of sorts),
    `unmasked_share` (of what guarded accesses could move, what they do), `needless_share` (of the
    sectors of loads, those that contiguous ones need not), `float_share` (of its instructions,
    those that compute floats), those of `code_shares` and `counted_ns` (sum of its launches that
    ncu profiled).
    """
    if run.counters.empty:  # as after a trace alone: the rest takes 20 ms to find nothing
        return []
    shares = _stall_shares(run.stalls)
    loose = _loose_joins(run)
    instructions = run.source_instructions
    samples = instructions["samples"].fillna(0).astype(float)
    sass = instructions["sass"].fillna("")
    constants = _shares_of(instructions, samples, samples * sass.str.contains(INDEXED_CONSTANTS))
    passing = {
        str(key): kernel_code.beyond_return(rows)
        for key, rows in instructions.sort_values("offset").groupby("kernel_id")
    }
    executed = instructions["instructions"].fillna(0).astype(float)
    more = pd.concat([times * sass.str.contains(at) for at, times in EXACT_MORE.items()], axis=1)
    sorting = _shares_of(instructions, executed, executed * is_sort(run, instructions))
    of_loads = instructions[["sectors", "excessive_sectors"]].fillna(0).astype(float)
    of_loads = of_loads[sass.str.contains(LOADS)]
    needless = _shares_of(instructions.loc[of_loads.index], *(of_loads[name] for name in of_loads))
    found = {
        "constants_share": constants,
        "passing_share": passing,
        "exact_share": _shares_of(instructions, executed, executed * more.sum(axis=1)),
        "sorting_share": sorting,
        "unmasked_share": unmasked_shares(instructions),
        "needless_share": needless,
        "float_share": _shares_of(instructions, executed, executed * sass.str.contains(FLOATS)),
        **code_shares(run, instructions),
        "counted_ns": _counted_ns(run),
    }
    merged = run.counters.merge(run.kernels[["kernel_id", *TRACE_ONLY]], on="kernel_id", how="left")
    rows = records(merged)
    for row in rows:
        key = text(row["kernel_id"])
        row["stalls"] = shares.get(key, {})
        row["stall_share"] = row["stalls"].get(text(row["top_stall"]), math.nan)
        row |= {name: by_kernel.get(key, math.nan) for name, by_kernel in found.items()}
        row["loose_join"] = key in loose
    return sorted(rows, key=weight, reverse=True)


def code_shares(run: Run, instructions: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return what the code of kernels tells that are no library's, by name of the share and kernel.

    `fixed_share`: of the sectors that it touches, those of loops at addresses that stay. Of its
    instructions, `halves_share` work on one half number, `exchanged_share` pass numbers between
    threads in each pass of a loop, `drawn_share` draw random numbers of which three of four are
    dropped, `triangle_share` are in a loop up to the index of the thread, `heap_share` of the heap
    of the device, `calls_share` of calls through pointers, `lookups_share` look bytes up in shared
    memory, `functions_share` are in lines that call functions of tens of instructions (sinf), and
    `tree_share` in levels of a tree with barriers, `sides_share` are in functions of whose results
    half are dropped, `special_share` special functions, and `pairs_share`, of those that add or
    multiply, add a product. `same_share`: of the sectors, those that other blocks load from DRAM
    as well, and `again_share`, those that the kernel itself has loaded from there before.
    """
    found: dict[str, dict[str, float]] = {f"{name}_share": {} for name in OF_CODE}
    kernels = run.kernels.set_index("kernel_id")
    library, grids = kernels["library"].fillna(""), kernels["grid"].fillna("")
    counted, sms = run.counters.drop_duplicates("kernel_id").set_index("kernel_id"), sm_count(run)
    counted = counted.reindex(instructions["kernel_id"].unique())
    for kernel_id, rows in instructions.groupby("kernel_id"):
        key, rows = str(kernel_id), rows.sort_values("offset")
        if library.get(key, "") not in WRITTEN:
            continue
        row = counted.loc[key]
        lines = run.source_lines[run.source_lines["kernel_id"] == key]
        of_file = lines[lines["file"].isin(set(rows.loc[rows.index[:1], "file"]))]
        grid = [int(size) for size in str(grids.get(key, "")).split("x") if size.isdigit()]
        cycles = number(row["duration_ns"]) / 1e9 * number(row["sm_clock_hz"]) * SCHEDULERS * sms
        issued = number(row["issue_active_pct"]) / 100 * number(row["sm_active_pct"]) / 100
        from_dram = number(row["dram_read_bytes"]) >= FROM_DRAM * number(row["global_load_bytes"])
        in_file = rows["line"].where(rows["file"].isin(of_file["file"]))
        shares = {
            **_instruction_shares(rows),
            **_line_shares(rows, lines),
            "sides": kernel_code.of_sides(rows, of_file),
            "functions": kernel_code.of_functions(rows.assign(line=in_file), of_file),
            "exchanged": exchanged(rows, number(row["global_load_bytes"])),
            "heap": kernel_code.of_heap(rows, of_file, issued * cycles),
            "again": _loaded_again(of_file, rows) if from_dram else 0.0,
            "same": kernel_code.same_loads(of_file, grid) if from_dram else 0.0,
        }
        for name, share in shares.items():
            found[f"{name}_share"][key] = share
    return found


def _loaded_again(source: pd.DataFrame, rows: pd.DataFrame) -> float:
    """Return the part of the sectors that another line, or the pass before, has loaded."""
    of_passes = kernel_code.loaded_each_pass(source, rows)
    return max(kernel_code.loaded_again(source), of_passes)


def _instruction_shares(rows: pd.DataFrame) -> dict[str, float]:
    """Return the shares that the instructions of a kernel tell by themselves."""
    executed = rows["instructions"].fillna(0).astype(float).tolist()
    code = rows["sass"].fillna("").str.strip().tolist(), executed
    return {
        "fixed": fixed_stores(*code, rows["sectors"].fillna(0).tolist()),
        "halves": scalar_halves(*code),
        "calls": kernel_code.of_calls(rows),
        "lookups": kernel_code.of_lookups(rows),
        "special": kernel_code.executed(rows, kernel_code.SPECIAL),
        "tree": kernel_code.of_tree(rows),
        "pairs": products_added(*code),
    }


def _line_shares(rows: pd.DataFrame, lines: pd.DataFrame) -> dict[str, float]:
    """Return the shares of instructions of lines whose source says what they do."""
    executed = rows["instructions"].fillna(0).astype(float)
    texts, total = lines["source"].fillna(""), executed.sum()

    def at(pattern: str) -> pd.Series[bool]:
        return rows["line"].isin(set(lines.loc[texts.str.contains(pattern), "line"]))

    drawn = rows["file"].fillna("").str.endswith(OF_RANDOM)
    of_draws = {what: executed[drawn & at(pattern)] for what, pattern in DRAWS.items()}
    numbers = of_draws["numbers"].sum() / max(1.0, of_draws["rounds"].sum()) / EACH_NUMBER
    dropped = (4 - min(4, max(1, round(numbers)))) / 3 if numbers else 0.0
    return {
        "drawn": executed[drawn].sum() / total * dropped,
        "triangle": executed[at(TRIANGLE)].sum() / total,
    }


def _shares_of(
    instructions: pd.DataFrame, total: pd.Series[float], chosen: pd.Series[float]
) -> dict[str, float]:
    """Return, by kernel_id, the sum of `chosen` over that of `total`."""
    if instructions.empty:  # as of most runs
        return {}
    both = pd.DataFrame({"all": total, "at": chosen}).groupby(instructions["kernel_id"]).sum()
    return {str(key): float(share) for key, share in (both["at"] / both["all"]).items()}


def is_sort(run: Run, instructions: pd.DataFrame) -> pd.Series[bool]:
    """Tell which instructions are those of a sort within a block."""
    lines = run.source_lines
    exchanged = lines["file"].fillna("").str.endswith(OF_TRITON)
    exchanged &= lines["source"].fillna("").str.contains(EXCHANGED)
    numbers = set(lines.loc[exchanged, "line"])
    files = instructions["file"].fillna("")
    of_triton = files.str.endswith(OF_TRITON) & instructions["line"].isin(numbers)
    return of_triton | files.str.contains(OF_SORTS)


def unmasked_shares(instructions: pd.DataFrame) -> dict[str, float]:
    """Return, by kernel_id, what part of the sectors that its accesses could touch they do.

    Accesses whose threads are contiguous and all there touch as many bytes as these have. The
    larger one of stores, of which some are guarded, and of wide loads that are guarded and touch
    less than half; none where a tenth of the loads or less are such.
    """
    if instructions.empty:
        return {}
    accesses = instructions["sass"].fillna("").str.strip().str.extract(f"^{MEMORY_ACCESS}$")
    sizes = accesses["sizes"].fillna("").str.split(".").str[-1].str.lstrip("US")
    rows = pd.DataFrame({
        "kernel_id": instructions["kernel_id"],
        "is_store": accesses["what"].eq("STG"),
        "guarded": accesses["guard"].notna() | accesses["rest"].fillna("").str.contains(r", !?P\d"),
        "times": instructions["instructions"].fillna(0).astype(float),
        "touched": instructions["sectors"].fillna(0).astype(float),
        "width": sizes.map(dict(WIDTHS)).fillna(4.0),
    })[accesses["what"].notna() & accesses["what"].ne("")]  # fmt: skip
    rows["most"] = rows["times"] * rows["width"]  # sectors of 32 bytes, of 32 threads
    found = {}
    for key, of_kernel in rows[rows["most"] > 0].groupby("kernel_id"):
        stores, loads = of_kernel[of_kernel["is_store"]], of_kernel[~of_kernel["is_store"]]
        loads = loads[loads["times"] >= IN_LOOP * loads["times"].max()]
        few = loads["guarded"] & (loads["width"] >= 8) & (2 * loads["touched"] < loads["most"])
        masked = loads[few]
        if stores["guarded"].any() and 10 * masked["times"].sum() > loads["times"].sum() > 0:
            both = (rows["touched"].sum() / rows["most"].sum() for rows in (stores, masked))
            found[str(key)] = min(1.0, max(both))
    return found


def weight(row: Row) -> float:
    """Return the time in ns that ranks a kernel: in the trace, else of all profiled launches."""
    times = (number(row.get(name)) for name in ("total_ns", "counted_ns", "duration_ns"))
    return next((ns for ns in times if not math.isnan(ns)), 0.0)


def is_mixed(row: Row) -> bool:
    """Tell whether launches of one kernel differ so much that they do different work."""
    return number(row["std_ns"]) > threshold("spread") * number(row["mean_ns"])


def sm_count(run: Run) -> float:
    """Return the number of SMs of the GPU, NaN where unknown or where GPUs differ."""
    counts = set(run.gpus["sm_count"].dropna())
    return float(counts.pop()) if len(counts) == 1 else math.nan


def kernel_time(run: Run) -> float:
    """Return the GPU time of all kernels in ns; NaN without a trace."""
    return number(run.kernels["total_ns"].sum(min_count=1))


def _stall_shares(stalls: pd.DataFrame) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for row in records(stalls):
        found.setdefault(text(row["kernel_id"]), {})[text(row["reason"])] = number(row["share"])
    return found


def _counted_ns(run: Run) -> dict[str, float]:
    """Return the sum of the durations of all launches of a kernel that ncu profiled."""
    durations = run.metrics[run.metrics["metric"] == DURATION]
    once_each = durations.groupby(["kernel_id", "launch"])["value"].first()
    sums = once_each.groupby("kernel_id").sum(min_count=1)
    return {str(key): float(value) for key, value in sums.items()}


def _loose_joins(run: Run) -> set[str]:
    readable = dict(zip(run.kernels["kernel_id"], run.kernels["name"], strict=True))
    by_name = run.joins[run.joins["method"] == "name"]
    return {
        text(row["kernel_id"])
        for row in records(by_name)
        if text(row["name"]) != text(readable.get(row["kernel_id"]))
    }


def empty_counters(kernel_id: str) -> Row:
    """Return a row of `counters` that knows nothing but its kernel."""
    columns = tables.tables()["counters"]
    return {c.name: None for c in columns} | {"kernel_id": kernel_id}
