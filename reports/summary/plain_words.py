"""Words of first screen and summary for readers who do not tune kernels, by key."""

from __future__ import annotations

from nsight_prof.reports.page import Text

KINDS = {
    "gemm": Text("matrix multiplication"),
    "gemv": Text("matrix times vector"),
    "attention": Text("attention"),
    "norm": Text("normalisation"),
    "softmax": Text("softmax"),
    "elementwise": Text("number-by-number arithmetic"),
    "reduction": Text("sums and maxima"),
    "embedding": Text("table look-up"),
    "rotary": Text("position encoding"),
    "sampling": Text("choice of the next token"),
    "sort": Text("sorting"),
    "copy": Text("copying data inside the GPU"),
    "conv": Text("convolution"),
    "rnn": Text("recurrent network step"),
    "moe": Text("mixture of experts"),
    "quantize": Text("conversion to small number formats"),
    "kv_cache": Text("storing attention data"),
    "collective": Text("communication between GPUs"),
    "memory": Text("copying data"),
    "fill": Text("filling memory"),
    "random": Text("random numbers"),
    "fusion": Text("several steps in one"),
    "fft": Text("Fourier transform"),
    "sparse": Text("arithmetic on sparse matrices"),
    "solver": Text("solving linear systems"),
    "search": Text("nearest-neighbour search"),
}
"""What a kernel does, by its category."""

EXPLAINED = {
    "attention": Text("attention (weighing tokens against each other)"),
    "softmax": Text("softmax (scores to probabilities)"),
}
"""The same at more length, where the table says it."""

LIMITS = {
    "dram": Text("speed of the GPU's memory"),
    "l2": Text("speed of the shared cache"),
    "l1": Text("speed of the processors' caches"),
    "tensor": Text("speed of the matrix units"),
    "fp32": Text("arithmetic speed"),
    "fp64": Text("arithmetic speed"),
    "fp16": Text("arithmetic speed"),
    "alu": Text("arithmetic speed"),
    "xu": Text("arithmetic speed"),
    "issue": Text("too many instructions: issue slots"),
    "latency": Text("waiting (no unit is busy)"),
}
"""What limits a kernel."""

CAUSES = {
    "tensor_idle": Text("arithmetic outside of the matrix units"),
    "misaligned": Text("sizes that the matrix units cannot take well"),
    "uncoalesced": Text("scattered access to memory"),
    "uncoalesced_loads": Text("scattered access to memory"),
    "uncoalesced_stores": Text("scattered access to memory"),
    "uncoalesced_accesses": Text("scattered access to memory"),
    "host_memory": Text("data that lies in the computer's memory, not the GPU's"),
    "bank_conflicts": Text("queues for the data on the chip"),
    "local_spills": Text("data that does not fit in registers"),
    "atomics": Text("queues for shared totals"),
    "divergence": Text("branches that threads take apart"),
    "unfused_fma": Text("more instructions than needed"),
    "l2_thrashing": Text("the same data fetched again and again"),
    "small_grid": Text("too little work at a time"),
    "few_blocks": Text("too little work at a time"),
    "tail": Text("work that does not divide evenly"),
    "imbalance": Text("work that does not divide evenly"),
}
"""The same for a kernel that waits, where the counters tell for what: by the key of the rule."""

WAITS = {
    "launches": Text("the CPU starts the work too slowly"),
    "host": Text("the CPU is busy with other work"),
    "synchronisation": Text("the CPU waits for results first"),
    "queued": Text("short pauses between pieces of work"),
    "unknown": Text("not known"),
}
"""For what an idle GPU waits, by the cause in table idle_gaps."""

PROBLEMS = {
    "launch_bound": Text("The GPU waits for the CPU to start its next work"),
    "host_bound": Text("The GPU waits while the CPU is busy with other work"),
    "allocation_stalls": Text("The GPU waits while the CPU allocates its memory"),
    "results_on_host": Text("The GPU waits while the CPU works on its results"),
    "kernel_tuning": Text("GPU programs are tuned again and again"),
    "one_by_one": Text("Many items are worked on one after another"),
    "managed_memory": Text("Data moves back and forth between the CPU's memory and the GPU"),
    "first_use": Text("The GPU waits while its programs are loaded, which comes once"),
    "sync_stalls": Text("The GPU waits because the CPU first waits for results"),
    "compilation": Text("The GPU waits while code is compiled"),
    "optimizer_loop": Text("The GPU waits for an optimizer that updates tensor by tensor"),
    "tensor_prints": Text("The GPU waits while tensors are printed"),
    "data_loading": Text("The GPU waits for the data loader"),
    "convolution_search": Text("The GPU waits while algorithms of convolutions are tried"),
    "host_functions": Text("The GPU waits for small functions of the CPU between its steps"),
    "idle": Text("The GPU has nothing to do"),
    "copies": Text("Data is copied between the CPU's memory and the GPU"),
    "small_kernels": Text("Many tiny steps run one after another"),
    "serial_streams": Text("Steps that could run at the same time take turns"),
    "elementwise_chain": Text("Several steps pass data through memory"),
    "optimizer_passes": Text("The optimizer reads its data once for each operation"),
    "casts_and_copies": Text("Data is copied and converted inside the GPU"),
    "repeated_work": Text("The same results are computed again and again"),
    "unread_results": Text("Results are computed that nobody reads"),
    "zeros_multiplied": Text("Zeros are multiplied"),
    "collectives_exposed": Text(
        "Part of the communication between GPUs does not overlap with computation"
    ),
    "throttling": Text("The GPU runs below its highest clock"),
    "older_gemm": Text("Matrix products run kernels made for an older GPU"),
    "older_conv": Text("Convolutions run kernels made for an older GPU"),
    "simt_gemm": Text("Matrix products run without the Tensor Cores"),
    "simt_nchw_conv": Text("Convolutions run without the Tensor Cores"),
    "transformed_conv": Text("Convolutions run by Fourier or Winograd transforms"),
    "math_attention": Text("Attention runs as separate matrix products and a softmax"),
    "efficient_attention": Text("Attention runs on the memory-efficient back end"),
    "older_attention": Text("Attention runs on FlashAttention-2"),
    "padding": Text("The GPU computes in whole blocks, more than the sizes need"),
}
"""What is wrong, by the rule, else the key, of a finding about the whole program."""

