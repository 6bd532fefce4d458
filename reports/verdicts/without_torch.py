"""What to do in a program that does not run PyTorch, where a rule names functions of it."""

from __future__ import annotations

from dataclasses import replace

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program.backends import MATH_ATTENTION
from nsight_prof.reports.findings.program.copies import PIN
from nsight_prof.reports.findings.program.fusion import ELEMENTWISE_CHAIN
from nsight_prof.reports.findings.program.idle_rules import IDLE, LAUNCH_BOUND, SYNC_STALLS
from nsight_prof.reports.findings.program.launches import SMALL_KERNELS
from nsight_prof.reports.page import Text

OF_TORCH = ("PyTorch", "Triton", "vLLM")
"""Libraries of kernels that a program in PyTorch launches, and hardly any other."""
INSTEAD = {
    LAUNCH_BOUND.action: Text(
        "Launch less often: capture the step in a CUDA graph (cudaStreamBeginCapture), fuse "
        "kernels, or give each launch more work."
    ),
    IDLE.action: Text(
        "Launch less often: CUDA graphs, fused or larger kernels, no synchronisation or blocking "
        "copy to the host inside the loop."
    ),
    SYNC_STALLS.action: Text(
        "Take synchronisations out of the loop (cudaDeviceSynchronize, cudaStreamSynchronize, "
        "cudaMemcpy): keep results on the GPU, and read them once at the end or a step later with "
        "cudaMemcpyAsync into pinned memory."
    ),
    SMALL_KERNELS.action: Text(
        "Fuse them into one kernel for the whole chain, work on all items at a time (one batched "
        "call), or launch them as one CUDA graph."
    ),
    ELEMENTWISE_CHAIN.action: Text(
        "Fuse the chain into one kernel that reads its inputs once and writes its result once."
    ),
    MATH_ATTENTION.action: Text(
        "Use a fused attention kernel: that of cuDNN or FlashAttention (bf16 or fp16, head size up "
        "to 256, no dense mask that it does not take)."
    ),
    MATH_ATTENTION.disproof: Text(
        "A fused attention kernel does not take these inputs, or takes as long."
    ),
    PIN[0]: Text(
        "Copy from pinned memory (cudaHostAlloc, cudaHostRegister) with cudaMemcpyAsync, while "
        "kernels run: a copy of pageable memory passes through a buffer of the driver, at a "
        "fraction of the rate, and blocks the host."
    ),
    LAUNCH_BOUND.advice: Text(
        "start the GPU's work in larger portions (CUDA graphs), so that it need not wait"
    ),
    SMALL_KERNELS.advice: Text("let it do several small steps in one go"),
    ELEMENTWISE_CHAIN.advice: Text("do these steps in one pass over the data"),
}
"""Action, advice or disproof -> the same in words of CUDA."""


def in_words_of_cuda(run: Run, finding: Finding) -> Finding:
    """Return a finding that names nothing of PyTorch, where no kernel of it runs."""
    if run.kernels["library"].fillna("").isin(OF_TORCH).any():
        return finding
    words = {name: getattr(finding, name) for name in ("action", "advice", "disproof")}
    return replace(finding, **{name: INSTEAD.get(text, text) for name, text in words.items()})
