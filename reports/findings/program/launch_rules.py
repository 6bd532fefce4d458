"""The rules about how kernels are launched."""

from __future__ import annotations

from nsight_prof.reports.findings.program.rule import RULES

SMALL_KERNELS = RULES["small_kernels"]
ONE_BY_ONE = RULES["one_by_one"]
BLOCKING_LAUNCHES = RULES["blocking_launches"]
GROWING_STEPS = RULES["growing_steps"]
