"""What the cases of all families are made with: random buffers, torch.compile, names of dtypes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from nsight_prof.targets.harness import Setup, Unsupported

CHUNK_BYTES = 16 << 20
ALIGNMENT = 256
"""Of cudaMalloc, so that no kernel sees a slice of a chunk as less aligned than a tensor."""


class Maker:
    """Makes the buffers of one case: N(0, 1) times a scale, or zeros, from the seed of the run.

    Small buffers are slices of larger ones: a cold case has up to thousands of them, and a kernel
    for each would take longer than the measurement.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.generator = torch.Generator(device=setup.device).manual_seed(setup.seed)
        self._chunks: dict[tuple[torch.dtype, float], torch.Tensor] = {}

    def normal(
        self, *shape: int, dtype: torch.dtype = torch.bfloat16, scale: float = 1.0
    ) -> torch.Tensor:
        """Return a tensor of N(0, scale^2), or of zeros where the case is about zeros."""
        count, step = math.prod(shape), ALIGNMENT // dtype.itemsize
        taken = -(-count // step) * step
        chunk = self._chunks.get((dtype, scale))
        if chunk is None or chunk.numel() < taken:
            chunk = self._filled(max(taken, CHUNK_BYTES // dtype.itemsize), dtype, scale)
        self._chunks[dtype, scale] = chunk[taken:]
        return chunk[:count].view(shape)

    def _filled(self, count: int, dtype: torch.dtype, scale: float) -> torch.Tensor:
        if self.setup.data == "zeros":
            return torch.zeros(count, dtype=dtype, device=self.setup.device)
        made = torch.bfloat16 if dtype.itemsize == 1 else dtype
        values = torch.empty(count, dtype=made, device=self.setup.device)
        return values.normal_(0.0, scale, generator=self.generator).to(dtype)

    def distinct(self, count: int, below: int) -> torch.Tensor:
        """Return `count` different row numbers (repeating only where count exceeds `below`)."""
        rows = torch.randperm(below, generator=self.generator, device=self.setup.device)
        return rows.repeat(-(-count // below))[:count]


_compiler_fault: list[str] = []


def compiled(function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[..., Any]:
    """Return `function` compiled for the shapes of `arguments`, called once with them.

    Raises:
        Unsupported: torch.compile cannot be used here (no C compiler, no Triton), with its reason.
    """
    if _compiler_fault:
        raise Unsupported(_compiler_fault[0])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what its own modules deprecate is no fault of ours
            import torch._inductor.config as inductor

            # A pool of compile workers takes longer to start than these few kernels to compile.
            inductor.compile_threads = 1
            made: Callable[..., Any] = torch.compile(function, dynamic=False)
            made(*arguments)
    except torch.OutOfMemoryError:
        raise
    # The compilers behind torch.compile raise errors of many classes; each is a reason.
    except Exception as error:
        reason = f"torch.compile: {first_line(error)}"
        if not _compiles_at_all():
            _compiler_fault.append(reason)
        raise Unsupported(reason) from error
    return made


def _compiles_at_all() -> bool:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.compile(lambda x: x * 2 + 1, dynamic=False)(torch.ones(16, device=device))
    except Exception:  # As above: that it fails is all that is asked.
        return False
    return True


def first_line(error: BaseException) -> str:
    """Return the class and the first line of the text of an error, at most 200 characters."""
    text = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {text[0]}"[:200].rstrip(": ")


def name_of(dtype: torch.dtype) -> str:
    """Return the short name of a dtype: "bf16"."""
    return {
        torch.bfloat16: "bf16",
        torch.float16: "fp16",
        torch.float32: "fp32",
        torch.float8_e4m3fn: "fp8",
    }[dtype]
