"""Third set: the pairs of own CUDA kernels, with their sizes and launches.

Both kernels of a pair compute the same from the same data, and `results` holds what each wrote.
Blocks are whole waves wherever waves are not the defect; sizes grow with the number of SMs. Most
defects cost a part of the time, not a multiple of it.
"""

from __future__ import annotations

from typing import Any

from nsight_prof.targets.defects import parts
from nsight_prof.targets.defects.pair import Pair
from nsight_prof.targets.defects.parts import kernel, zeros

POINT_STEPS, DIMENSIONS, CENTRES = 48, 16, 4
"""Points of a thread where 2048 threads an SM share them; their dimensions; centres."""
VECTORS, VECTOR = 1 << 14, 1 << 12
FILTERED, TAPS = 1 << 24, 64
PLANES, PLANE_ROWS, PLANE_VECTORS, SLAB = 16, 4096, 1024, 256
"""Planes, their rows, vectors of 16 bytes of a row (64 MiB a plane), and rows of a slab."""
TOKENS, BIASES = 1 << 18, 256
SOURCES, SLICES, LEFT_OVER = 2048, 16, 40
OPTIONS, PARTS, PATHS = 80, 33, 4 * 33 * 1024
"""Options, blocks of each of them in the twin, and paths of an option."""
RAYS, RAY_STEPS = 8, 256
"""Rays of a thread where 2048 threads an SM share them, and their steps."""
ANTENNAS, FRAMES = 4096, 192
SOFTENED_STEPS, TERMS, RARE = 96, 56, 512
"""Values of a thread where 2048 threads an SM share them, terms of the series, values with it."""
BLURRED_ROWS, LARGE_SHARED, SMALL_SHARED = 64, 48 << 10, 2 << 10
WEIGHT_STEPS, ROW_BITS = 96, 9
"""Vectors of 8 weights of a thread where 2048 threads an SM share them; log2 of those of a row."""
CLASSES, ROWS_PER_WARP = 256, 192


def _randn(*shape: int, dtype: str = "float32") -> Any:
    return parts.normal(*shape, dtype=dtype)


def work() -> list[dict[str, object]]:
    """Return the bytes that a launch must move through DRAM, where a program would know them."""
    plane = PLANE_ROWS * PLANE_VECTORS * 16
    names = ("jacobi_plane_by_plane", "jacobi_slab_by_slab")
    return [{"kernel": name, "bytes": (2 * PLANES - 2) * plane} for name in names]


