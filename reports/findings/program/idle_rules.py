"""The rules about idle time of the GPU, by what the host did meanwhile."""

from __future__ import annotations

from dataclasses import replace

from nsight_prof.reports.findings.program.rule import Rule, Threshold
from nsight_prof.reports.findings.shortest_launch import QUEUE_GAP_NS
from nsight_prof.reports.page import Text

LOADED = r"cu(?:da)?(?:ModuleLoad|LibraryLoad)\w*"
"""Calls that load compiled code."""
STAGE_SHARE = Threshold(0.05, Text("prof: part of a stage's time worth a finding"))

LAUNCH_BOUND = Rule(
    key="launch_bound",
    question="Does the GPU wait for the host to launch the next kernel?",
    requires="a trace with CUDA calls",
    thresholds={
        "share": STAGE_SHARE,
        "gaps": Threshold(
            5,
            Text(
                "prof: fewer gaps are where a stage starts or ends rather than a host that cannot "
                "keep up"
            ),
            "count",
        ),
        "graph_gap": Threshold(
            QUEUE_GAP_NS,
            Text(
                "prof: gap between two kernels of a CUDA graph, 0.6 to 1.3 us in recorded runs of "
                "an H200"
            ),
            "ns",
        ),
        "waits": Threshold(
            20, Text("prof: waits for the GPU from which on they are those of a loop"), "count"
        ),
        "waiting": Threshold(
            0.2, Text("prof: part of the gaps that the host waits, from which on that comes first")
        ),
        "launches": Threshold(
            500,
            Text("prof: launches per wait above which a wait ends a long step of a model"),
            "count",
        ),
    },
    gain="idle time - gaps x (`graph_gap` + what nsys adds to a launch), at least 0 and at most "
    "the idle time of the capture without what lies between queued operations, and what the GPU "
    "idles without nsys. Where steps were queued ahead: what the others take beyond these. What "
    "nsys adds: the mean launch call under nsys less the launch that the roofline target measured "
    "without a profiler; 0 where none was measured. Per cent are of the wall time under nsys; "
    "long gaps of a slow framework count, too. Where the host waits for the GPU in a loop: its "
    "time in these waits, as part of the time without nsys, which is shorter by about what nsys "
    "adds to each call of CUDA.",
    action=Text(
        "Launch less often: capture the step in a CUDA graph (torch.cuda.graph, torch.compile with "
        'mode="reduce-overhead"), fuse kernels, or give each launch more work (a larger batch). '
        "A graph replays the same shapes and addresses, holds no wait for the GPU and takes memory "
        "of its own; vLLM makes graphs unless it was told enforce_eager."
    ),
    advice=Text(
        "start the GPU's work in larger portions (CUDA graphs, torch.compile), so that it need not "
        "wait"
    ),
    disproof=Text(
        "A CUDA graph of the same kernels takes as long, or the program's own timing without nsys "
        "shows no such gaps."
    ),
)
HOST_BOUND = Rule(
    key="host_bound",
    question="Does the GPU wait while the host does something else?",
    requires="a trace with CUDA calls",
    thresholds={
        "share": STAGE_SHARE,
        "long_gap": Threshold(
            100_000,
            Text(
                "prof: longer gaps are not a matter of launch speed; eager frameworks need some "
                "tens of us between two launches"
            ),
            "ns",
        ),
        "framework": Threshold(
            500_000,
            Text(
                "prof: mean gap below which an eager framework is only slow at some launches "
                "(0.18 to 0.38 ms in recorded training steps)"
            ),
            "ns",
        ),
    },
    gain="the idle time of these gaps, at most that of the capture as for `launch_bound`, less "
    "that in which the host stands in calls that wait for a GPU that has nothing to do.",
    action=Text(
        "Move the host's work off the path: prepare the next step while the GPU computes this one "
        "(another thread, a data loader with workers), cache it, or do it on the GPU."
    ),
    advice=Text("let the CPU prepare the next step while the GPU still computes this one"),
    disproof=Text(
        "With the host's work of a step left out (its results reused), the steps take as long."
    ),
)
ALLOCATION_STALLS = replace(
    HOST_BOUND,
    key="allocation_stalls",
    question="Does the GPU wait while the host allocates or frees its memory?",
    thresholds={
        **HOST_BOUND.thresholds,
        "allocating": Threshold(
            0.5, Text("prof: part of these gaps that the host spends in calls that allocate")
        ),
    },
    action=Text(
        "Allocate once, before the loop, and use the memory again (out= arguments, PyTorch's "
        "caching allocator without empty_cache, cudaMallocAsync with a pool): cudaMalloc and "
        "cudaFree wait for all work of the GPU. The same holds for pinned memory "
        "(cudaHostRegister), streams, events and handles of libraries: make them once."
    ),
    advice=Text("let it keep its memory instead of asking for it anew in each step"),
    disproof=Text("With buffers that are allocated once before the loop the steps take as long."),
)
POOL_RELEASE = replace(
    ALLOCATION_STALLS,
    key="pool_release",
    question="Does the GPU wait while a memory pool gives back what was freed?",
    action=Text(
        "Let the pool keep what was freed: cudaMemPoolSetAttribute with "
        "cudaMemPoolAttrReleaseThreshold (UINT64_MAX, or what a request needs), synchronise less "
        "often, or allocate once and use the memory again."
    ),
    advice=Text("let it keep its memory instead of giving it back and asking for it anew"),
    disproof=Text("With a release threshold that is never reached it takes as long."),
)
RESULTS_ON_HOST = replace(
    HOST_BOUND,
    key="results_on_host",
    question="Does the GPU wait while the host works on results that it copied back?",
    thresholds={
        **HOST_BOUND.thresholds,
        "after_waits": Threshold(
            0.5, Text("prof: part of these gaps that follows a wait of the host for a result")
        ),
    },
    action=Text(
        "Do this work on the GPU (choose, sort, sample and index there), so that no result is "
        "copied to the host in the loop. Where it must be, as for a file that is written, copy it "
        "to pinned memory, work on it in another thread, and let the GPU go on meanwhile."
    ),
    advice=Text("let the GPU do itself what the CPU now does with its results in each step"),
    disproof=Text("With the same results used again in each step, the steps take as long."),
)
FIRST_USE = Rule(
    key="first_use",
    question="Does the GPU wait while kernels are loaded and graphs are made, which comes once?",
    requires="a trace with CUDA calls",
    thresholds={
        "share": STAGE_SHARE,
        "loading": Threshold(
            0.5, Text("prof: part of these gaps that the host spends in calls of first use")
        ),
    },
    action=Text(
        "Run a few steps before the part that is measured, and keep graphs that were made: kernels "
        "are loaded when they are first launched (CUDA_MODULE_LOADING=EAGER loads them all at the "
        "start)."
    ),
    advice=Text(
        "measure after a few steps of warm-up: what is loaded once costs a long run little"
    ),
    disproof=Text("The second time the same steps run they have the same gaps."),
)
REMADE_CODE = replace(
    HOST_BOUND,
    key="remade_code",
    question="Does the GPU wait while code is loaded and unloaded again and again?",
    thresholds={
        **HOST_BOUND.thresholds,
        "reloads": Threshold(
            20, Text("prof: unloaded modules from which on they are those of a loop"), "count"
        ),
    },
    action=Text(
        "Make it once and keep it: a larger cache of plans "
        "(torch.backends.cuda.cufft_plan_cache[0].max_size) or few lengths of transforms, "
        "cufftPlan, handles of libraries and compiled kernels (NVRTC, cuModuleLoad) before the "
        "loop."
    ),
    advice=Text("let it keep what a library prepares (plans, code) instead of making it anew"),
    disproof=Text("With plans and modules that are kept from step to step it takes as long."),
)
SYNC_STALLS = Rule(
    key="sync_stalls",
    question="Does the GPU run dry because the host waits for it?",
    requires="a trace with CUDA calls",
    thresholds={"share": STAGE_SHARE},
    gain="as of `launch_bound`.",
    action=Text(
        "Take synchronisations out of the loop (.item(), .cpu(), print of a tensor, boolean masks, "
        "nonzero() and unique(), torch.cuda.synchronize, blocking copies): keep results on the "
        "GPU, and read them once at the end or a step later from pinned memory."
    ),
    advice=Text("let the CPU run ahead of the GPU instead of waiting for each result"),
    disproof=Text(
        "Without these synchronisations (wrong results may do for a test) the steps take as long."
    ),
)
IDLE = Rule(
    key="idle",
    question="Is the GPU idle, where the trace does not tell why?",
    requires="a trace",
    thresholds={"share": Threshold(0.1, Text("prof: idle share of a stage worth a finding"))},
    gain="the idle time, at most that of the capture.",
    action=Text(
        "Launch less often: CUDA graphs, fused or larger kernels, no synchronisation or blocking "
        "copy to the host inside the loop."
    ),
    advice=LAUNCH_BOUND.advice,
    disproof=Text("The program's own timing without nsys shows no such gaps."),
)
IDLE_OUTSIDE = Rule(
    key="idle_outside",
    question="Is the GPU idle outside of the stages?",
    requires="a trace with stages",
    action=Text(
        "Capture only what matters (from cudaProfilerStart to cudaProfilerStop), or move what "
        "repeats out of the loop."
    ),
    advice=Text("measure only the part that matters, or do once what is now done again and again"),
    disproof=Text(
        "It happens once: a run of twice as many steps has the same idle time outside of its "
        "stages."
    ),
)
RULES = (
    LAUNCH_BOUND,
    HOST_BOUND,
    ALLOCATION_STALLS,
    POOL_RELEASE,
    RESULTS_ON_HOST,
    FIRST_USE,
    REMADE_CODE,
    SYNC_STALLS,
    IDLE,
    IDLE_OUTSIDE,
)
