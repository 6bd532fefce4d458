"""Second set: the pairs of own CUDA kernels, with their sizes and launches.

Both kernels of a pair compute the same from the same data, and `results` holds what each wrote.
Blocks are whole waves wherever waves are not the defect; sizes grow with the number of SMs.
"""

from __future__ import annotations

from typing import Any

from nsight_prof.targets.defects.pair import Pair
from nsight_prof.targets.defects.parts import kernel, sm_count
from nsight_prof.targets.defects.parts import zeros as _zeros
from nsight_prof.targets.harness import Kernel

GEMV_COLUMNS = 512
TOKENS, DIMS = 65536, 4096
PRODUCT_N, PRODUCT_K = 2048, 1024
KEY_CHUNKS, KEYS, KEY_VALUES, QUERIES = 8192, 32, 512, 12
"""Chunks of keys, keys of a chunk (32 KiB), bf16 values of a key, and queries."""
LABELS, CLASSES = 1 << 25, 16
SHORT, LONG, LONG_SEQUENCES = 4096, 1 << 20, 24
"""Values of a usual sequence and of a long one, and how many are long."""
CHANNELS, VISITS, LISTS_PER_SM = 64, 4, 64
"""Channels of pages, pages of each of them in a list, and lists (one a warp)."""
DIGIT_STEPS, DIGIT_THREADS, LARGE_SHARED, SMALL_SHARED = 96, 192, 80 << 10, 1 << 10
AXPY_STEPS = 192
"""Values of a thread where 2048 threads an SM share the arrays."""
TABLE_ROWS, ROW_HALVES, ROWS_PER_WARP = 500_000, 256, 128
FEW_STEPS, MANY_STEPS = 128, 4096


def _kernel(file: str, name: str) -> Kernel:
    return kernel(f"second_{file}", name)


def work() -> list[dict[str, object]]:
    """Return the bytes that a launch must move through DRAM, where a program would know them."""
    names = ("scores_query_by_query", "scores_chunk_by_chunk")
    return [{"kernel": name, "bytes": 2 * KEY_CHUNKS * KEYS * KEY_VALUES} for name in names]


