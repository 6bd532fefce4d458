"""Kernels of which a better one is usual: old ones, fallbacks, attention that is not fused."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from nsight_prof.parsers.build.roofline import Ceilings, ceilings
from nsight_prof.parsers.cells import Row, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.profiled import kernel_time, profiled
from nsight_prof.reports.analysis.timeline import longest_kernels
from nsight_prof.reports.findings.gain import of_gpu_time
from nsight_prof.reports.findings.kernels.measure import TRANSFORM, slow_name
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program.rule import (
    LISTED,
    NSYS,
    Rule,
    Threshold,
    column,
    counters,
    measured,
    names_of,
)
from nsight_prof.reports.page import Evidence, Number, Ref, Text

SLOW_BACKEND = Rule(
    key="slow_backend",
    question="Did a library or framework fall back to slow kernels?",
    requires="kernel names; a trace with single launches for attention",
    thresholds={
        "share": Threshold(0.01, Text("prof: less than that is within the noise of two runs")),
        "between": Threshold(
            6,
            Text(
                "prof: elementwise kernels at most between the products and the softmax of an "
                "attention that is not fused"
            ),
            "count",
        ),
        "apart": Threshold(
            100_000, Text("prof: parts of one attention are launched one right after another"), "ns"
        ),
    },
)


@dataclass(frozen=True)
class Bounds:
    """What a better kernel saves of the time, 0 to 1: at least and at most; NaN is unknown.

    `rough` is a value that no counters of this run back.
    """

    low: float
    high: float
    rough: bool = False


@dataclass(frozen=True)
class Backend:
    """Kernels of which a better one is usual.

    Attributes:
        label: what they are, behind "of the GPU time goes to".
        reason: why they are slow; `source` is who says so.
        pattern: is searched in the full name; empty for what is no matter of names.
        categories: of the kernels; `dtype`: their type, where it decides. `requires` matches a
            kernel that must be there, too.
        capability: lowest compute capability of the GPU on which they are behind, and the first
            on which they are not; `unknown_gpu`: they are behind where that is not known, too.
        cause: the rule that the finding is of.
        saves: part of its time that the better one is known to save, at least and at most.
        roof_parts: parts of the Tensor Core roof that better ones reach, by compute capability.
        rough: part saved where no counters are known, by compute capability.
        reads, writes: names of the kernels that begin and end work which DRAM bounds.
    """

    label: Text
    reason: Text
    action: Text
    advice: Text
    disproof: Text
    source: Text
    pattern: str = ""
    categories: tuple[str, ...] = ()
    dtype: str = ""
    requires: str = ""
    capability: tuple[float, float] = (0.0, math.inf)
    unknown_gpu: bool = False
    cause: str = SLOW_BACKEND.key
    saves: tuple[float, float] | None = None
    roof_parts: Mapping[float, tuple[float, float]] = field(default_factory=dict)
    rough: Mapping[float, float] = field(default_factory=dict)
    reads: str = ""
    writes: str = ""

    def is_behind(self, capability: float) -> bool:
        """Return whether a GPU of this compute capability has better kernels."""
        if math.isnan(capability):
            return self.unknown_gpu
        return self.capability[0] <= capability < self.capability[1]

    def matches(self, kernels: pd.DataFrame, pattern: str = "") -> pd.Series[bool]:
        """Return which kernels are its own, or those of another pattern and its categories."""
        regex = re.compile(pattern or self.pattern)
        by_name = kernels["name"].map(lambda name: bool(regex.search(str(name)))).astype(bool)
        if self.requires and not kernels["name"].fillna("").str.contains(self.requires).any():
            by_name &= False
        if self.dtype:
            by_name &= kernels["dtype"].eq(self.dtype).fillna(False).astype(bool)
        return by_name & kernels["category"].isin(self.categories).astype(bool)


# On A100, H100 and B200 TF32 has 7 times the rate of FP32 and more (datasheets), of which products
# reach 70 % where those of FP32 reach 85 % (recorded runs of an H200); on an H100
# mma.sync, which kernels for older GPUs use, reaches 62.9 % of the peak (Luo et al., Dissecting the
# NVIDIA Hopper Architecture, 2025).
SIMT_GEMM = Backend(
    pattern=r"(?:^|_)(?:simt|sgemm|hgemm)_(?!.*tensorop)|_simt_|gemmSN|_ffma_",
    categories=("gemm", "conv"),
    capability=(7.0, math.inf),
    unknown_gpu=True,
    rough={8.0: 0.8, **dict.fromkeys((9.0, 10.0, 10.3), 0.84)},
    label=Text("matrix products without the Tensor Cores"),
    reason=Text(
        "These kernels multiply on the pipes for single numbers, which have a small part of the "
        "rate."
    ),
    action=Text(
        'Allow TF32 (torch.set_float32_matmul_precision("high")) or use bf16 or fp16 inputs, so '
        "that the library picks a Tensor Core kernel."
    ),
    advice=Text("let it use the GPU's matrix units (TF32, bf16 or fp16 numbers)"),
    disproof=Text("The numbers need more than TF32's 11 bits of precision."),
    source=Text(
        "NVIDIA, cuBLAS documentation: names of kernels on the FP pipes carry sgemm or simt"
    ),
)
TRANSFORMED_CONV = Backend(
    cause="tensor_idle",
    pattern=TRANSFORM.pattern,
    reads=r"fft2d_r2c|winograd\w*(?:Data|Filter)",
    writes=r"fft2d_c2r|winograd\w*Output",
    categories=("conv",),
    capability=(8.0, math.inf),
    label=Text("convolutions by Fourier or Winograd transforms, without the Tensor Cores"),
    reason=Text(
        "The library takes them where TF32 is not allowed. A direct convolution moves images and "
        "filters once; its FLOPs were not counted, so that only the bandwidth of memory bounds the "
        "gain."
    ),
    action=Text(
        "Allow TF32 for convolutions (torch.backends.cudnn.allow_tf32 = True) or use bf16 or fp16 "
        "inputs, channels last, so that cuDNN picks an implicit GEMM on the Tensor Cores."
    ),
    advice=SIMT_GEMM.advice,
    disproof=Text(
        "The numbers need more than TF32's 11 bits of precision, or the direct convolution takes "
        "as long (large filters)."
    ),
    source=Text(
        "NVIDIA, cuDNN documentation: the FFT and Winograd algorithms of FP32 do not use Tensor "
        "Cores"
    ),
)
OLDER_GEMM = Backend(
    pattern=r"^(?:void )?(?:cutlass::Kernel2?<)?"
    r"(?:volta|turing|ampere|sm80|cutlass_(?:70|75|80))_",
    categories=("gemm",),
    capability=(9.0, math.inf),
    rough={9.0: 0.3},
    label=Text("matrix products by kernels made for an older GPU"),
    reason=Text(
        "They use neither the tensor memory accelerator nor the warp-group instructions of this "
        "GPU."
    ),
    action=Text(
        "Check why the library chose them: sizes and leading dimensions that are multiples of 16 "
        "bytes, a contiguous layout and a current cuBLAS give kernels of this GPU (nvjet, sm90)."
    ),
    advice=Text(
        "choose sizes that the GPU's newest library routines take (multiples of 8), and a current "
        "library"
    ),
    disproof=Text(
        "The same product with sizes rounded up to multiples of 8 and a current cuBLAS runs the "
        "same kernel."
    ),
    source=Text(
        "NVIDIA, CUDA C++ Programming Guide: wgmma and TMA need compute capability 9.0 and kernels "
        "built for it"
    ),
)
OLDER_CONV = replace(
    OLDER_GEMM,
    categories=("conv",),
    label=Text("convolutions by kernels made for an older GPU"),
    action=Text(
        "Check why cuDNN chose them: channels-last images in bf16 or fp16, numbers of channels "
        "that are multiples of 8 and a current cuDNN give kernels of this GPU (sm90); for FP32 and "
        "TF32 it may have none."
    ),
    advice=Text(
        "keep images channels-last in 16 bits, with numbers of channels that are multiples of 8, "
        "and a current library"
    ),
    disproof=Text(
        "The same convolution on channels-last images in bf16, with a current cuDNN, runs the same "
        "kernel."
    ),
)
MATH_ATTENTION = Backend(
    label=Text("attention made of separate matrix products and a softmax"),
    reason=Text(
        "The scores of all pairs of tokens go through memory several times; a fused attention "
        "kernel keeps them on the chip."
    ),
    action=Text(
        "Use a fused attention: torch.nn.functional.scaled_dot_product_attention with a flash, "
        "cuDNN or memory-efficient back end (bf16 or fp16, head size up to 256, no dense mask that "
        "it does not take), or FlashAttention."
    ),
    advice=Text(
        "use a fused attention routine (FlashAttention), which keeps intermediate results on the "
        "chip"
    ),
    disproof=Text(
        "scaled_dot_product_attention with SDPBackend.FLASH_ATTENTION forced fails for these "
        "inputs, or takes as long."
    ),
    source=Text("Dao et al., FlashAttention (2022): the attention matrix never reaches DRAM"),
)
EFFICIENT_ATTENTION = Backend(
    pattern=r"fmha_cutlass[FB]_|PyTorchMemEffAttention|AttentionBackwardKernel"
    r"|attention_kernel_batched",
    categories=("attention",),
    capability=(8.0, math.inf),
    roof_parts={8.0: (0.5, 0.73), 9.0: (0.35, 0.75)},
    label=Text("attention by the memory-efficient back end"),
    reason=Text(
        "PyTorch takes it where an input rules flash attention out, as a mask that is a tensor "
        "does; on long sequences flash attention and cuDNN reach more of the Tensor Cores."
    ),
    action=Text(
        "Let flash attention or cuDNN take it: pass is_causal=True instead of a causal mask as a "
        "tensor (which also halves the work), bf16 or fp16, head size up to 256; force "
        "SDPBackend.FLASH_ATTENTION or CUDNN_ATTENTION (torch.nn.attention.sdpa_kernel) to see why "
        "it does not."
    ),
    advice=Text(
        "let the faster attention routine (FlashAttention, cuDNN) take it: a mask given as a "
        "tensor rules it out"
    ),
    disproof=Text(
        "SDPBackend.FLASH_ATTENTION and CUDNN_ATTENTION refuse these inputs also without the mask, "
        "or take as long (short sequences)."
    ),
    source=Text(
        "Dao, FlashAttention-2 (2023): 50 to 73 % of the Tensor Cores of an A100; Shah et al., "
        "FlashAttention-3 (2024): on an H100 version 2 reaches 35 %, version 3 up to 75 %"
    ),
)
# FP32 without Tensor Cores has 67 TFLOP/s on an H100 at most, flash attention 35 to 75 % of 989.
SINGLE_ATTENTION = replace(
    EFFICIENT_ATTENTION,
    pattern=r"fmha_cutlass[FB]_f32_",
    roof_parts={},
    saves=(0.81, 0.91),
    label=Text("attention in single precision (fp32)"),
    reason=Text(
        "No fused attention on the Tensor Cores takes float32, so that PyTorch falls back to its "
        "memory-efficient kernel; in bf16 or fp16 flash attention or cuDNN takes it."
    ),
    action=Text(
        "Give scaled_dot_product_attention queries, keys and values in bf16 or fp16 (no .float() "
        "before it, autocast round it)."
    ),
    advice=Text("let attention compute with 16-bit numbers, as the rest of the program does"),
    disproof=Text("Attention in bf16 takes as long, or the results need more digits."),
)
OLDER_ATTENTION = Backend(
    cause="older_backend",
    pattern=r"flash_fwd_kernel|flash_bwd_dq_dk_dv_loop",
    categories=("attention",),
    capability=(9.0, 10.0),
    saves=(0.33, 0.5),
    label=Text("attention by FlashAttention-2"),
    reason=Text(
        "FlashAttention-3 and cuDNN have kernels for this GPU, 1.5 to 2 times as fast in the "
        "forward pass of long sequences."
    ),
    action=Text(
        "Try the cuDNN back end (torch.nn.attention.SDPBackend.CUDNN_ATTENTION) or "
        "FlashAttention-3."
    ),
    advice=Text(
        "try the newer attention routine that is made for this GPU (FlashAttention-3, cuDNN)"
    ),
    disproof=Text(
        "Sequences are short, or heads of a size that the newer kernel does not take: then both "
        "take as long."
    ),
    source=Text(
        "Shah et al., FlashAttention-3 (2024): 1.5 to 2.0 times FlashAttention-2 on an H100"
    ),
)
# Half the bytes, and at least twice the rate of arithmetic.
DOUBLE_TENSORS = Backend(
    cause="double_precision",
    pattern=r"\bdouble\b",
    dtype="fp64",
    categories=("elementwise", "reduction", "copy", "softmax", "norm", "fusion", "fill"),
    saves=(0.5, 0.5),
    label=Text("elementwise kernels and reductions in double precision (float64)"),
    reason=Text(
        "They move twice the bytes of single precision. One tensor in float64, as numpy makes them "
        "where nothing else is asked for, makes all that meets it double."
    ),
    action=Text(
        "Make the tensor float32 where it enters (.float(), dtype=torch.float32, astype(np.float32)"
        " of what numpy made)."
    ),
    advice=Text("let it compute with shorter numbers (single precision)"),
    disproof=Text("The results need more than the 24 bits of FP32, or the kernels take as long."),
    source=Text("prof: half the bytes"),
)
SORTED_WHOLE = Backend(
    pattern=r"[Ss]egmented_?(?:[Rr]adix_?)?[Ss]ort|DeviceRadixSort|radix_?sort|bitonicSort|sortKeyValue"
    r"|fill_reverse_indices|DeviceMergeSort",
    categories=("sort",),
    unknown_gpu=True,
    saves=(0.0, 0.7),
    label=Text("sorting"),
    reason=Text(
        "Sorting passes over keys and values several times. Where only the largest, the smallest "
        "or one in the middle is used, choosing them reads the data once or twice."
    ),
    action=Text(
        "Where not all of the order is used, take what chooses: torch.topk, kthvalue, max, median, "
        "unique counts by bincount; sort what was chosen. Else sort smaller keys, or less often."
    ),
    advice=Text("choose the best few (top-k) instead of sorting all"),
    disproof=Text("The program uses the whole order, or torch.topk takes as long."),
    source=Text("CUB: a radix sort passes over keys and values once for each 8 bits of a key"),
)
SORTED_SPARSE = Backend(
    pattern=rf"coalesce|{SORTED_WHOLE.pattern}",
    requires=r"coalesceValues",
    categories=("other", "sort", "sparse"),
    unknown_gpu=True,
    saves=(0.0, 0.95),
    label=Text("sorting the entries of sparse matrices (coalesce)"),
    reason=Text(
        "A sparse matrix in COO form that is not marked as coalesced is sorted, and equal entries "
        "are added, before each use."
    ),
    action=Text(
        "Coalesce once, before the loop (matrix = matrix.coalesce()), or keep it in CSR form "
        "(to_sparse_csr()), which products read as it is."
    ),
    advice=Text("sort sparse matrices once, not before each use"),
    disproof=Text("Entries change in each step (sparse gradients), or it takes as long in CSR."),
    source=Text("PyTorch, aten/src/ATen/native/sparse/cuda/SparseCUDATensor.cu"),
)
BLUESTEIN = Backend(
    pattern=r"bluestein",
    categories=("fft",),
    unknown_gpu=True,
    saves=(0.5, 0.75),
    label=Text("Fourier transforms of lengths with a large prime factor (Bluestein)"),
    reason=Text(
        "cuFFT has no direct way for such a length: it makes two or more transforms of at least "
        "twice the length of it, with products between them."
    ),
    action=Text(
        "Choose a length with no factors but 2, 3, 5 and 7: pad the signal with zeros (n= of "
        "torch.fft.rfft, scipy.fft.next_fast_len) and cut the result."
    ),
    advice=Text("choose lengths that divide into small factors (padding with zeros)"),
    disproof=Text("With the next length of small factors it takes as long."),
    source=Text("NVIDIA, cuFFT documentation: best for lengths 2^a x 3^b x 5^c x 7^d"),
)
DEPTHWISE = Backend(
    pattern=r"conv_depthwise[23]d|depthwise_?conv|DepthwiseConv",
    categories=("conv",),
    unknown_gpu=True,
    label=Text("depthwise convolutions by a direct kernel (one thread for each result)"),
    reason=Text(
        "Each result reads all taps of its filter, on the pipes for single numbers: PyTorch takes "
        "this kernel for images that are channels-first (NCHW), and for sequences."
    ),
    action=Text(
        "Images channels-last (memory_format=torch.channels_last) in bf16 or fp16 go to kernels of "
        "cuDNN; filters of hundreds of taps take a small part of the operations as a product of "
        "Fourier transforms (FFT: torch.fft.rfft of signal and filter)."
    ),
    advice=Text("keep images channels-last, and apply long filters by Fourier transforms"),
    disproof=Text("Channels-last, or by Fourier transforms, it takes as long."),
    source=Text("PyTorch, aten/src/ATen/native/cuda/DepthwiseConv2d.cu"),
)
SORTED_INDICES = Backend(
    pattern=r"indexing_backward_kernel",
    categories=("copy", "reduction", "embedding", "other"),
    unknown_gpu=True,
    saves=(0.0, 0.7),
    label=Text("sums by index that sort their indices (index_put_ with accumulate=True)"),
    reason=Text(
        "The gradient of x[index], and index_put_ with accumulate=True, sort all indices and add "
        "equal ones one after another, so that sums come out the same each time (deterministic)."
    ),
    action=Text(
        "Use operations that add with atomics: index_select, gather or F.embedding in place of "
        "x[index] where gradients are needed, index_add_ or scatter_add_ in place of index_put_."
    ),
    advice=Text("use operations by index that need no sorting"),
    disproof=Text("With index_select or index_add_ it takes as long, or sums must not vary."),
    source=Text("PyTorch, aten/src/ATen/native/cuda/Indexing.cu"),
)
OF_NAMES = (
    SORTED_INDICES,
    DEPTHWISE,
    DOUBLE_TENSORS,
    SINGLE_ATTENTION,
    SORTED_SPARSE,
    SORTED_WHOLE,
    BLUESTEIN,
)
"""Back ends that their names alone tell, whatever counters say of their kernels."""
BACKENDS = {
    "sorted_indices": SORTED_INDICES,
    "depthwise": DEPTHWISE,
    "sorted_sparse": SORTED_SPARSE,
    "sorted_whole": SORTED_WHOLE,
    "bluestein": BLUESTEIN,
    "double_tensors": DOUBLE_TENSORS,
    "single_attention": SINGLE_ATTENTION,
    "simt_gemm": SIMT_GEMM,
    "transformed_conv": TRANSFORMED_CONV,
    "older_gemm": OLDER_GEMM,
    "older_conv": OLDER_CONV,
    "math_attention": MATH_ATTENTION,
    "efficient_attention": EFFICIENT_ATTENTION,
    "older_attention": OLDER_ATTENTION,
}
"""Back ends by key; a kernel is of the first that fits."""
PRODUCT = ("gemm", "gemv")
BETWEEN = ("elementwise", "copy", "fill", "random", "reduction")
"""Kernels that may stand between the parts of an attention that is not fused: scale, mask,
dropout, casts, and the sums that a library's product leaves."""
TENSOR_TYPES = {"fp32": "tf32", "": "tf32"}
NAMED = 3
"""Kernels that a sentence names."""
TIMES = column("kernels", "total_ns")


