"""The rules about idle time of the GPU, by what the host did meanwhile."""

from __future__ import annotations

from nsight_prof.reports.findings.program.rule import RULES

LAUNCH_BOUND = RULES["launch_bound"]
HOST_BOUND = RULES["host_bound"]
ALLOCATION_STALLS = RULES["allocation_stalls"]
RESULTS_ON_HOST = RULES["results_on_host"]
FIRST_USE = RULES["first_use"]
REMADE_CODE = RULES["remade_code"]
SYNC_STALLS = RULES["sync_stalls"]
IDLE = RULES["idle"]
IDLE_OUTSIDE = RULES["idle_outside"]
