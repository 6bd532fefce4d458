"""The command line that measures what a trace lacks."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pandas as pd

from nsight_prof.parsers.names.kernel_names import function_name
from nsight_prof.parsers.nsys.stages.work import ALL
from nsight_prof.parsers.run.run import Run

SOME = 20
"""Launches of kernels of one template that are counted, where none of them can be chosen."""


def to_measure(run: Run) -> str:
    """Return a line that counts the kernels of a run without counters.

    It counts the longest kernel of an imported trace and imports both, traces CUDA graphs again,
    with their kernels, and goes on with RUN, a run
    of prof: with the program of the trace, whose recipe may have been given another by options.
    PROGRAM stands for the command line of a program, which a trace need not tell. Empty where ncu
    cannot hold the program: a server, or an engine of several GPUs. Names are quoted: files of
    others hold them.
    """
    if run.kernels.empty:
        return ""
    if not run.manifest.imported:
        return _again(run)
    if _are_in_graphs(run):  # ncu would count kernels that take next to none of the time
        trace = "nsys profile --cuda-graph-trace=node --output nodes PROGRAM"
        return f"{trace} && prof import nodes.nsys-rep --out RUN"
    chip = next((f" --chip {shlex.quote(str(c))}" for c in run.gpus["chip"].dropna() if c), "")
    longest = run.kernels.sort_values("total_ns", ascending=False).iloc[0]
    return (
        f"ncu --csv --page raw --log-file ncu.csv {_filter(run, longest)} "
        f"--metrics $(prof metrics --names{chip}) PROGRAM && "
        f"prof import {shlex.join(run.manifest.imported)} ncu.csv --out RUN"
    )


def _filter(run: Run, kernel: pd.Series[Any]) -> str:
    """Return the options of ncu that choose a launch of a kernel, which it knows by its function.

    Where others are of the same template it is a launch of usual length, by how many of theirs come
    before it; a summary does not tell that, and the first SOME may have one.
    """
    function = function_name(str(kernel["name"]))
    alike = run.kernels[[function_name(str(name)) == function for name in run.kernels["name"]]]
    chosen = f"-k {shlex.quote(function)}"
    if len(alike) < 2:
        return f"{chosen} -c 1"
    launches = run.launches[run.launches["kernel_id"].isin(alike["kernel_id"])]
    launches = launches.sort_values("start_ns").reset_index(drop=True)
    times = launches.loc[launches["kernel_id"] == kernel["kernel_id"], "duration_ns"].dropna()
    if times.empty:
        return f"{chosen} -c {SOME}"
    return f"{chosen} -s {(times - times.median()).abs().idxmin()} -c 1"


def _are_in_graphs(run: Run) -> bool:
    """Whether graphs that were traced as wholes take most of the GPU time: of them no kernel is
    known.
    """
    capture = run.stages[run.stages["stage"] == ALL]
    graphs_ns = capture["gpu_busy_ns"] - capture["kernel_ns"] - capture["memory_ns"].fillna(0)
    return bool((graphs_ns > capture["kernel_ns"]).any())


def _again(run: Run) -> str:
    """Return how to count kernels of a program that prof traced."""
    recipe = run.manifest.recipe
    target = recipe.get("target") or {}
    target = {key: value for key, value in target.items() if value and key != "env"}  # masked
    file, name = str(target.get("file", "")), shlex.quote(str(recipe.get("name", "")))
    if run.manifest.step("counters") is not None:  # it failed
        return f"prof run {name} --resume RUN"
    if not target or file.endswith("server.py"):
        return ""
    if (run.kernels["category"] == "collective").any():
        # A kernel that waits for other ranks cannot run again by itself.
        n = max(1, run.gpu_stages["gpu"].nunique())
        ranks = f"torchrun --nproc-per-node {n} --no-python prof rank RUN"
        return "" if file.startswith("serving/") else f"{ranks} --counters one-rank -- PROGRAM"
    same = shlex.quote(f"target={json.dumps(target, ensure_ascii=False)}")
    return f"prof run {name} --set counters.enabled=true --set {same} --resume RUN"
