"""What this GPU can do, and what a program loses that uses it badly."""

from nsight_prof.reports.studies.roofline.section import section

__all__ = ["section"]
