"""Sets this process up as prof does when it starts, before what looks at it is imported."""

import gc

from nsight_prof import parsers

gc.set_threshold(parsers.ALLOCATIONS)
parsers.PROCESS_IS_PROF = True  # text of tables is kept as prof keeps it, not given to Arrow
