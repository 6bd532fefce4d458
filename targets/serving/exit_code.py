"""How a target that starts an engine or a server tells what ended it."""

from __future__ import annotations

import sys
from collections.abc import Callable

from nsight_prof.targets.serving.failures import EngineFailure, complain
from nsight_prof.targets.serving.stopping import Stopped


def exit_code(work: Callable[[], int]) -> int:
    """Do the work and return its exit code; what it raises is told on stderr.

    Returns:
        What the work returns; 1 after a failure of the engine, or where --out cannot be written;
        130 and 143 after SIGINT and SIGTERM.
    """
    try:
        return work()
    except EngineFailure as failure:
        complain(failure)
        return 1
    except OSError as error:
        complain(EngineFailure(str(error), "--out needs a folder that exists and can be written"))
        return 1
    except Stopped as stopped:
        print(f"ended by {stopped}; the records until here are complete", file=sys.stderr)
        return 128 + stopped.number