def backend_findings(run: Run, frame: pd.DataFrame | None) -> list[Finding]:
    """Return a finding for each kind of slow kernel that takes enough time.

    A kernel whose own counters tell what is wrong with it is left to that finding, unless others
    of its kind have none.
    """
    found: list[Finding] = []
    kernels, capability = run.kernels, _capability(run)
    with_counters = {text(row["kernel_id"]): row for row in profiled(run)}
    for key, backend in BACKENDS.items():
        if not backend.pattern:
            continue
        mask = backend.matches(kernels)
        rows = [
            row
            for row in records(kernels[mask])
            if backend in OF_NAMES or not _explained(with_counters.get(text(row["kernel_id"])))
        ]
        if rows and backend is SIMT_GEMM:  # counters of some tell what is wrong with all of them
            rows = records(kernels[mask])
        if rows and backend.is_behind(capability):
            found.append(_finding(key, _Use(run, backend, rows, with_counters, capability)))
        kernels = kernels[~mask]
    if frame is not None:
        found += _math_attention(run, frame)
    return [f for f in found if f.share >= SLOW_BACKEND.limit("share")]


PASCAL, FOR_PASCAL = 6.1, r"^(?:kepler|maxwell|pascal)_|gemm_\d+x\d+x\d+_[NT]{2}_vec$"
"""The last GPUs without Tensor Cores, and names that cuBLAS gives their matrix products."""


