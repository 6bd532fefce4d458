"""What each process that reads ranks needs: imported, and made once, before these are forked."""

from __future__ import annotations

import gc

from nsight_prof import parsers
from nsight_prof.orchestrator.imports import importing
from nsight_prof.parsers import tables
from nsight_prof.parsers.build import refresh, run_tables
from nsight_prof.parsers.names.kernel_names import classify

__all__ = ["importing", "refresh", "run_tables"]

# The declarations of tables and the rules of names are parsed where they are first asked for.
for table in tables.tables():
    tables.empty(table)
classify("")
# Nor does each look through all of it for cycles, or get pages of its own by doing so.
gc.set_threshold(parsers.ALLOCATIONS)
gc.freeze()