ACTIONS = {
    "launch_bound": Text("CUDA graphs: record each step once and replay it"),
    "host_bound": Text("Do the CPU's other work before or after, not while the GPU waits for it"),
    "allocation_stalls": Text("Allocate the GPU's memory once, before the loop"),
    "results_on_host": Text(
        "Let the GPU do what the CPU now does with its results, or go on meanwhile"
    ),
    "kernel_tuning": Text("Tune once, before the loop"),
    "one_by_one": Text("Work on all items at once"),
    "managed_memory": Text("Keep the data on the GPU, and copy only what the CPU reads"),
    "first_use": Text("Warm up before the part that is measured"),
    "sync_stalls": Text("Let the CPU run ahead: wait for results less often"),
    "compilation": Text("Compile once for all sizes, before the loop"),
    "optimizer_loop": Text("Update all parameters at once: an optimizer with fused=True"),
    "tensor_prints": Text("Print values of the GPU less often"),
    "data_loading": Text("Load data ahead in more processes"),
    "convolution_search": Text("Try no algorithms again for each new size (cudnn.benchmark)"),
    "host_functions": Text("Take functions of the CPU out of the GPU's queue, or call them rarely"),
    "idle": Text("Give the GPU its work without pauses"),
    "copies": Text("Keep data on the GPU, or copy while it computes"),
    "small_kernels": Text("Merge tiny steps: fuse them, or replay them as one CUDA graph"),
    "serial_streams": Text(
        "Let independent steps run at the same time: fewer waits between streams"
    ),
    "elementwise_chain": Text("Fuse steps that pass data through memory"),
    "optimizer_passes": Text("Let the optimizer read its data once"),
    "casts_and_copies": Text(
        "Store data in the type and layout in which it is used: fewer casts and copies"
    ),
    "repeated_work": Text("Compute once what stays the same, and use the result again"),
    "unread_results": Text("Leave out what nobody reads"),
    "zeros_multiplied": Text("Leave out products with zeros: a sparse form, or fewer rows"),
    "collectives_exposed": Text(
        "Start each exchange between GPUs as soon as its data is ready, and compute on meanwhile "
        "(in training: buckets of gradients, prefetch of shards)"
    ),
    "padding": Text("Choose sizes that are multiples of the block in which the GPU computes"),
}
"""What to do about the whole program in a few words, by the cause of the finding."""

EFFORT = {
    "launch_bound": "low",
    "optimizer_loop": "low",
    "optimizer_passes": "low",
    "convolution_search": "low",
    "tensor_prints": "low",
    "small_kernels": "low",
    "elementwise_chain": "low",
    "padding": "low",
    "misaligned": "low",
    "tensor_idle": "low",
    "older_attention": "low",
    "math_attention": "low",
    "efficient_attention": "low",
    "older_gemm": "low",
    "simt_gemm": "low",
    "simt_nchw_conv": "low",
    "collectives_exposed": "high",
    "local_spills": "high",
    "bank_conflicts": "high",
    "imbalance": "high",
}
"""How much effort the repair of a cause takes; of others it is medium. A flag or a call is low, a
kernel written anew or the order of a program is high."""

NO_COSTS = Text("nothing beside the effort")
COSTS = {
    "launch_bound": Text("memory per graph; shapes must stay the same"),
    "small_kernels": Text(
        "compiling takes time at the first step; results may differ in the last digits"
    ),
    "elementwise_chain": Text(
        "compiling takes time at the first step; results may differ in the last digits"
    ),
    "sync_stalls": Text("results are seen a step later"),
    "allocation_stalls": Text("memory that stays taken between the steps"),
    "copies": Text("memory of the host that cannot be swapped out"),
    "misaligned": Text("memory for the padding"),
    "padding": Text("memory for the padding"),
    "tensor_idle": Text("accuracy: TF32 keeps 11 bits of 24, bf16 keeps 8"),
    "simt_gemm": Text("accuracy: TF32 keeps 11 bits of 24, bf16 keeps 8"),
    "transformed_conv": Text("accuracy: TF32 keeps 11 bits of 24, bf16 keeps 8"),
    "fp8": Text("accuracy: FP8 keeps 4 bits; weights must be quantized, and the results checked"),
    "fp32": Text("accuracy: FP32 keeps 24 bits of 53"),
}
"""What a repair costs beside the effort, by the cause, and what a smaller type costs."""