def _capability(run: Run) -> float:
    """Return the highest compute capability of the GPUs; NaN where unknown.

    A summary of kernels does not name its GPU: products by kernels for Maxwell and Pascal tell it.
    """
    try:
        return max(float(str(c)) for c in run.gpus["compute_capability"].dropna())
    except ValueError:
        products = run.kernels[run.kernels["category"] == "gemm"]
        of_pascal = products["name"].str.contains(FOR_PASCAL).fillna(False).astype(bool)
        time = products["total_ns"]
        return PASCAL if time[of_pascal].sum() > time.sum() / 2 else math.nan


def _explained(row: Row | None) -> bool:
    """Tell whether a rule of kernels says what is wrong: no Tensor Cores, operands not aligned."""
    if row is None or TRANSFORM.search(text(row["name"])):
        return False
    return number(row["tensor_pct"]) < 1 or slow_name(row)


@dataclass(frozen=True)
class _Use:
    """The kernels of a back end in a run; `with_counters` are all kernels that have some."""

    run: Run
    backend: Backend
    rows: Sequence[Row]
    with_counters: Mapping[str, Row]
    capability: float

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(text(row["kernel_id"]) for row in self.rows[:LISTED])

    @property
    def time(self) -> Number:
        return Number(sum(number(row["total_ns"]) for row in self.rows), "ns", TIMES)

    def counters_of(self, row: Row) -> Row | None:
        return self.with_counters.get(text(row["kernel_id"]))

    def bounds(self) -> list[Bounds]:
        """Return what is saved of the time of each kernel."""
        if self.backend.reads:
            floor = self.dram_floor[1]
            gain = math.nan
            if floor.value:
                gain = max(0.0, 1 - floor.value / number(self.time.value))
            return [Bounds(gain, gain)] * len(self.rows)
        return [self._bounds(self.counters_of(row)) for row in self.rows]

    def _bounds(self, row: Row | None) -> Bounds:
        backend, roofs = self.backend, ceilings(self.run.roofs)
        if backend.saves is not None:
            return Bounds(*backend.saves)
        fractions = backend.roof_parts.get(self.capability)
        if backend.roof_parts and (row is None or fractions is None):
            return Bounds(math.nan, math.nan)
        if row is None:
            rough = backend.rough.get(self.capability, math.nan)
            return Bounds(rough, rough, rough=not math.isnan(rough))
        floor, duration = number(row["dram_pct"]) / 100, number(row["duration_ns"])
        if fractions is None:
            gain = max(0.0, 1 - max(tensor_time(row, roofs) / duration, floor))
            return Bounds(gain, gain)
        at_roof = tensor_time(row, roofs, row["sm_clock_hz"])
        low, high = (max(0.0, 1 - max(at_roof / p / duration, floor)) for p in fractions)
        return Bounds(low, high)

    @property
    def dram_floor(self) -> tuple[Number, Number]:
        """Bytes that go into the first and out of the last kernels, and their time at the roof.

        Together the kernels do the work of one that moves no more. Not known where one of them was
        not counted.
        """
        total = 0.0
        for pattern, name in (
            (self.backend.reads, "global_load_bytes"),
            (self.backend.writes, "global_store_bytes"),
        ):
            ends = [row for row in self.rows if re.search(pattern, text(row["name"]))]
            total += (
                math.nan
                if not ends
                else sum(
                    number((self.counters_of(row) or {}).get(name)) * number(row["calls"])
                    for row in ends
                )
            )
        refs = counters(self.run, self.ids, ("global_load_bytes", "global_store_bytes"))
        roof = ceilings(self.run.roofs).memory.get("dram")
        time = None if roof is None else total / roof.value * 1e9
        return Number(total, "B", refs), Number(time, "ns", (*refs, *column("roofs", "value")))


