"""The operations of a transformer: what each reaches of its roof, and what makes it faster."""

from nsight_prof.reports.studies.llm_kernels.section import section

__all__ = ["section"]
