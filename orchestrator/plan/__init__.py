"""What a run will do: its steps, the program, the kernels and counters that are chosen."""