def tensor_time(row: Row, roofs: Ceilings, clock_hz: float = math.nan) -> float:
    """Return the ns that the Tensor Cores would take for a kernel's FLOPs; NaN where unknown.

    At `clock_hz` where it is given, else at the clock of the roof.
    """
    dtype = text(row["tensor_dtype"]) or text(row["dtype"])
    roof = roofs.pipe("tensor", TENSOR_TYPES.get(dtype, dtype))
    if roof is None:
        return math.nan
    return number(row["flops"]) / roof.at_clock(number(clock_hz)) * 1e9


def _finding(key: str, use: _Use) -> Finding:
    backend, gpu_time = use.backend, Number(kernel_time(use.run), "ns")
    bounds = use.bounds()
    low, high = (_saved(use.rows, [getattr(b, end) for b in bounds]) for end in ("low", "high"))
    rough = all(b.rough for b in bounds)
    share = use.time.share_of(gpu_time)
    names = [(text(row["kernel_id"]), text(row["short_name"])) for row in use.rows]
    return SLOW_BACKEND.finding(
        rule=backend.cause,
        key=key,
        title=Text("{share} of the GPU time goes to {what}", share=share, what=backend.label),
        verdict=Text(
            "{share} of the GPU time ({time}) goes to {what}: {kernels}. {reason} {gain}",
            share=share,
            time=use.time,
            what=backend.label,
            kernels=names_of(names, NAMED),
            reason=backend.reason,
            gain=_gain(low.share_of(gpu_time), high.share_of(gpu_time)),
        ),
        kernel_ids=use.ids,
        evidence=(
            Evidence(
                Text("time in these kernels"),
                use.time,
                Text("{limit} of the GPU time", limit=SLOW_BACKEND.thresholds["share"].number),
                backend.source,
            ),
            *_floor_evidence(use),
            *_reach_evidence(use),
            *_gain_evidence(use, low, high, rough=rough),
        ),
        action=backend.action,
        advice=backend.advice,
        disproof=backend.disproof,
        confidence="low" if high.value is None or rough or backend.reads else "medium",
        **of_gpu_time(high, use.time, gpu_time),
    )


