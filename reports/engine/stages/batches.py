"""What a decode step costs at other batches, as the target timed them without a profiler."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace

from nsight_prof.parsers.cells import Row, count, known, number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.engine.stages.kinds import Stages
from nsight_prof.reports.serving.formulas import decode, floor_s, mbu, traffic

PREFERRED = ("operators", "bench", "untraced", "trace")
"""Steps of a run, the one whose times stand beside the trace's last."""


@dataclass(frozen=True)
class Batch:
    """A decode step of one batch: seconds by the host's clock, without a profiler.

    `prompt` and `output` are tokens of each request, `rate` the output tokens per second over the
    whole batch, its prompts too. `floor_s` and `mbu` are NaN where the model or a roof is not
    known.
    """

    batch: int
    context: int
    prompt: int
    output: int
    seconds: float
    rate: float
    floor_s: float = math.nan
    mbu: float = math.nan

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens per second while the batch decodes."""
        return self.batch / self.seconds


def batches(run: Run, stages: Stages) -> tuple[Batch, ...]:
    """Return the timed batches, the smallest first: those of one step of the run and one mode."""
    groups: dict[tuple[str, str, int], dict[int, Row]] = defaultdict(dict)
    modes = ("", stages.engine.mode) if stages.engine and stages.engine.mode else None
    for row in records(run.serving_points):
        size, prompt, mode = count(row["batch"]), count(row["prompt_tokens"]), text(row["engine"])
        timed = known(row["decode_step_s"]) is not None and text(row["status"]) == "ok"
        if not timed or str(row["traced"]) == "True" or size is None or prompt is None:
            continue
        if modes is None or mode in modes:
            groups[text(row["source"]), mode, prompt].setdefault(size, row)
    if not groups:
        return ()
    best = max(groups, key=lambda key: (len(groups[key]), _preference(key[0])))
    return tuple(_batch(size, row, stages) for size, row in sorted(groups[best].items()))


def _preference(source: str) -> int:
    return PREFERRED.index(source) if source in PREFERRED else -1


def _batch(size: int, row: Row, stages: Stages) -> Batch:
    prompt, output = count(row["prompt_tokens"]) or 0, count(row["output_tokens"]) or 0
    # The median step of a batch has half of its output in the cache.
    context = prompt + output // 2
    seconds, rate = number(row["decode_step_s"]), number(row["output_tokens_per_s"])
    batch = Batch(size, context, prompt, output, seconds, rate)
    read, compute = stages.roofs.memory, stages.roofs.fastest
    if stages.shard is None or read is None:
        return batch
    work = decode(size, context)
    floor = floor_s(stages.shard, work, read.value, compute.value if compute else math.inf)
    used = mbu(traffic(stages.shard, work).read, seconds, read.value)
    return replace(batch, floor_s=floor, mbu=used)
