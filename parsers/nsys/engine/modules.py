"""Tables `modules` and `module_kernels`: GPU time of the model's modules in vLLM's eager traces.

vLLM's layer-wise tracing (`enable_layerwise_nvtx_tracing`) puts the range
`{'Module': 'Qwen2ForCausalLM.model.layers.0.mlp.gate_up_proj', …}` around each module, and an empty
one with its 'Outputs' behind it. A kernel belongs to the innermost module that was open on the
launching thread. CUDA graphs launch kernels without the modules: no module has them.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.names.ranges import module_path
from nsight_prof.parsers.nsys.engine.ranges import HostRange, StepRange
from nsight_prof.parsers.nsys.engine.work import RankWork
from nsight_prof.parsers.nsys.sqlite.codes import totals
from nsight_prof.parsers.nsys.sqlite.database import Array
from nsight_prof.parsers.nsys.stages.work import Attributed, Work

OUTSIDE = ""


def module_tables(
    work: Work, works: list[RankWork], ranges: list[HostRange]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tables `modules` and `module_kernels`; empty where the trace has no range of a module.

    Args:
        work: GPU work with NVTX paths.
        works: the same by rank and engine step; the kinds of the steps are the stages.
        ranges: ranges of modules.
    """
    if not ranges:
        return tables.empty("modules"), tables.empty("module_kernels")
    kernels = _kernels(work, works)
    steps = list({rank.pid: rank.steps for rank in works}.values())
    known = kernels[kernels["module"] != OUTSIDE]
    sums = known.groupby(["stage", "module"], as_index=False)[["launches", "kernel_ns"]].sum()
    frame = sums.merge(_instances(ranges, steps), "outer", on=["stage", "module"])
    stage_ns = kernels.groupby("stage")["kernel_ns"].sum()
    frame[["launches", "kernel_ns"]] = frame[["launches", "kernel_ns"]].fillna(0)
    frame["share"] = frame["kernel_ns"] / frame["stage"].map(stage_ns)
    frame["source"] = "trace"
    frame = frame.sort_values(["stage", "kernel_ns", "module"], ascending=[True, False, True])
    kernels = kernels.sort_values(["stage", "module", "kernel_ns"], ascending=[True, True, False])
    return tables.check(frame, "modules"), tables.check(kernels, "module_kernels")


def _kernels(work: Work, works: list[RankWork]) -> pd.DataFrame:
    rows, found = work.kernels, work.attributed
    paths, names = _modules_of_paths(found)
    kinds, kind = _kinds(len(rows.start), works)
    module = paths[found.path[rows.call]]
    kernel = rows.kernel
    size = (len(kinds), len(names), len(rows.kernels))
    inside = kind >= 0
    code = np.ravel_multi_index((kind[inside], module[inside], kernel[inside]), size)
    distinct, code = np.unique(code, return_inverse=True)
    in_kind, in_module, in_kernel = np.unravel_index(distinct, size)
    return pd.DataFrame(
        {
            "stage": [kinds[at] for at in in_kind],
            "module": [names[at] for at in in_module],
            "kernel_id": [rows.kernels[at].kernel_id for at in in_kernel],
            "launches": np.bincount(code, minlength=len(distinct)),
            "kernel_ns": totals(code, rows.duration[inside].astype(np.int64), len(distinct)),
        }
    )


def _modules_of_paths(found: Attributed) -> tuple[Array, list[str]]:
    """Code of the innermost module of each path, and the names of the codes."""
    of_label = [module_path(label) for label in found.labels]
    names: dict[str, int] = {OUTSIDE: 0}
    codes = []
    for path in found.paths:
        inner = next((of_label[at] for at in reversed(path) if of_label[at] is not None), None)
        codes.append(names.setdefault(inner or OUTSIDE, len(names)))
    return np.array(codes, np.int64), list(names)


def _kinds(launches: int, works: list[RankWork]) -> tuple[list[str], Array]:
    """Kind of the engine step of each launch as a code; -1 before the first step."""
    kinds = list(dict.fromkeys(step.kind for work in works for step in work.steps))
    of_launch = np.full(launches, -1)
    for work in works:
        in_step = work.is_kernel & (work.step >= 0)
        of_step = np.array([kinds.index(step.kind) for step in work.steps])
        of_launch[work.launch[in_step]] = of_step[work.step[in_step]]
    return kinds, of_launch


def _instances(ranges: list[HostRange], steps: list[list[StepRange]]) -> pd.DataFrame:
    """How often the modules of each path ran in each kind of step."""
    starts: dict[int, tuple[Array, list[str]]] = {}
    for step_ranges in steps:
        starts[step_ranges[0].thread] = (
            np.array([s.start for s in step_ranges]),
            [s.kind for s in step_ranges],
        )
    counted: dict[tuple[str, str], int] = {}
    for ranges_of_module in ranges:
        path = module_path(ranges_of_module.text)
        if (
            path is None
            or ranges_of_module.thread not in starts
            or "'Outputs': " in ranges_of_module.text
        ):
            continue
        begins, kinds = starts[ranges_of_module.thread]
        at = int(np.searchsorted(begins, ranges_of_module.start, "right")) - 1
        if at >= 0:
            key = (kinds[at], path)
            counted[key] = counted.get(key, 0) + 1
    rows = [(*key, number) for key, number in counted.items()]
    return pd.DataFrame(rows, columns=["stage", "module", "instances"])