def _saved(rows: Sequence[Row], gains: Sequence[float]) -> Number:
    """Return the time that gains (parts of the time of `rows`) save; unknown ones left out."""
    known = [
        number(row["total_ns"]) * gain
        for row, gain in zip(rows, gains, strict=True)
        if not math.isnan(gain)
    ]
    cells = tuple(Ref("kernels", text(row["kernel_id"]), "total_ns") for row in rows)
    return Number(sum(known) if known else None, "ns", cells)


def _gain(low: Number, high: Number) -> Text:
    """Say what better kernels save, of the GPU time."""
    if high.value is None:
        return Text("How much a better one gains is not known without counters.")
    if number(low.value) < high.value:
        return Text("Better ones could save {low} to {high} of the GPU time.", low=low, high=high)
    return Text("Better ones could save at most {gain} of the GPU time.", gain=high)


def _floor_evidence(use: _Use) -> Iterator[Evidence]:
    if not use.backend.reads or not use.dram_floor[1].value:
        return
    moved, floor = use.dram_floor
    yield measured(
        Text("bytes in and out of all"),
        moved,
        Text("ncu: what those that begin load, and those that end store"),
    )
    yield Evidence(
        Text("these at the roof of DRAM"),
        floor,
        Text("the gain ends there"),
        Text("prof: roofline model"),
    )


