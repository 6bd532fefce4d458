"""Shapes of matrix products: wave quantization, small batches and odd sizes."""

from nsight_prof.reports.studies.gemm_staircase.section import section

__all__ = ["section"]
