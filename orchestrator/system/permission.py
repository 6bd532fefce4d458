"""Asks, before a long run, whether this process may read the GPU's performance counters."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from nsight_prof.orchestrator.system.discover import Tool
from nsight_prof.orchestrator.system.environment import counters_refused
from nsight_prof.orchestrator.system.process import ask
from nsight_prof.orchestrator.tools import ncu
from nsight_prof.parsers.errors import PermissionRefused, ProfError, StepFailed

TINY_KERNEL = Path(__file__).resolve().parents[2] / "targets" / "tiny_kernel.py"
PROBE_SECONDS = 60.0


def ask_counters(tool: Tool, environment: Mapping[str, str]) -> ProfError | None:
    """Return why counters cannot be read here, or None where a tiny kernel was measured.

    What the driver's parameters say is enough to refuse; otherwise ncu measures one tiny kernel.
    It is a ToolMissing where the real run would fail alike. A try that failed for another reason
    forbids nothing: the real run will tell.
    """
    reason = counters_refused()
    if reason:
        return PermissionRefused(reason, ncu.PERMISSION_REMEDY)
    argv = ncu.probe_argv(tool.program, (sys.executable, str(TINY_KERNEL)))
    answer = ask(argv, env={**environment, **ncu.ENVIRONMENT}, timeout_s=PROBE_SECONDS)
    if answer.exit_code == 0:
        return None
    error = None if answer.timed_out else ncu.explain(answer.stdout + answer.stderr)
    return error or StepFailed(
        f"ncu did not measure a tiny kernel: it {answer.trouble or 'gave no answer'}",
        f"see what ncu says of it: {shlex.join(argv)}",
    )