def _reach_evidence(use: _Use) -> Iterator[Evidence]:
    """Yield the FLOPs of one launch and their times at what better kernels reach of the roof."""
    fractions, row = use.backend.roof_parts.get(use.capability), use.counters_of(use.rows[0])
    if fractions is None or row is None:
        return
    ncu = Text("ncu")
    duration = Number(row["duration_ns"], "ns", counters(use.run, use.ids, ("duration_ns",)))
    flops = Number(row["flops"], "FLOP", counters(use.run, use.ids, ("flops",)))
    refs = (*counters(use.run, use.ids, ("flops", "sm_clock_hz")), *column("roofs", "value"))
    at_roof = tensor_time(row, ceilings(use.run.roofs), row["sm_clock_hz"])
    yield measured(Text("duration of one launch"), duration, ncu)
    yield measured(Text("FLOPs of one launch"), flops, ncu)
    for fraction in fractions:
        yield Evidence(
            Text("these at {part} of the Tensor Core roof", part=Number(fraction, "fraction")),
            Number(at_roof / fraction, "ns", refs),
            Text("what better kernels reach"),
            Text("FLOPs / (part x roof at the clock of the kernel)"),
        )


def _gain_evidence(use: _Use, low: Number, high: Number, *, rough: bool) -> Iterator[Evidence]:
    """Yield what the gain is computed from; nothing where it is not known."""
    backend, save, at_least = use.backend, Text("could save"), Text("could save at least")
    if high.value is None:
        return
    if backend.reads:
        yield measured(save, high, Text("the time less that at the roof"))
    elif backend.roof_parts:
        source = Text("their time x (1 - time at that part of the roof / duration)")
        refs = (*counters(use.run, use.ids, ("flops", "duration_ns")), *TIMES)
        yield measured(at_least, Number(low.value, "ns", refs), source)
        yield measured(save, Number(high.value, "ns", refs), source)
    elif backend.saves is not None:
        for label, saved, factor in zip((at_least, save), (low, high), backend.saves, strict=True):
            source = Text("the time x {part}", part=Number(factor))
            yield measured(label, Number(saved.value, "ns", TIMES), source)
    elif rough:
        rough_part = Number(backend.rough[use.capability])
        source = Text("the time x {part}, a rough value: no counters", part=rough_part)
        yield measured(save, high, source)
    else:
        refs = (*counters(use.run, use.ids, ("flops", "dram_pct")), *column("roofs", "value"))
        source = Text("the time x (1 - the nearer of the Tensor Core and the DRAM roof)")
        yield measured(save, Number(high.value, "ns", refs), source)


