"""The shortest launch of a trace, and gap: what no kernel, and no queue, can get shorter than."""

from __future__ import annotations

from dataclasses import dataclass

from nsight_prof.parsers.cells import number, records, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.page import Evidence, Number, Ref, Text

SHORTEST_NS = 5000.0
"""A kernel that does next to nothing takes 2 us, and up to 5 under load (H200): no kernel gets
shorter. Where the shortest launch of a trace is longer, it tells nothing of that."""
START_NS = 800.0
"""The shortest kernels of recorded runs of an H200 take that long."""
QUEUE_GAP_NS = 1000.0
"""Between two kernels of a queue or a CUDA graph: 0.6 to 1.3 us in recorded runs of an H200."""


@dataclass(frozen=True)
class Floor:
    """The shortest that a launch may be, in ns, and the kernel of the trace that tells it.

    That is empty where no launch of the trace is short enough to tell: START_NS then.
    """

    ns: float = START_NS
    kernel: str = ""
    grid: str = ""
    kernel_id: str = ""

    @property
    def origin(self) -> Text:
        """Where it is from."""
        if self.kernel:
            return Text("the shortest of the trace")
        return Text("the shortest of recorded runs")

    def evidence(self, limit: Text | None = None) -> Evidence:
        """Return it as a number; `limit` says what it limits."""
        if not self.kernel:
            source = Text("prof: shortest kernels of recorded runs of an H200")
            shortest = Number(self.ns, "ns")
            return Evidence(Text("shortest launch of recorded runs"), shortest, limit, source)
        shortest = Number(self.ns, "ns", (Ref("kernels", self.kernel_id, "min_ns"),))
        source = Text("nsys: {kernel}", kernel=self.kernel)
        if self.grid:
            source = Text("nsys: {kernel}, grid {grid}", kernel=self.kernel, grid=self.grid)
        return Evidence(Text("shortest launch of the trace"), shortest, limit, source)


def shortest_launch(run: Run) -> Floor:
    """Return the shortest launch of the trace, or START_NS where it is too long to tell."""
    rows = [row for row in records(run.kernels) if 0 < number(row["min_ns"]) < SHORTEST_NS]
    shortest = min(rows, key=lambda row: number(row["min_ns"]), default=None)
    if shortest is None:
        return Floor()
    return Floor(number(shortest["min_ns"]), text(shortest["short_name"]), text(shortest["grid"]),
                 text(shortest["kernel_id"]))  # fmt: skip
