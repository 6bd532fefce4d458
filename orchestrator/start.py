"""Starts the command line: what `prof` and `python -m nsight_prof` run."""

from __future__ import annotations

import gc
import signal

from nsight_prof import parsers

# Ctrl-C while Python imports the rest ends prof at once; an ignored one (a job in the background)
# stays ignored.
WAITS = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if WAITS:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
gc.set_threshold(parsers.ALLOCATIONS)
parsers.PROCESS_IS_PROF = True


def main() -> int:
    """Run the command line with the words after the program's name; return its exit code."""
    from nsight_prof.orchestrator import cli

    if WAITS:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return cli.main()
    finally:
        # Python looks through all objects several times as it ends, for 0.3 s after a report.
        gc.freeze()
