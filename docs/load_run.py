"""Reads a run with Python: where its GPU time goes, what bounds it, and what waits for the host.

python docs/load_run.py runs/mine
"""

import sys

from nsight_prof import load_run

run = load_run(sys.argv[1])
gpu = run.gpus["name"].iloc[0] if len(run.gpus) else "unknown GPU"
print(f"{run.manifest.run_id}, measured {run.manifest.created} on {gpu}")

# Tables are DataFrames: time from the trace, and counters where a kernel was profiled.
kernels = run.kernels.merge(run.counters, on="kernel_id", how="left", suffixes=("", "_profiled"))
timed = kernels.dropna(subset=["total_ns"])
for row in timed.head(5).itertuples():
    bound = f"bound by {row.bound_by}" if isinstance(row.bound_by, str) else "not profiled"
    print(f"  {row.share:6.1%} of GPU time in {row.calls:,} calls: {row.short_name} ({bound})")

# What is unknown is empty, never 0, so that a mean leaves it out; table `gaps` says why.
profiled = timed.dropna(subset=["dram_bytes"])
if len(profiled):
    moved = (profiled["dram_bytes"] * profiled["calls"]).sum()
    print(f"  {moved / 1e9:.1f} GB through DRAM in {len(profiled)} profiled kernels")

for row in run.stages[run.stages["stage"] != "(all)"].itertuples():
    print(
        f"  stage {row.stage}: {row.wall_ns / 1e6:.2f} ms, GPU idle {row.idle_ns / row.wall_ns:.1%}"
    )

# Single launches, in the order of the GPU: the longest wait before a kernel.
if len(run.launches) > 1:
    launches = run.launches.sort_values("start_ns")
    ended = (launches["start_ns"] + launches["duration_ns"]).cummax().shift()
    waits = (launches["start_ns"] - ended).fillna(0)
    late = launches.loc[waits.astype("int64").idxmax()]
    name = run.kernels.set_index("kernel_id").loc[late["kernel_id"], "short_name"]
    print(f"  longest time without a kernel: {waits.max() / 1e3:.1f} us, before {name}")

for row in run.gaps.drop_duplicates(["table", "column"]).head(3).itertuples():
    print(f"  not known: {' '.join(filter(None, (row.table, row.column)))}: {row.reason}")
