"""vLLM's offline engine: latency, throughput over batches, lengths, CUDA graphs."""
