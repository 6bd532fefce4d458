"""What a line of Python does that a finding is about: operations that experts know by name.

A line is known by its text, which was kept when it was sampled, or by the function of a library
that it is in. What it does becomes part of the title, and its remedy the first of the actions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from nsight_prof.reports.analysis.lines import HostLine
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program import idle_rules
from nsight_prof.reports.page import Text, Verbatim


class Operation(NamedTuple):
    """What a line does, behind "the program", and what to do about it.

    `pattern` is searched in the text of the line, `inner` in the innermost frame of a library,
    "file:line function"; an empty one is not searched.
    """

    pattern: str
    does: Text
    action: Text
    inner: str = ""

    def is_at(self, line: HostLine) -> bool:
        """Tell whether a line does it."""
        of_text = bool(self.pattern) and re.search(self.pattern, line.source) is not None
        return of_text or (bool(self.inner) and re.search(self.inner, line.inner) is not None)


WAITS = (
    Operation(
        r"\.item\(\)",
        Text("reads single values (scalars) back with .item()"),
        Text(
            "Keep the value on the GPU (torch.where, sums there), and read it every some steps, or "
            "once at the end; a copy to pinned memory can be read a step later."
        ),
    ),
    Operation(
        r"\.tolist\(\)",
        Text("turns tensors into Python lists (.tolist())"),
        Text(
            "Do on the GPU what the loop over the list does (indexing, comparison, cumsum), and "
            "copy only its end; or copy for many steps at once, and let another process go on."
        ),
    ),
    Operation(
        r"\bnonzero\b|\bmasked_select\(|\bargwhere\(|\btorch\.where\([^,]*\)"
        r"|\w\[[^\]]*(?:\w*mask\w*|[=!<>]=|[<>]|~|\bvalid\b|isnan|isfinite)[^\]]*\]",
        Text("selects elements by a boolean mask (nonzero), whose number the host must know"),
        Text(
            "Keep the shape: multiply by the mask, torch.where(mask, x, 0) or masked_fill in place "
            "of x[mask], and divide by mask.sum(); then nothing waits for a number of elements."
        ),
    ),
    Operation(
        r"\bunique(?:_consecutive)?\(",
        Text("asks for unique values (torch.unique), whose number depends on the data"),
        Text(
            "Count in bins of a known number (bincount with minlength, scatter_add), or sort and "
            "mark first occurrences, so that no result has a size that the host must wait for."
        ),
    ),
    Operation(
        r"\b(?:repeat_interleave|bincount|histc)\(",
        Text("asks for a result whose size depends on the data"),
        Text(
            "Give the size: output_size= of repeat_interleave, minlength= of bincount with bounds "
            "that are known; or work with offsets (searchsorted, cumsum) instead."
        ),
    ),
    Operation(
        r"\blinalg\.|\bcholesky\(|\b(?:inv|inverse|solve|lstsq|eigh|svd|det)\(",
        Text("solves or inverts with torch.linalg, which checks its result on the host"),
        Text(
            "Use the variants that do not check (torch.linalg.inv_ex, solve_ex, cholesky_ex with "
            "check_errors=False), batched for all matrices, and look at `info` once at the end."
        ),
    ),
    Operation(
        r"\b(?:allclose|equal)\(",
        Text("compares tensors and asks for the answer (torch.equal, allclose)"),
        Text("Compare on the GPU, and read the answer once at the end or every some steps."),
    ),
    Operation(
        r"\bclip_grad_norm_\(",
        Text("clips gradients, and waits for their norm"),
        Text("Clip with foreach=True and error_if_nonfinite=False, and leave the norm on the GPU."),
        r"/nn/utils/clip_grad\.py",
    ),
    Operation(
        r"\bscaler\.(?:step|update|unscale_)\(",
        Text("scales losses (GradScaler), which waits for a flag of each step"),
        Text(
            "Use bfloat16, which needs no loss scaling, or a fused optimizer, which takes the "
            "scale and the flag on the GPU."
        ),
        r"/amp/grad_scaler\.py",
    ),
    Operation(
        r"\.(?:cpu|numpy)\(\)|\.to\(\s*[\"']cpu|device\s*=\s*[\"']cpu",
        Text("copies results to the host (.cpu(), .numpy())"),
        Text(
            "Leave the results on the GPU and go on with them there; copy fewer of them (the "
            "chosen ones, not all scores), or a step later from pinned memory (non_blocking=True)."
        ),
    ),
    Operation(
        r"\b(?:int|float|bool)\(",
        Text("turns values of the GPU into numbers of Python (int(), float())"),
        Text(
            "Keep sizes and numbers that the loop needs on the host from the start, or on the GPU "
            "to the end: an upper bound does for a size, with the rest masked there."
        ),
    ),
    Operation(
        r"^(?:el)?if\b|^while\b|^assert\b|\.(?:any|all)\(\)|\bif\b.*\belse\b",
        Text("asks for the truth of a tensor (if, while, assert)"),
        Text(
            "Decide on the GPU (torch.where, a multiplication by 0 or 1), or look every some "
            "steps: each condition on a tensor waits until all before it has run."
        ),
    ),
    Operation(
        r"\bsynchronize\(\)",
        Text("calls synchronize()"),
        Text(
            "Take it out; to measure times, use events (torch.cuda.Event(enable_timing=True)) and "
            "read them at the end."
        ),
    ),
    Operation(
        r"\bprint\(|\bf[\"'].*\{|\.format\(",
        Text("formats values of the GPU as text"),
        Text("Keep the values on the GPU, and write them together every some steps."),
    ),
    Operation(
        r"\btorch\.(?:as_)?tensor\(|\bfrom_numpy\(",
        Text("makes tensors of Python lists and numbers on the host, and sends them to the GPU"),
        Text(
            "Make them on the GPU (torch.full, arange with device=), once before the loop where "
            "they do not change, or many of them in one pinned tensor with non_blocking=True."
        ),
    ),
)
"""Operations for whose result the host waits, those that say most first."""
WORKS = (
    Operation(
        r"\bjson\.|\bpickle\.|\byaml\.|\bliteral_eval\(|\bstruct\.|\bcsv\.",
        Text("parses or writes data on the host (JSON, pickle, CSV)"),
        Text(
            "Parse once, before the loop, or ahead of it in other processes, and keep what comes "
            "out as tensors (memory-mapped, binary)."
        ),
    ),
    Operation(
        r"\b(?:zlib|gzip|lzma|bz2|zstd|lz4|zipfile|base64|hashlib)\b|\b(?:de)?compress\(",
        Text("compresses, unpacks or hashes data on the host"),
        Text(
            "Keep the data unpacked, unpack ahead of the loop in other processes (a DataLoader "
            "with workers), or on the GPU (nvCOMP)."
        ),
    ),
    Operation(
        r"\bImage\.|\bimread\(|\bimdecode\(|\bdecode_(?:jpeg|image|png)\(",
        Text("decodes images on the host"),
        Text(
            "Decode on the GPU (nvJPEG, torchvision.io.decode_jpeg with device=), or ahead in "
            "other processes (a DataLoader with workers), or store what the model needs."
        ),
    ),
    Operation(
        # Not vae.decode(latents): models encode and decode, too.
        r"\bre\.\w|\btokeni[sz]|\.(?:lower|strip)\(|\.replace\(\s*[\"']|\.split\((?:[\"'].*)?\)"
        r"|\w*(?:tok|text|line|str|word|byte|raw)\w*\.(?:en|de)code\(|\.(?:en|de)code\(\s*[\"']",
        Text("works on text on the host (tokenises, splits, decodes)"),
        Text(
            "Tokenise once before the loop, or ahead of it in other processes; a tokenizer written "
            "in C++ or Rust takes a fraction of the time of Python."
        ),
    ),
    Operation(
        r"\brandom\.|\brandperm\(|\bshuffle\(|\brng\.",
        Text("draws random numbers on the host"),
        Text("Draw on the GPU (torch.rand, randint, randperm with device=), many at once."),
    ),
    Operation(
        r"\bsorted\(|\bheapq\.|(?<![.\w])(?:min|max|sum)\(",
        Text("computes in Python on the host (CPU), item by item"),
        Text("Sort, sum and choose on the GPU (torch.sort, topk, scatter_add), for all items."),
    ),
    Operation(
        r"\bsubprocess\.|\bos\.system\(|\bPopen\(",
        Text("starts other programs"),
        Text("Start them before the loop or beside it, and do not wait for them in each step."),
    ),
    Operation(
        r"\brequests\.|\burlopen\(|\bsocket\b|\.recv\w*\(|\.send\w*\(",
        Text("waits for the network"),
        Text("Fetch ahead in another thread or process, with a queue between it and the loop."),
    ),
    Operation(
        r"\.(?:get|join|result|acquire|wait)\((?:timeout\b[^)]*)?\)",
        Text("waits for another thread or process (a queue, a lock)"),
        Text(
            "Let the other side run ahead: a queue with room for some items, more workers, no lock "
            "round long work."
        ),
    ),
    Operation(
        r"\bnn\.[A-Z]\w+\(|\boptim\.[A-Z]\w+\(|\btorch\.compile\(|\btorch\.jit\.",
        Text("makes modules, optimizers or compiled functions in the loop"),
        Text(
            "Make them once, before the loop, and keep them: new weights are drawn on the host, "
            "allocated and copied each time, and compiled code is looked up or built again."
        ),
    ),
    Operation(
        r"\b(?:named_)?(?:parameters|modules|buffers|children)\(\)|\bstate_dict\(",
        Text("walks over the modules and parameters of a network in Python"),
        Text(
            "Collect them once in a list before the loop, and work on all of them at once "
            "(torch._foreach_* functions)."
        ),
    ),
    Operation(
        r"\bcuda\.(?:memory|max_memory|reset_peak)_?\w*\(|\bmem_get_info\(|\bpynvml\.|\bnvml\w+\(",
        Text("asks for the state of the GPU or statistics of its memory"),
        Text("Ask every some hundred steps, or from another thread: each question takes long."),
        r"/torch/cuda/memory\.py:\d+ (?!empty_cache)|/pynvml",
    ),
    Operation(
        "",
        Text("draws the first weights of new modules on the host"),
        Text(
            "Make modules once, before the loop, and keep them; on the GPU with "
            'torch.device("cuda") as context, or empty (torch.nn.utils.skip_init) where weights '
            "are loaded anyway."
        ),
        r"/torch/nn/init\.py",
    ),
    Operation(
        r"\bpin_memory\(",
        Text("pins memory in the loop"),
        Text(
            "Pin once: one pinned buffer per batch in flight that is filled again and again, or a "
            "DataLoader with pin_memory=True, whose thread does it."
        ),
    ),
)
"""Work of the host, known by the text of its line."""
LAUNCHES = (
    Operation(
        "",
        Text("steps a recurrent cell in Python (LSTMCell, GRUCell)"),
        Text(
            "Give the whole sequence to nn.LSTM or nn.GRU: cuDNN runs all time steps in one call."
        ),
        r"/torch/nn/modules/rnn\.py:",
    ),
    Operation(
        "",
        Text("steps an optimizer, whose update of each parameter is some small kernels"),
        Text("Make the optimizer with fused=True (or foreach=True): one kernel for many tensors."),
        r"/torch/optim/(?!lr_scheduler)",
    ),
    Operation(
        r"\bautograd\.grad\(|\b(?:jacobian|hessian)\(",
        Text("derives in a loop (torch.autograd.grad), a backward pass each time"),
        Text(
            "Derive for all outputs at once: torch.func.vmap, jacrev or hessian, or "
            "is_grads_batched=True, which run one backward pass of batched kernels."
        ),
    ),
    Operation(
        r"\[.*\bfor\b.*\bin\b.*\]|\.append\(|^for\b|\bfor\b .*\bin\b",
        Text("works on one item after another in a Python loop"),
        Text(
            "Work on all items at once: stack them and call each operator once (batched products, "
            "torch.func.vmap, padding or nested tensors where lengths differ)."
        ),
    ),
)
"""Sources of many small launches."""
PYTHON = Operation(
    "",
    Text("runs code on the host (CPU): Python, or operators on tensors that lie there"),
    Text(
        "Vectorise the loop, and do it on the GPU with tensors; else prepare it ahead in another "
        "process (multiprocessing, a DataLoader with workers) or before the loop."
    ),
)
"""What the host does at a line of its own that is none of these, in no library."""


CALLED = re.compile(r"([A-Za-z_][\w.]*)\(")
NOT_TOLD = re.compile(
    r"^(?:if|for|while|return|elif|and|or|not|in|print|range|len|zip|enumerate|int|float|str|list"
    r"|dict|tuple|super|isinstance|append|items|size_t|sizeof|static_cast|reinterpret_cast)$"
)
"""Words before a bracket that are no operator, or say nothing of it."""
LISTED = 3


def calls_at(source: str) -> Text | str:
    """Return a sentence on what a line of source calls; empty where that is nothing, or unknown."""
    names = dict.fromkeys(
        name.removeprefix("self.") for name in CALLED.findall(source.partition("#")[0])
    )
    called = [Verbatim(name) for name in names if not NOT_TOLD.search(name.split(".")[-1])][:LISTED]
    return Text(" It calls {names} there.", names=called) if called else ""


def with_operation(
    finding: Finding, lines: Sequence[HostLine], waits: Sequence[HostLine]
) -> Finding:
    """Return a finding with what the program does at its lines, where that is known.

    `waits` are the lines at which the host waits for results, most samples first.
    """
    rule = finding.rule
    is_wait = rule == idle_rules.SYNC_STALLS.key
    is_wait |= rule == idle_rules.LAUNCH_BOUND.key and not finding.choice
    if is_wait:
        return _with_words(finding, _found(lines[:1], WAITS), _after(finding))
    if rule == idle_rules.RESULTS_ON_HOST.key:
        return _with_words(finding, _found(waits[:1], WAITS))
    if rule == idle_rules.LAUNCH_BOUND.key:
        return _with_words(finding, _found(lines[:1], LAUNCHES), _after(finding))
    if rule == idle_rules.HOST_BOUND.key and not finding.choice:
        default = PYTHON if lines[0].doing == "program" else None
        return _with_words(finding, _found(lines[:1], (*WAITS[:1], *WORKS, *WAITS[1:])) or default)
    return finding


def _found(lines: Sequence[HostLine], operations: Sequence[Operation]) -> Operation | None:
    return next((op for op in operations if any(op.is_at(line) for line in lines)), None)


def _after(finding: Finding) -> Text | None:
    """Return what to do after the operation is mended: launch less often."""
    return idle_rules.LAUNCH_BOUND.action if finding.rule == idle_rules.LAUNCH_BOUND.key else None


def _with_words(finding: Finding, operation: Operation | None, then: Text | None = None) -> Finding:
    if operation is None:
        return finding
    title = Text("{title}: the program {does}", title=finding.title, does=operation.does)
    action = operation.action
    if then is not None:
        action = Text("{action} Then: {then}", action=action, then=then)
    is_headline = finding.headline == finding.title
    return replace(
        finding, title=title, headline=title if is_headline else finding.headline, action=action
    )
