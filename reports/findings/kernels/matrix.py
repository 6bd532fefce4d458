"""Matrix products that miss the Tensor Cores or their fast kernels."""

from __future__ import annotations

from nsight_prof.parsers.cells import text
from nsight_prof.reports.findings.kernels import facts
from nsight_prof.reports.findings.kernels.rule import NONE, Kernel, Rule
from nsight_prof.reports.page.values import Text, Verbatim

OWN = ("", "other", "Triton", "Inductor", "CUTLASS")
"""Libraries of kernels whose code the program's author writes, or has a compiler write."""
WRITTEN = ("other", "Triton", "Inductor")
"""Those of them that no library's choice of a kernel decides."""
NARROW = 8
"""Rows or columns of a product up to which it is too narrow for a tile of the Tensor Cores."""
ELEMENTS = {"fp64": 2, "fp32": 4, "tf32": 4, "fp8": 16, "int8": 16}
"""Elements in 16 bytes, which TMA and the vector loads of libraries need; 8 of 2-byte types."""


def unaligned(size: tuple[int, ...], dtype: str) -> tuple[str, ...]:
    """Return the sides of a product ("n = 1023") whose rows do not start at 16 bytes each.

    `size` is m, n, k or empty: rows are k long (factors) and n long (output), m counts them.
    """
    step = ELEMENTS.get(dtype, 8)
    sides = zip(("n", "k"), size[1:], strict=False)
    return tuple(f"{side} = {length}" for side, length in sides if length % step)


def _odd_sizes(kernel: Kernel) -> Text | str:
    """Return which sizes do not start their rows at 16 bytes, as the end of a clause."""
    odd = unaligned(kernel.context.need(kernel.row).size, text(kernel.row["dtype"]))
    if not odd:
        return ""
    return Text(": {sizes} is no multiple of 8 elements", sizes=[Verbatim(size) for size in odd])


def _type_or_size(kernel: Kernel) -> Text | str:
    """Return why a product misses the Tensor Cores, as far as its type and size tell."""
    dtype, size = text(kernel.row["dtype"]), kernel.context.need(kernel.row).size
    if text(kernel.row["library"]) in WRITTEN:
        return ""
    if dtype in ("fp32", "tf32"):
        name = Verbatim(dtype.upper())
        return Text(": its inputs are {dtype}, and TF32 is not allowed", dtype=name)
    if dtype == "fp64":
        return Text(": its inputs are FP64, and the library did not take FP64 Tensor Cores")
    if odd := _odd_sizes(kernel):
        return odd
    narrow = [f"{side} = {n}" for side, n in zip(("m", "n"), size, strict=False) if n < NARROW]
    if not narrow:
        return ""
    return Text(": with {sizes} it is too narrow for a tile", sizes=[*map(Verbatim, narrow)])


