"""Kinds of kernels in words, and how many of them are named one by one."""

from __future__ import annotations

from nsight_prof.reports.page import Text

FEW, MOST_PARTS = 5, 4
"""Kernels that are named one by one, and parts of the GPU time that a sentence lists."""
NO_LIBRARY = ("", "other")
"""Libraries of the program's own kernels, in table `kernels`."""
KINDS = {
    "gemm": Text("matrix multiplications (GEMM)"),
    "gemv": Text("matrix-vector products (GEMV)"),
    "attention": Text("attention"),
    "norm": Text("normalisation"),
    "elementwise": Text("elementwise operations"),
    "softmax": Text("softmax"),
    "conv": Text("convolutions"),
    "embedding": Text("embedding look-ups"),
    "sort": Text("sorting"),
    "fill": Text("fills"),
    "reduction": Text("reductions"),
    "copy": Text("copies inside the GPU"),
    "collective": Text("communication between GPUs"),
    "kv_cache": Text("key-value cache updates"),
    "fusion": Text("fused operations"),
    "fft": Text("Fourier transforms"),
    "sparse": Text("sparse matrix kernels"),
    "solver": Text("linear solvers"),
    "search": Text("nearest-neighbour search"),
}
"""Category of table `kernels` -> what its kernels are."""


def kind_of(category: str) -> Text:
    """Return what the kernels of a category are."""
    return KINDS.get(category, Text("{category} kernels", category=category))