def uncoalesced_loads() -> Pair:
    """Nearest centre of each point: the points' values one after another, or the dimensions'."""
    count = parts.sm_count() * 2048 * POINT_STEPS
    points, centres = _randn(count, DIMENSIONS), _randn(CENTRES, DIMENSIONS)
    out = zeros(count, dtype="int32")

    def nearest(name: str, data: Any, to: Any) -> Any:
        return kernel("third_memory", name).bind(count // 256, 256, [data, centres, to, count])

    return Pair(
        "uncoalesced_loads",
        nearest("nearest_of_points", points, out[0]),
        nearest("nearest_of_dimensions", points.t().contiguous(), out[1]),
        results=lambda: out,
    )


def uncoalesced_stores() -> Pair:
    """Complex vectors in bit-reversed order, as a Fourier transform wants them."""
    x = _randn(VECTORS, VECTOR, 2)
    out = zeros(VECTORS, VECTOR, 2)

    def reverse(name: str, to: Any) -> Any:
        return kernel("third_memory", name).bind(VECTORS * VECTOR // 1024, 256, [x, to])

    return Pair(
        "uncoalesced_stores",
        reverse("reverse_bits_directly", out[0]),
        reverse("reverse_bits_by_tiles", out[1]),
        results=lambda: out,
    )


def bank_conflicts() -> Pair:
    """A complex FIR filter that keeps every second value."""
    x, taps = _randn(2 * FILTERED + TAPS + 2, 2), _randn(TAPS)
    out = zeros(FILTERED, 2)

    def decimate(name: str, to: Any) -> Any:
        return kernel("third_memory", name).bind(FILTERED // 256, 256, [x, taps, to, 1])

    return Pair(
        "bank_conflicts",
        decimate("decimate_as_it_comes", out[0]),
        decimate("decimate_by_phase", out[1]),
        results=lambda: out,
        tolerance=1e-5,
    )


def l2_thrashing() -> Pair:
    """A Jacobi step in three dimensions; three planes do not fit into L2, those of a slab do."""
    u = _randn(PLANES, PLANE_ROWS, 4 * PLANE_VECTORS)
    out = zeros(*u.shape)
    width, inner = PLANE_VECTORS // 256, PLANES - 2

    def relax(name: str, rows: int, to: Any) -> Any:
        grid = (width, rows, inner * (PLANE_ROWS // rows))
        arguments = [u, to, PLANE_VECTORS, PLANE_ROWS, PLANES]
        return kernel("third_memory", name).bind(grid, 256, arguments)

    return Pair(
        "l2_thrashing",
        relax("jacobi_plane_by_plane", PLANE_ROWS, out[0]),
        relax("jacobi_slab_by_slab", SLAB, out[1]),
        results=lambda: out,
        tolerance=1e-5,
    )


def atomics() -> Pair:
    """A bias gradient; it grows with every launch."""
    gradient = _randn(TOKENS, BIASES)
    out = zeros(BIASES)

    def add(name: str, to: Any) -> Any:
        grid = (BIASES // 256, TOKENS // 64, 1)
        return kernel("third_memory", name).bind(grid, 256, [gradient, to, BIASES])

    return Pair(
        "atomics",
        add("bias_gradient_by_value", out[0]),
        add("bias_gradient_by_thread", out[1]),
        results=lambda: out,
        tolerance=1e-3,
    )


def tail() -> Pair:
    """Forces on bodies: three waves of blocks and 40 more, or the same in 16 times the blocks."""
    blocks = 3 * 4 * parts.sm_count() + LEFT_OVER  # four blocks of 512 threads fit an SM
    bodies, sources = _randn(blocks * 512, 4), _randn(SOURCES, 4)
    out = zeros(blocks * 512, 3)

    def forces(name: str, slices: int, to: Any) -> Any:
        arguments = [bodies, sources, to, SOURCES // slices]
        return kernel("third_compute", name).bind((blocks, slices, 1), 512, arguments)

    return Pair(
        "tail",
        forces("forces_some_blocks_more", 1, out[0]),
        forces("forces_in_slices", SLICES, out[1]),
        results=lambda: out,
        tolerance=1e-4,
    )


def small_grid() -> Pair:
    """Prices of 80 options: a block for each, or 33 of them."""
    import torch

    strikes = torch.linspace(0.8, 1.1, OPTIONS, device="cuda")
    out = zeros(OPTIONS, dtype="float64")

    def price(name: str, blocks: int, to: Any) -> Any:
        arguments = [strikes, to, PATHS]
        return kernel("third_compute", name).bind((blocks, OPTIONS, 1), 1024, arguments)

    return Pair(
        "small_grid",
        price("asian_block_per_option", 1, out[0]),
        price("asian_blocks_per_option", PARTS, out[1]),
        results=lambda: out,
        tolerance=1e-6,
    )


def imbalance() -> Pair:
    """Concordant pairs of two rankings: a triangle, cut into rows or into equal parts."""
    blocks = 2 * parts.sm_count()
    values = _randn(256 * blocks, 2)
    out = zeros(1, dtype="int64")

    def pairs(name: str, to: Any) -> Any:
        return kernel("third_compute", name).bind(blocks, 1024, [values, to])

    return Pair(
        "imbalance",
        pairs("pairs_of_own_values", out[0]),
        pairs("pairs_of_mirrored_values", out[1]),
        results=lambda: out,
    )


def divergence() -> Pair:
    """Rays that meet spheres or boxes, as they come or sorted."""
    import torch

    items = RAYS * 2048 * parts.sm_count()
    boxes = (torch.rand(items, device="cuda") < 0.5).to(torch.int32)
    shapes = _randn(items, 4).abs() + torch.tensor([20.0, 0.0, 0.0, 0.5], device="cuda")
    out = zeros(items)

    def trace(name: str, order: Any, to: Any) -> Any:
        arguments = [order, boxes, shapes, to, RAY_STEPS]
        return kernel("third_compute", name).bind(items // 256, 256, arguments)

    return Pair(
        "divergence",
        trace("trace_as_they_come", torch.arange(items, device="cuda"), out[0]),
        trace("trace_sorted_by_shape", torch.argsort(boxes), out[1]),
        results=lambda: out,
        tolerance=1e-5,
    )


def unfused_fma() -> Pair:
    """Beams of many directions, compiled with -fmad=false or without."""
    blocks = 2 * parts.sm_count()
    signals = _randn(ANTENNAS, 2)
    out = zeros(blocks * 1024)

    def beams(name: str, to: Any, *options: str) -> Any:
        arguments = [signals, to, ANTENNAS, 1e-4]
        return kernel("third_compute", name, *options).bind(blocks, 1024, arguments)

    return Pair(
        "unfused_fma",
        beams("beams_unfused", out[0], "-fmad=false"),
        beams("beams_fused", out[1]),
        results=lambda: out,
        tolerance=1e-2,
    )


def local_spills() -> Pair:
    """A model of 64 states in registers, compiled with -maxrregcount=48 or without."""
    blocks = 15 * parts.sm_count()  # five or three blocks of 256 threads fit an SM
    scores = _randn(FRAMES)
    out = zeros(blocks * 256)

    def decode(name: str, to: Any, *options: str) -> Any:
        arguments = [scores, to, FRAMES, 0.25]
        return kernel("third_compute", name, *options).bind(blocks, 256, arguments)

    return Pair(
        "local_spills",
        decode("viterbi_48_registers", out[0], "-maxrregcount=48"),
        decode("viterbi_all_registers", out[1]),
        results=lambda: out,
        tolerance=1e-5,
    )


def register_limited() -> Pair:
    """Values are softened; a few take a series of 56 terms, here or in a kernel of its own."""
    import torch

    threads = parts.sm_count() * 2048
    x = _randn(threads * SOFTENED_STEPS, 2)
    x[torch.randperm(len(x), device="cuda")[:RARE], 0] = 12.0
    table = _randn(TERMS)
    listed = torch.zeros(RARE, device="cuda", dtype=torch.int64)
    count = torch.zeros(1, device="cuda", dtype=torch.int32)
    out = zeros(*x.shape)
    blocks, steps = 24 * parts.sm_count(), SOFTENED_STEPS // 3  # three or eight blocks fit an SM
    soften = kernel("third_occupancy", "soften_and_list").bind(
        blocks, 256, [x, out[1], listed, count, steps]
    )
    rest = kernel("third_occupancy", "series_of_listed").bind(
        1, RARE, [x, out[1], table, listed, count]
    )

    def in_two_kernels() -> None:
        soften()
        rest()

    return Pair(
        "register_limited",
        kernel("third_occupancy", "soften_with_series").bind(
            blocks, 256, [x, out[0], table, steps]
        ),
        in_two_kernels,
        results=lambda: out,
        tolerance=1e-5,
    )


def shared_limited() -> Pair:
    """A blur of a wide image: 48 KiB of shared memory for a line of 1 KiB, or 2 KiB."""
    sms = parts.sm_count()
    image = _randn(40 * BLURRED_ROWS, 256 * sms)
    out = zeros(*image.shape)

    def blur(name: str, shared: int, to: Any) -> Any:
        arguments = [image, to, BLURRED_ROWS]
        return kernel("third_occupancy", name).bind((sms, 40, 1), 256, arguments, shared)

    return Pair(
        "shared_limited",
        blur("blur_large_buffer", LARGE_SHARED, out[0]),
        blur("blur_small_buffer", SMALL_SHARED, out[1]),
        results=lambda: out,
    )


def few_blocks() -> Pair:
    """int8 weights become bf16: a block of 512 threads an SM, or four of them."""
    import torch

    sms = parts.sm_count()
    count = sms * 2048 * WEIGHT_STEPS
    weights = torch.randint(-128, 128, (count, 8), device="cuda", dtype=torch.int8)
    scales = torch.rand(count >> ROW_BITS, device="cuda") + 0.5
    out = zeros(count, 8, dtype="bfloat16")

    def dequantise(name: str, blocks: int, to: Any) -> Any:
        arguments = [weights, scales, to, count, ROW_BITS]
        return kernel("third_occupancy", name).bind(blocks, 512, arguments)

    return Pair(
        "few_blocks",
        dequantise("dequantise_block_per_sm", sms, out[0]),
        dequantise("dequantise_all_blocks", 4 * sms, out[1]),
        results=lambda: out,
    )


def block_limited() -> Pair:
    """Cross entropy of rows of 256 classes, by blocks of one warp or of eight."""
    import torch

    warps = 64 * parts.sm_count()
    rows = warps * ROWS_PER_WARP
    logits = _randn(rows, CLASSES, dtype="bfloat16")
    targets = torch.randint(0, CLASSES, (rows,), device="cuda", dtype=torch.int32)
    out = zeros(rows)

    def losses(name: str, threads: int, to: Any) -> Any:
        arguments = [logits, targets, to, ROWS_PER_WARP]
        return kernel("third_occupancy", name).bind(warps * 32 // threads, threads, arguments)

    return Pair(
        "block_limited",
        losses("entropy_blocks_of_32", 32, out[0]),
        losses("entropy_blocks_of_256", 256, out[1]),
        results=lambda: out,
        tolerance=1e-5,
    )


MAKERS = (
    *(uncoalesced_loads, uncoalesced_stores, bank_conflicts, tail, small_grid, few_blocks),
    *(imbalance, register_limited, shared_limited, block_limited, divergence, unfused_fma),
    *(local_spills, atomics, l2_thrashing),
)
