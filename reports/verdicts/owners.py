"""What to do in programs whose owner does not write them in PyTorch: in CUDA, or in an engine."""

from __future__ import annotations

from dataclasses import replace

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.findings.kernels.roofs import ROOFS
from nsight_prof.reports.findings.kernels.waits import LATENCY
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program.backends import MATH_ATTENTION
from nsight_prof.reports.findings.program.collectives import COLLECTIVES_EXPOSED
from nsight_prof.reports.findings.program.copies import CASTS_AND_COPIES, PIN
from nsight_prof.reports.findings.program.fusion import ELEMENTWISE_CHAIN
from nsight_prof.reports.findings.program.idle_rules import LAUNCH_BOUND, SYNC_STALLS
from nsight_prof.reports.findings.program.launch_rules import SMALL_KERNELS
from nsight_prof.reports.page import Text

OF_TORCH = ("PyTorch", "Triton", "vLLM")
"""Libraries of kernels that a program in PyTorch launches, and hardly any other."""
INSTEAD: dict[Text | None, Text] = {
    LAUNCH_BOUND.action: Text(
        "Launch less often: capture the step in a CUDA graph (cudaStreamBeginCapture), fuse "
        "kernels, or give each launch more work."
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
        "Keep on the GPU what does not change, and copy the rest from pinned memory "
        "(cudaHostAlloc, cudaHostRegister) with cudaMemcpyAsync, while kernels run: a copy of "
        "pageable memory passes through a buffer of the driver, at a fraction of the rate, and "
        "blocks the host."
    ),
    LAUNCH_BOUND.advice: Text(
        "start the GPU's work in larger portions (CUDA graphs), so that it need not wait"
    ),
    SMALL_KERNELS.advice: Text("let it do several small steps in one go"),
    ELEMENTWISE_CHAIN.advice: Text("do these steps in one pass over the data"),
}
"""Action, advice or disproof -> the same in words of CUDA."""
FUSIBLE = [words for words in (LATENCY.fusible, ROOFS["issue"].fusible) if words is not None]
"""Action and advice about kernels that torch.compile fuses with their neighbours."""
COMPILED = Text(
    "Let the engine fuse it with the kernels before and after it: its compilation switched on "
    "(vLLM: compilation_config mode 3, no enforce_eager), or a newer version that has a fused "
    "kernel for them."
)
OF_ENGINES: dict[Text | None, Text] = {
    LAUNCH_BOUND.action: Text(
        "Launch less often: let the engine replay its steps as CUDA graphs (vLLM: no "
        "enforce_eager, graphs for the batches that come), or answer more requests at a time."
    ),
    SMALL_KERNELS.action: Text(
        "Let the engine run them as fewer kernels (its compilation switched on, in vLLM: "
        "compilation_config mode 3, no enforce_eager; a newer version that fuses them), or answer "
        "more requests at a time."
    ),
    ELEMENTWISE_CHAIN.action: COMPILED,
    COLLECTIVES_EXPOSED.action: Text(
        "Divide the model over fewer GPUs where it fits, with more replicas of it instead; let the "
        "engine use its own all-reduce for small messages, and two halves of a batch in turn where "
        "it can; use faster links between the GPUs, or smaller types."
    ),
    LAUNCH_BOUND.advice: INSTEAD[LAUNCH_BOUND.advice],
    SMALL_KERNELS.advice: INSTEAD[SMALL_KERNELS.advice],
    ELEMENTWISE_CHAIN.advice: INSTEAD[ELEMENTWISE_CHAIN.advice],
    CASTS_AND_COPIES.action: Text(
        "Let the engine's compilation fuse them (vLLM: compilation_config mode 3, no "
        "enforce_eager), load weights in the type in which they are used, or try a newer version."
    ),
    **{action: COMPILED for action, _ in FUSIBLE},
    **{advice: Text("let the engine fuse it with the steps around it") for _, advice in FUSIBLE},
}
"""The same for those who run an inference engine, whose code and training are not theirs."""


def in_words_of_owner(run: Run, finding: Finding) -> Finding:
    """Return a finding that advises what the owner of the program can do.

    It names nothing of PyTorch where no kernel of it runs, and settings of an engine where one
    does.
    """
    instead = OF_ENGINES if len(run.engine_steps) else {}
    if not run.kernels["library"].fillna("").isin(OF_TORCH).any():
        instead = {**INSTEAD, **instead}
    words = {name: getattr(finding, name) for name in ("action", "advice", "disproof")}
    return replace(finding, **{name: instead.get(text, text) for name, text in words.items()})
