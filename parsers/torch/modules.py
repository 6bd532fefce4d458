"""Table `modules` of the operator view: vLLM's module ranges around what a torch profiler saw."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from nsight_prof.parsers import tables
from nsight_prof.parsers.names.ranges import module_path
from nsight_prof.parsers.torch.items import Instance, Items, Kind

SOURCE = "operators"


def torch_modules(items: Items) -> pd.DataFrame:
    """GPU time of each module in each stage; empty where no range names a module.

    A kernel belongs to the innermost module around the call that issued it, as in
    `nsight_prof.parsers.nsys.engine.modules`. Kernels of CUDA graphs belong to none.
    """
    calls: Counter[str] = Counter()
    launches: Counter[tuple[str, str]] = Counter()
    time: Counter[tuple[str, str]] = Counter()
    for work in items.work:
        if not work.is_kernel or work.item is None:
            continue
        stage = _stage(work.item.stage)
        calls[stage] += work.duration
        if work.item.module and not work.graph:
            launches[stage, work.item.module] += 1
            time[stage, work.item.module] += work.duration
    times = Counter(
        (_stage(item.stage), path)
        for item in items.items
        if item.kind is Kind.RANGE
        and "'Outputs': " not in item.name
        and (path := module_path(item.name)) is not None
    )
    rows = [
        {
            "stage": stage,
            "module": module,
            "source": SOURCE,
            "instances": times.get((stage, module)),
            "launches": launches[stage, module],
            "kernel_ns": time[stage, module],
            "share": time[stage, module] / calls[stage] if calls[stage] else None,
        }
        for stage, module in sorted({*times, *launches})
    ]
    frame = pd.DataFrame(rows, columns=[column.name for column in tables.tables()["modules"]])
    order = ["stage", "kernel_ns", "module"]
    return tables.check(frame.sort_values(order, ascending=[True, False, True]), "modules")


def _stage(instance: Instance | None) -> str:
    return "" if instance is None else instance.stage
