"""What is imported before programs are forked, and worked out that each of them would anew.

No thread may start here: a fork has none of them, but their locks. Nor may anything look for the
temporary folder, which Python asks for once.
"""

import gc

import aiohttp.web  # noqa: F401

import nsight_prof.orchestrator.cli
import nsight_prof.orchestrator.commands.rank
import nsight_prof.orchestrator.imports.importing
import nsight_prof.orchestrator.ranks.counting
import nsight_prof.targets.serving.server  # noqa: F401
from nsight_prof.parsers import tables
from nsight_prof.parsers.metrics.catalogue import catalogue
from nsight_prof.parsers.names.kernel_names import classify
from nsight_prof.parsers.run import directory

for table in tables.tables():
    tables.empty(table)
catalogue()
classify("")
directory._manifests()  # noqa: SLF001  # pydantic takes a fifth of the time of a rank for it
# A fork that looks for garbage among all that is imported would copy the pages of all of it.
gc.collect()
gc.freeze()
