#!/usr/bin/env python3
"""Feed damaged and hostile inputs to prof: right values, or a clear exit 2 or 4, and nothing else.

    fuzz.py [--seed 1] [--count 2000] [--first 0] [--kind sqlite] [--keep FOLDER]

Each case takes a real input (an SQLite export, a CSV of nsys or ncu, a Parquet table, a manifest or
a selection, a recipe), mutates it by a random generator of its own (seed and number: the same case
every time) and gives it to the command line in this process, under a limit of time and memory. What
is accepted must be what an independent reading of the mutated file bears out. A case that fails is
printed with its number; `--first N --count 1 --keep FOLDER` makes it again and keeps its files.
.ci/run does 2,000, and 500 of another seed, of which 100 are tests. Its parts: scripts/fuzzing.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.fuzzing.campaign import KINDS, run_case  # noqa: E402
from scripts.fuzzing.case import Inputs  # noqa: E402

MEMORY = 6 << 30  # address space of a long campaign


def main() -> int:
    """Run a campaign; return 1 where a case went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--keep", type=Path, help="keep the mutated files here")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    found: Counter[str] = Counter()
    began, slowest = time.monotonic(), (0.0, 0)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        with contextlib.redirect_stdout(io.StringIO()):
            inputs = Inputs.prepare(Path(folder))
        for number in range(options.first, options.first + options.count):
            start = time.monotonic()
            wrong = run_case(
                inputs, options.seed, number, options.kind or list(KINDS), options.keep
            )
            slowest = max(slowest, (time.monotonic() - start, number))
            if wrong:
                found[wrong[:160]] += 1
                if found[wrong[:160]] == 1:
                    print(f"--- {options.seed}:{number} {wrong}", flush=True)
    print(
        f"{options.count} cases, {sum(found.values())} wrong, {time.monotonic() - began:.0f} s "
        f"({time.process_time():.0f} s of CPU), "
        f"slowest {slowest[0]:.1f} s ({slowest[1]})"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
