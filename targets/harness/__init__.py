"""Measures the cases of a benchmark target; the same method for all of them."""

from nsight_prof.targets.harness.api import (
    Call,
    Case,
    Roof,
    Scalar,
    Setup,
    Unsupported,
    Work,
    case_id,
)
from nsight_prof.targets.harness.cuda import CFloat, CInt32, CudaModule, Kernel
from nsight_prof.targets.harness.device import is_cuda, l2_bytes, sm_count
from nsight_prof.targets.harness.options import add_words, positive
from nsight_prof.targets.harness.run import run_target

__all__ = [
    "CFloat",
    "CInt32",
    "Call",
    "Case",
    "CudaModule",
    "Kernel",
    "Roof",
    "Scalar",
    "Setup",
    "Unsupported",
    "Work",
    "add_words",
    "case_id",
    "is_cuda",
    "l2_bytes",
    "positive",
    "run_target",
    "sm_count",
]
