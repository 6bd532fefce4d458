"""The command line that measures what a trace of others lacks."""

from __future__ import annotations

import shlex

from nsight_prof.parsers.names.kernel_names import function_name
from nsight_prof.parsers.run.run import Run


def to_measure(run: Run) -> str:
    """Return a line that counts the longest kernel of an imported trace, and imports both.

    PROGRAM stands for the command line of the program, which a trace need not tell. Empty for a
    run that prof measured: its recipe says how. Names are quoted: files of others hold them.
    """
    if not run.manifest.imported or run.kernels.empty:
        return ""
    chip = next((f" --chip {shlex.quote(str(c))}" for c in run.gpus["chip"].dropna() if c), "")
    longest = run.kernels.sort_values("total_ns", ascending=False).iloc[0]
    kernel = shlex.quote(function_name(str(longest["name"])))
    return (
        f"ncu --csv --page raw --log-file ncu.csv -k {kernel} -c 1 "
        f"--metrics $(prof metrics --names{chip}) PROGRAM && "
        f"prof import {shlex.join(run.manifest.imported)} ncu.csv --out RUN"
    )