TENSOR_IDLE = Rule(
    key="tensor_idle",
    question="Does matrix work run on the Tensor Cores?",
    when=(facts.IS_MATRIX >= 1) & (facts.TENSOR_ACTIVE < 1),
    clause=lambda k: Text(
        "it multiplies matrices without the Tensor Cores{reason}", reason=_type_or_size(k)
    ),
    symptom=Text("does not use the Tensor Cores"),
    remedy=Text("On the Tensor Cores"),
    action=Text(
        "Allow TF32 or use bf16/fp16 inputs with aligned sizes, so that the library picks "
        "a Tensor Core kernel."
    ),
    actions={
        "own": Text(
            "Its arithmetic is that of a matrix product: let the Tensor Cores do it (tl.dot with "
            'bf16 or fp16 operands or input_precision="tf32", mma or wmma, or a product of '
            "cuBLAS or CUTLASS in its place)."
        )
    },
    advice=Text("let it use the GPU's matrix units (TF32, bf16 or fp16 numbers)"),
    estimate="The FLOPs take the time that the Tensor Cores' roof of that type allows, or what "
    "DRAM and L2 need, if that is longer.",
    disproof=Text(
        "The FLOPs of the kernel are no matrix product, or the numbers need more than "
        "TF32's 11 bits: then no Tensor Core type can take its place."
    ),
    source=Text("prof; Nsight Compute rule HighPipeUtilization calls a pipe under 20 % low"),
    confidence="high",
    remaining=facts.TENSOR_NEEDED,
    unloads={"fp32": NONE, "fp16": NONE, "fp64": NONE, "issue": NONE, "l1": NONE, "lsu": NONE},
    bounds=("latency", "l1", "l2", "fp32", "fp64", "fp16", "alu", "xu", "issue"),
)
MISALIGNED = Rule(
    key="misaligned",
    question="Do the sizes of a matrix product fit the fast kernels?",
    when=(facts.IS_MATRIX >= 1) & (facts.MISALIGNED >= 1) & (facts.TENSOR_REACHED < 60),
    clause=lambda k: Text(
        "its operands are not aligned to 16 bytes{reason}, so the library takes a slower kernel",
        reason=_odd_sizes(k),
    ),
    symptom=Text("works on operands that are not aligned"),
    remedy=Text("With aligned sizes"),
    action=Text(
        "Pad the sizes to multiples of 8 elements (16 bytes) once, at load time, so that "
        "the library can take its TMA and Tensor Core kernels."
    ),
    advice=Text("round its matrix sizes up to a multiple of 8"),
    estimate="The product reaches the Tensor Core roof; DRAM needs what it needs now.",
    disproof=Text(
        "The same product with sizes padded to multiples of 8 runs the same kernel, or "
        "takes as long."
    ),
    source=Text(
        "CUDA, cuBLAS documentation, Tensor Core usage: dimensions that are multiples of "
        "16 bytes run best"
    ),
    remaining=facts.TENSOR_REACHED,
    unloads={"lsu": NONE, "l1": NONE, "l2": NONE, "issue": NONE, "tensor": NONE},
)
UNPIPELINED = Rule(
    key="unpipelined_loads",
    in_code=True,
    question="Do the Tensor Cores wait for loads that could run ahead of them?",
    when=(facts.IS_OWN >= 1)
    & (facts.TENSOR_ACTIVE >= 10)
    & (facts.TENSOR_ACTIVE < 60)
    & (facts.THROUGH_REGISTERS >= 50)
    & (facts.LOAD_WAITS >= 50),
    clause=lambda k: Text(
        "its warps wait for loads from memory, and at barriers for each other's loads, in {waits} "
        "of their stalls, while the Tensor Cores work for {tensor} of the time: its loads go "
        "through registers ({registers}), and no asynchronous copy runs ahead (no pipeline)",
        waits=k.number(facts.LOAD_WAITS),
        tensor=k.number(facts.TENSOR_ACTIVE),
        registers=k.number(facts.THROUGH_REGISTERS),
    ),
    symptom=Text("waits for loads that are not pipelined"),
    remedy=Text("With a pipeline of loads"),
    action=Text(
        "Load ahead while the Tensor Cores work: num_stages of 3 or 4 in Triton, cp.async or TMA "
        "with two or more buffers of shared memory in CUDA."
    ),
    advice=Text("let it fetch the next data while it still computes"),
    estimate="The product reaches 70 % of the Tensor Core roof, or what DRAM and L2 need.",
    disproof=Text("With more stages of its pipeline it takes as long."),
    source=Text("prof: half of the loads by registers, half of the stalls for them"),
    unloads={"lsu": NONE, "l1": NONE, "issue": NONE},
    attainable=0.7,
    attainable_source="products in Triton with a pipeline reached 72 % in recorded runs of an H200",
)
ATTENTION_MASK = Rule(
    key="attention_mask",
    question="Does an attention kernel read a mask that could be a flag?",
    when=(facts.IS_ATTENTION >= 1)
    & (facts.IS_OWN < 1)
    & (facts.TENSOR_ACTIVE >= 5)
    & (facts.THROUGH_REGISTERS >= 10),
    clause=lambda k: Text(
        "{loads} of its traffic in L1 are loads of single threads, as of a mask or bias that is "
        "given as a tensor: queries, keys and values come in tiles",
        loads=k.number(facts.THROUGH_REGISTERS),
    ),
    symptom=Text("reads a mask as a tensor"),
    remedy=Text("With is_causal in place of a causal mask"),
    action=Text(
        "Where the mask is causal, say so (is_causal=True) and give no tensor: the kernel then "
        "reads none and skips the pairs that are masked, and flash attention can take it. For "
        "padding take sequences of unequal length (nested tensors, variable-length attention)."
    ),
    advice=Text("tell attention its rule (causal) instead of handing it a table of what to mask"),
    estimate="Half of the pairs are left, and none of their stalls for loads.",
    disproof=Text("The mask is not causal, or with is_causal=True it takes as long."),
    source=Text("prof: a tenth of the traffic; Dao et al., FlashAttention (2022)"),
    remaining=facts.UNMASKED_LEFT,
    unloads={
        **dict.fromkeys(("lsu", "l1", "issue"), NONE),
        **dict.fromkeys(("tensor", "l2"), facts.HALF_LEFT),
    },
)