def uncoalesced_loads() -> Pair:
    """y = A x in FP64: a thread or a warp for each row."""
    import torch

    rows = sm_count() * 2048
    a = torch.randn(rows, GEMV_COLUMNS, device="cuda", dtype=torch.float64)
    x = torch.randn(GEMV_COLUMNS, device="cuda", dtype=torch.float64)
    out = _zeros(rows, dtype="float64")
    return Pair(
        "uncoalesced_loads",
        _kernel("memory", "gemv_thread_per_row").bind(
            rows // 256, 256, [a, x, out[0], GEMV_COLUMNS]
        ),
        _kernel("memory", "gemv_warp_per_row").bind(rows // 8, 256, [a, x, out[1], GEMV_COLUMNS]),
        results=lambda: out,
        tolerance=1e-10,
    )


def uncoalesced_stores() -> Pair:
    """A cache of keys with the tokens innermost, of 2-byte values."""
    import torch

    keys = torch.randint(-(1 << 15), 1 << 15, (TOKENS, DIMS), device="cuda", dtype=torch.int16)
    out = _zeros(DIMS, TOKENS, dtype="int16")
    return Pair(
        "uncoalesced_stores",
        _kernel("memory", "cache_keys_by_dims").bind(
            (TOKENS // 8, DIMS // 256, 1), 256, [keys, out[0], TOKENS, DIMS]
        ),
        _kernel("memory", "cache_keys_by_tokens").bind(
            (TOKENS // 64, DIMS // 64, 1), (32, 8, 1), [keys, out[1], TOKENS, DIMS]
        ),
        results=lambda: out,
    )


def bank_conflicts() -> Pair:
    """C = A B^T by hand, in eight whole waves of two blocks of 1024 an SM."""
    import torch

    tiles = PRODUCT_N // 32
    rows = 32 * max(1, 16 * sm_count() // tiles)
    a = torch.randn(rows, PRODUCT_K, device="cuda")
    b = torch.randn(PRODUCT_N, PRODUCT_K, device="cuda")
    out = _zeros(rows, PRODUCT_N)

    def product(name: str, c: Any) -> Any:
        arguments = [a, b, c, PRODUCT_N, PRODUCT_K]
        return _kernel("memory", name).bind((tiles, rows // 32, 1), (32, 32, 1), arguments)

    return Pair(
        "bank_conflicts",
        product("product_rows_32_apart", out[0]),
        product("product_rows_33_apart", out[1]),
        results=lambda: out,
        tolerance=1e-4,
    )


def l2_thrashing() -> Pair:
    """Scores of queries against 256 MiB of keys, which the L2 cannot hold."""
    import torch

    count = KEY_CHUNKS * KEYS
    keys = torch.randn(count, KEY_VALUES, device="cuda", dtype=torch.bfloat16)
    queries = torch.randn(QUERIES, KEY_VALUES, device="cuda")
    out = _zeros(QUERIES, count)

    def scores(name: str, to: Any) -> Any:
        arguments = [keys, queries, to, KEY_CHUNKS, QUERIES]
        return _kernel("memory", name).bind(KEY_CHUNKS * QUERIES, 256, arguments)

    return Pair(
        "l2_thrashing",
        scores("scores_query_by_query", out[0]),
        scores("scores_chunk_by_chunk", out[1]),
        results=lambda: out,
        tolerance=1e-5,
    )


def atomics() -> Pair:
    """How many labels are of each class; counts grow with every launch."""
    import torch

    labels = torch.randint(0, CLASSES, (LABELS,), device="cuda", dtype=torch.int32)
    out = _zeros(CLASSES, dtype="int32")

    def counts(name: str, to: Any) -> Any:
        return _kernel("memory", name).bind(LABELS // 2048, 256, [labels, to])

    return Pair(
        "atomics",
        counts("count_classes_in_memory", out[0]),
        counts("count_classes_in_shared", out[1]),
        results=lambda: out,
    )


def lengths(sequences: int) -> list[int]:
    """Return the lengths of the ragged batch: the long ones lie evenly among the others."""
    every = sequences // LONG_SEQUENCES
    return [LONG if i % every == every // 2 else SHORT for i in range(sequences)]


def pieces(of: list[int], most: int) -> tuple[list[int], list[int]]:
    """Cut sequences into pieces of at most `most` values.

    Returns:
        Where each piece begins (and where the last one ends), and the sequence of each piece.
    """
    first, owner, at = [], [], 0
    for sequence, length in enumerate(of):
        for begin in range(0, length, most):
            first.append(at + begin)
            owner.append(sequence)
        at += length
    return [*first, at], owner


def imbalance() -> Pair:
    """Sums of squares of a ragged batch: a block for each sequence, or for each equal piece."""
    import torch

    of = lengths(256 * sm_count())
    values = torch.randint(-99, 100, (sum(of),), device="cuda", dtype=torch.int32)
    out = _zeros(len(of), dtype="int64")

    def sums(name: str, most: int, to: Any) -> Any:
        first, owner = (torch.tensor(cut, device="cuda") for cut in pieces(of, most))
        return _kernel("memory", name).bind(len(owner), 256, [values, first, owner, to])

    return Pair(
        "imbalance",
        sums("squares_of_sequences", LONG, out[0]),
        sums("squares_of_pieces", SHORT, out[1]),
        results=lambda: out,
    )


def linked_pages(lists: int, length: int, device: str = "cuda") -> tuple[Any, Any]:
    """Return pages of 128 FP32 values, whose first word is the next page's number, and the heads.

    `lists` linked lists of `length` pages each, in random order; the last page leads to page 0.
    """
    import torch

    pages = torch.randn(lists * length, 128, device=device)
    order = torch.randperm(lists * length, device=device, dtype=torch.int32).view(lists, length)
    following = torch.zeros_like(order)
    following[:, :-1] = order[:, 1:]
    pages.view(torch.int32)[order.flatten().long(), 0] = following.flatten()
    return pages, order[:, 0].contiguous()


def register_limited() -> Pair:
    """Sums by channel over linked lists of pages: one page of a warp is in flight at a time."""
    lists = LISTS_PER_SM * sm_count()
    pages, heads = linked_pages(lists, CHANNELS * VISITS)
    out = _zeros(lists, CHANNELS, dtype="float64")

    def sums(name: str, to: Any) -> Any:
        return _kernel("occupancy", name).bind(lists // 4, 128, [pages, heads, to, VISITS])

    return Pair(
        "register_limited",
        sums("channel_sums_in_lanes", out[0]),
        sums("channel_sums_in_warp", out[1]),
        results=lambda: out,
        tolerance=1e-10,
    )


def shared_limited() -> Pair:
    """Digits of a radix pass: 256 bins, and space for twenty thousand in the defect."""
    import torch

    blocks = 20 * sm_count()
    keys = torch.randint(
        -(1 << 31), 1 << 31, (blocks * DIGIT_THREADS * DIGIT_STEPS * 4,), device="cuda",
        dtype=torch.int32,
    )  # fmt: skip
    out = _zeros(256, dtype="int32")

    def counts(name: str, shared: int, to: Any) -> Any:
        kernel = _kernel("occupancy", name)
        kernel.allow_shared(shared)
        return kernel.bind(blocks, DIGIT_THREADS, [keys, to, DIGIT_STEPS, 8], shared)

    return Pair(
        "shared_limited",
        counts("count_digits_large_buffer", LARGE_SHARED, out[0]),
        counts("count_digits_small_buffer", SMALL_SHARED, out[1]),
        results=lambda: out,
    )


def few_blocks() -> Pair:
    """out = a x + y in FP64: a block of 256 threads an SM, or eight of them."""
    import torch

    sms = sm_count()
    x, y = (
        torch.randn(sms * 2048 * AXPY_STEPS, device="cuda", dtype=torch.float64) for _ in range(2)
    )
    out = _zeros(len(x), dtype="float64")

    def axpy(name: str, blocks: int, to: Any) -> Any:
        return _kernel("occupancy", name).bind(blocks, 256, [x, y, to, len(x), 1.5])

    return Pair(
        "few_blocks",
        axpy("axpy_block_per_sm", sms, out[0]),
        axpy("axpy_all_blocks", 8 * sms, out[1]),
        results=lambda: out,
    )


def block_limited() -> Pair:
    """Rows of an embedding, by blocks of one warp or of eight."""
    import torch

    warps = 64 * sm_count()
    table = torch.randn(TABLE_ROWS, ROW_HALVES, device="cuda", dtype=torch.float16)
    ids = torch.randint(0, TABLE_ROWS, (warps * ROWS_PER_WARP,), device="cuda")
    out = _zeros(len(ids), ROW_HALVES, dtype="float16")

    def gather(name: str, threads: int, to: Any) -> Any:
        arguments = [table, ids, to, ROWS_PER_WARP]
        return _kernel("occupancy", name).bind(warps * 32 // threads, threads, arguments)

    return Pair(
        "block_limited",
        gather("gather_blocks_of_32", 32, out[0]),
        gather("gather_blocks_of_256", 256, out[1]),
        results=lambda: out,
    )


def tail() -> Pair:
    """Samples in a circle: two waves and twelve blocks more, or a wave whose threads do more."""
    at_once = 2 * sm_count()  # blocks of 1024 threads
    blocks = 2 * at_once + 12
    out = _zeros(1, dtype="int64")
    # blocks x rounds is the same on both sides: at_once cancels.
    few, many = 4 * at_once, 4 * blocks
    return Pair(
        "tail",
        _kernel("compute", "circle_some_blocks_more").bind(blocks, 1024, [out[0], few]),
        _kernel("compute", "circle_whole_wave").bind(at_once, 1024, [out[1], many]),
        results=lambda: out,
    )


def divergence() -> Pair:
    """A quarter of the items take 32 times the steps: anywhere, or sorted to be first."""
    import torch

    items = 8 * 2048 * sm_count()
    steps = torch.full((items,), FEW_STEPS, device="cuda", dtype=torch.int32)
    steps[torch.rand(items, device="cuda") < 0.25] = MANY_STEPS
    out = _zeros(items)

    def solve(name: str, order: Any, to: Any) -> Any:
        return _kernel("compute", name).bind(items // 256, 256, [order, steps, to])

    return Pair(
        "divergence",
        solve("solve_as_they_come", torch.arange(items, device="cuda"), out[0]),
        solve("solve_sorted_by_steps", torch.argsort(steps, descending=True), out[1]),
        results=lambda: out,
    )


def unfused_fma() -> Pair:
    """Horner steps in FP64, by intrinsics that round twice or by fma."""
    blocks = 2 * sm_count()
    out = _zeros(blocks * 1024, dtype="float64")

    def horner(name: str, to: Any) -> Any:
        return _kernel("compute", name).bind(blocks, 1024, [to, 8192, 0.999, 0.125])

    return Pair(
        "unfused_fma",
        horner("horner_rounded_twice", out[0]),
        horner("horner_rounded_once", out[1]),
        results=lambda: out,
        tolerance=1e-9,
    )


def local_spills() -> Pair:
    """Oscillators with 48 registers of state, compiled for 32 registers or without a limit."""
    blocks = 16 * sm_count()
    out = _zeros(blocks * 256, dtype="float64")

    def oscillators(name: str, to: Any) -> Any:
        return _kernel("compute", name).bind(blocks, 256, [to, 256, 0.5])

    return Pair(
        "local_spills",
        oscillators("oscillators_32_registers", out[0]),
        oscillators("oscillators_all_registers", out[1]),
        results=lambda: out,
        tolerance=1e-9,
    )


MAKERS = (
    *(uncoalesced_loads, uncoalesced_stores, bank_conflicts, tail, few_blocks, imbalance),
    *(register_limited, shared_limited, block_limited, divergence, unfused_fma, local_spills),
    *(atomics, l2_thrashing),
)
