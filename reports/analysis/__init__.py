"""What a run measured, worked out once per run: GPUs, stages, launches in order, idle time."""