def _math_attention(run: Run, frame: pd.DataFrame) -> list[Finding]:
    """Return a finding where products, a softmax and products follow on each other."""
    between = SLOW_BACKEND.thresholds["between"]
    spans = attention_spans(frame, int(between.value), SLOW_BACKEND.limit("apart"))
    if not spans:
        return []
    launches = frame.iloc[np.concatenate([np.arange(a, b) for a, b in spans])]
    refs = column("launches", "duration_ns")
    durations, products = launches["duration_ns"], launches["category"].isin(PRODUCT)
    time, passing = (Number(ns.sum(), "ns", refs) for ns in (durations, durations[~products]))
    gpu_time, floor = Number(kernel_time(run), "ns"), _product_floor(run, launches[products])
    # Without counters of the products, only what stands between them is known to vanish.
    saved = passing
    if floor.value is not None:
        saved = Number(max(0.0, number((time - floor).value)), "ns")
    share, gain = time.share_of(gpu_time), saved.share_of(gpu_time)
    backend = MATH_ATTENTION
    return [
        SLOW_BACKEND.finding(
            key="math_attention",
            title=Text("Attention is not fused and takes {share} of the GPU time", share=share),
            verdict=Text(
                "Attention runs as separate kernels {times}, which takes {share} of the GPU time "
                "({time}); {passing} of this is softmax, masks and casts between the products. "
                "{reason} A fused kernel could save about {gain} of the GPU time ({saved}).",
                times=Text("{n} time", "{n} times", n=len(spans)),
                share=share,
                time=time,
                passing=passing.share_of(time),
                reason=backend.reason,
                gain=gain,
                saved=saved,
            ),
            kernel_ids=longest_kernels(launches, LISTED),
            evidence=(
                Evidence(
                    Text("softmax between two products"),
                    Number(len(spans), "count", column("launches", "start_ns")),
                    Text("at most {n} kernels between them", n=int(between.value)),
                    between.source,
                ),
                Evidence(Text("time of these kernels"), time, source=NSYS),
                measured(Text("of it not in products"), passing, backend.source),
                None
                if floor.value is None
                else measured(Text("products at the roof of the Tensor Cores"), floor, Text("ncu")),
            ),
            action=backend.action,
            advice=backend.advice,
            disproof=backend.disproof,
            confidence="medium" if floor.value is None else "high",
            **of_gpu_time(saved, time, gpu_time),
        )
    ]


