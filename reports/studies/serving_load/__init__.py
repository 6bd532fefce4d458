"""vLLM's server under load: latencies over clients and rates, goodput, waiting."""

from nsight_prof.reports.studies.serving_load.section import section

__all__ = ["section"]
