"""vLLM's offline engine: latency, throughput over batches, lengths, CUDA graphs."""

from nsight_prof.reports.studies.serving_baseline.section import section

__all__ = ["section"]
