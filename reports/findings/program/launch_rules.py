"""Rules about launches: many tiny ones, loops of them, ones that block, growing sequences."""

from __future__ import annotations

from nsight_prof.reports.findings.program.rule import Rule, Threshold
from nsight_prof.reports.findings.shortest_launch import QUEUE_GAP_NS
from nsight_prof.reports.page import Text

SMALL_KERNELS = Rule(
    key="small_kernels",
    question="Do many tiny kernels follow on each other?",
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
    action=Text(
        "Fuse them (torch.compile, one Triton or CUDA kernel for the whole chain, foreach or "
        "multi-tensor variants), or work on all items at a time (one batched call)."
    ),
    advice=Text("let it do several small steps in one go (torch.compile does so)"),
    disproof=Text(
        "One kernel that does the same steps takes as long as all of them, or they already run at "
        "the same time on several streams."
    ),
)
ONE_BY_ONE = Rule(
    key="one_by_one",
    question="Does a loop launch small kernels for one item after another?",
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
    action=Text(
        "Work on all items at once: one vectorised or batched operation, torch._foreach_* over a "
        "list of tensors, one kernel for all. Where each needs the one before it, launch the loop "
        "as a CUDA graph or fuse it (torch.compile)."
    ),
    advice=Text("let it work on all items at once instead of one after another"),
    disproof=Text("One operation on all items takes as long as the loop."),
)
BLOCKING_LAUNCHES = Rule(
    key="blocking_launches",
    question="Does each launch wait until its kernel has ended?",
    requires="a trace with CUDA calls",
    thresholds={
        "launches": Threshold(
            100, Text("prof: launches from which on their mean tells how they are made"), "count"
        ),
        "kernel": Threshold(
            10_000, Text("prof: mean kernel from which on a call that waits for it is told"), "ns"
        ),
        "longer": Threshold(
            1.25,
            Text("prof: median launch call over the mean kernel; a launch takes 3 to 10 us"),
        ),
        "start": Threshold(3000, Text("prof: what a launch takes the host at least"), "ns"),
    },
    gain="the time of launch calls, less `start` for each, at most the idle time.",
    action=Text(
        "Look for CUDA_LAUNCH_BLOCKING=1 in the environment (os.environ, the shell, the "
        "container), left from a search for errors, and take it out: each launch waits for its "
        "kernel (synchronously). Else look for a synchronisation after each launch."
    ),
    advice=Text("turn off the setting for debugging that makes the CPU wait for each step"),
    disproof=Text("With CUDA_LAUNCH_BLOCKING unset the steps take as long."),
)
HOST_FUNCTIONS = Rule(
    key="host_functions",
    question="Do kernels wait for functions of the host that stand in their stream?",
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
    action=Text(
        "Take functions of the host out of the stream (cudaLaunchHostFunc, cudaStreamAddCallback): "
        "what follows waits until a thread of the driver has run them. Call them rarely, once for "
        "many kernels (progress, logging), or record an event (cudaEventRecord) and let a thread "
        "of the program poll it (cudaEventQuery) or wait for it; a stream of its own that waits "
        "for the event keeps the callback off the path."
    ),
    advice=Text("do not let the GPU wait in each step until the CPU has run a small function"),
    disproof=Text("Without these calls the gaps between kernels are as long."),
)
GROWING_STEPS = Rule(
    key="growing_steps",
    question="Does each step work on all of a sequence that grows?",
    requires="a trace with single launches",
    thresholds={
        "sizes": Threshold(6, Text("prof: sizes, each larger than the one before"), "count"),
        "growth": Threshold(
            0.2, Text("prof: part by which one step is larger than the one before, at most")
        ),
    },
    gain="GPU time x (1 - 1 / steps): as though only the first step worked on the whole sequence, "
    "and what the others need for their new element were nothing.",
    action=Text(
        "Keep what earlier steps worked out and compute only what is new: a cache of keys and "
        "values (KV cache, past_key_values, use_cache=True) in a transformer, the state of a "
        "recurrence or running sums elsewhere."
    ),
    advice=Text("let each step reuse the results of the steps before instead of redoing them"),
    disproof=Text("The inputs of each step are new ones, sorted by their length."),
)
PADDED_BATCHES = Rule(
    key="padded_batches",
    question="Are batches of mixed lengths padded to their longest sequence?",
    requires="a trace with single launches and lines of Python",
    thresholds={
        "alike": Threshold(0.5, Text("prof: part of the batches that are about as large as any")),
    },
    gain="not known: no trace tells padding from what is used.",
    action=Text(
        "Sort by length before batching (for training within windows of some batches, which are "
        "shuffled), and put results back in order; or pack sequences without padding (nested "
        "tensors, variable-length attention), and bound tokens instead of sequences in a batch."
    ),
    advice=Text("put texts of like lengths into one batch, so that little of it is padding"),
    disproof=Text("Most sequences of a batch are about as long as its longest one."),
)
GRAPH_BREAKS = Rule(
    key="graph_breaks",
    question="Does torch.compile break the graph of a step into pieces?",
    requires="a trace with samples of Python stacks",
    thresholds={"share": Threshold(0.05, Text("prof: part of the wall time worth a finding"))},
    gain="of compiled elementwise kernels that run one after another all but the longest of each "
    "row, and the idle time that waits for launches x (1 - 1 / pieces): one graph fuses what "
    "follows on each other, and is entered once.",
    action=Text(
        "Mend what breaks the graph there: no print, logging, .item(), Python objects with state "
        "or functions under torch.compiler.disable (torch._dynamo.disable) inside what is "
        "compiled; move them out of the step, or behind it. TORCH_LOGS=graph_breaks says why, and "
        "fullgraph=True fails at each break. Then one graph is fused as a whole."
    ),
    advice=Text("let the compiler see the whole step at once, without calls that interrupt it"),
    disproof=Text("With fullgraph=True, and what broke the graph left out, it takes as long."),
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
