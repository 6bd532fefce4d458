"""Rules about launches: many tiny ones, loops of them, ones that block, growing sequences."""

from __future__ import annotations

from nsight_prof.reports.findings.program.rule import Rule, Threshold, of_row, rows_of
from nsight_prof.reports.findings.shortest_launch import QUEUE_GAP_NS
from nsight_prof.reports.page import Text

WORDS = rows_of("nsight_prof.reports.findings.program", "launches.yaml")
"""What rules ask and advise, by their key."""
SMALL_KERNELS = of_row(
    Rule,
    WORDS["small_kernels"],
    key="small_kernels",
    requires="a trace with single launches",
    thresholds={
        "short": Threshold(
            10_000,
            Text(
                "prof: ns; starting and ending a kernel costs the GPU one to two us, and the host "
                "3 to 10; a kernel that is shorter on average may take twice as long at times"
            ),
            "ns",
        ),
        "run": Threshold(
            5,
            Text(
                "prof: short kernels in a row, at least; of one kernel, the repeats that a batched "
                "call could do"
            ),
            "count",
        ),
        "share": Threshold(0.01, Text("prof: part of the time that fusing them would save")),
        "queue_gap": Threshold(
            QUEUE_GAP_NS,
            Text("prof: ns between two queued kernels, 600 to 1300 in recorded runs of an H200"),
            "ns",
        ),
    },
    gain="shortest launch of the trace (0.8 us where all take over 5 us) x (kernels - rows) + the "
    "time between kernels of a row, each gap `queue_gap` at most. `run` or more launches of one "
    "kernel that leave SMs empty count as though they ran side by side: all but the longest of "
    "them is saved, or all but the time of SMs full of their blocks. Of several GPUs the mean. "
    "What a kernel of a few blocks would gain by more of them is told once: it gains no more than "
    "this leaves of it.",
)
ONE_BY_ONE = of_row(
    Rule,
    WORDS["one_by_one"],
    key="one_by_one",
    requires="a trace with single launches",
    thresholds={
        "short": SMALL_KERNELS.thresholds["short"],
        "repeats": Threshold(
            20,
            Text("prof: launches in a row for each of their kernels, from which on it is a loop"),
            "count",
        ),
        "busy": Threshold(
            0.5, Text("prof: part of the loop that its kernels run, up to which the host is late")
        ),
        "share": Threshold(0.05, Text("prof: part of the time worth a finding")),
    },
    gain="from the end of the last other operation to the end of the loop's last kernel, less what "
    "these kernels take beyond the shortest launch of the trace.",
)
BLOCKING_LAUNCHES = of_row(
    Rule,
    WORDS["blocking_launches"],
    key="blocking_launches",
    requires="a trace with CUDA calls",
    thresholds={
        "launches": Threshold(
            100, Text("prof: launches from which on their mean tells how they are made"), "count"
        ),
        "kernel": Threshold(
            10_000, Text("prof: mean kernel from which on a call that waits for it is told"), "ns"
        ),
        "longer": Threshold(
            1.25, Text("prof: median launch call over the mean kernel; a launch takes 3 to 10 us")
        ),
        "start": Threshold(3000, Text("prof: what a launch takes the host at least"), "ns"),
    },
    gain="the time of launch calls, less `start` for each, at most the idle time.",
)
HOST_FUNCTIONS = of_row(
    Rule,
    WORDS["host_functions"],
    key="host_functions",
    requires="a trace with CUDA calls",
    thresholds={
        "calls": Threshold(
            20, Text("prof: such calls from which on they are those of a loop"), "count"
        ),
        "share": Threshold(0.05, Text("prof: part of the time worth a finding")),
        "queue_gap": SMALL_KERNELS.thresholds["queue_gap"],
    },
    gain="gaps between queued operations, as many as there are such calls at most, beyond "
    "`queue_gap` each.",
)
GROWING_STEPS = of_row(
    Rule,
    WORDS["growing_steps"],
    key="growing_steps",
    requires="a trace with single launches",
    thresholds={
        "sizes": Threshold(6, Text("prof: sizes, each larger than the one before"), "count"),
        "growth": Threshold(
            0.2, Text("prof: part by which one step is larger than the one before, at most")
        ),
    },
    gain="GPU time x (1 - 1 / steps): as though only the first step worked on the whole sequence, "
    "and what the others need for their new element were nothing.",
)
PADDED_BATCHES = of_row(
    Rule,
    WORDS["padded_batches"],
    key="padded_batches",
    requires="a trace with single launches and lines of Python",
    thresholds={
        "alike": Threshold(0.5, Text("prof: part of the batches that are about as large as any")),
    },
    gain="not known: no trace tells padding from what is used.",
)
GRAPH_BREAKS = of_row(
    Rule,
    WORDS["graph_breaks"],
    key="graph_breaks",
    requires="a trace with samples of Python stacks",
    thresholds={"share": Threshold(0.05, Text("prof: part of the wall time worth a finding"))},
    gain="of compiled elementwise kernels that run one after another all but the longest of each "
    "row, and the idle time that waits for launches x (1 - 1 / pieces): one graph fuses what "
    "follows on each other, and is entered once.",
)
RULES = (
    GRAPH_BREAKS,
    SMALL_KERNELS,
    ONE_BY_ONE,
    BLOCKING_LAUNCHES,
    HOST_FUNCTIONS,
    GROWING_STEPS,
    PADDED_BATCHES,
)