def _product_floor(run: Run, products: pd.DataFrame) -> Number:
    """Return the time that the Tensor Cores need for products; None where not all were counted."""
    roofs = ceilings(run.roofs)
    rows = {text(row["kernel_id"]): row for row in profiled(run)}
    launches = products["kernel_id"].astype(object).value_counts()
    keys = [str(key) for key in launches.index]
    times = [
        tensor_time(rows[key], roofs) * int(n) if key in rows else math.nan
        for key, n in zip(keys, launches, strict=True)
    ]
    refs = (*counters(run, keys, ("flops",)), *column("roofs", "value"))
    return Number(sum(times) if times else None, "ns", refs)


def attention_spans(frame: pd.DataFrame, between: int, apart_ns: float) -> list[tuple[int, int]]:
    """Return first and last (exclusive) positions of product, softmax, product in `frame`.

    `frame` is that of `timeline`; at most `between` other kernels that only touch elements stand
    between the softmax and each product, and all are of one stream and stage, without a pause of
    more than `apart_ns`.
    """
    softmax = np.flatnonzero(frame["category"] == "softmax").tolist()
    if not softmax:
        return []
    category = frame["category"].to_numpy(object)
    pause = frame["start_ns"].to_numpy()[1:] - frame["end_ns"].to_numpy()[:-1]
    stage = pd.factorize(frame["stage"])[0]
    cut = (pause > apart_ns) | (stage[1:] != stage[:-1])
    cut |= np.diff(frame["queue"].to_numpy()) != 0
    segment = np.concatenate([[0], np.cumsum(cut)])
    found: list[tuple[int, int]] = []
    for at in softmax:
        first = _product(category, segment, at, -1, between)
        last = _product(category, segment, at, 1, between)
        if first is not None and last is not None and (not found or first >= found[-1][1]):
            found.append((first, last + 1))
    return found


def _product(category: Any, segment: Any, at: int, step: int, between: int) -> int | None:
    """Return the position of the next product before or after `at`; None where another is."""
    for position in range(at + step, at + step * (between + 2), step):
        if not 0 <= position < len(category) or segment[position] != segment[at]:
            return None
        if category[position] in PRODUCT:
            return position
        if category[position] not in BETWEEN:
            return None
    return None
