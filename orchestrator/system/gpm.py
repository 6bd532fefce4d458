"""What the units of a GPU did between two samples, by NVML's GPU performance monitoring (GPM).

GPUs from Hopper on have it; DCGM's profiling metrics of these GPUs are the same counters.
"""

from __future__ import annotations

import time
from typing import Any

METRICS = {
    "sm_active_pct": 2,
    "sm_occupancy_pct": 3,
    "tensor_active_pct": 5,
    "dram_active_pct": 10,
}
"""Our fields -> nvmlGpmMetricId_t of nvml.h: SM_UTIL, SM_OCCUPANCY, ANY_TENSOR_UTIL, DRAM_BW_UTIL.
"""
FIELDS = (*METRICS, "gpm_problem")
LEAST_S = 0.1
"""Least time between two samples of GPM, below which nvml.h promises nothing."""
OLD_GPU = "the GPU has no performance monitoring (GPM): Hopper and newer ones have"


class Gpm:
    """Asks one GPU.

    Attributes:
        problem: why it cannot be asked; "" where it can.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        """Take the first sample.

        Args:
            nvml: a module with pynvml's functions, which was initialized.
            handle: of the GPU.
        """
        self._nvml, self._handle = nvml, handle
        self._samples: list[Any] = []
        self._taken = 0.0
        self.problem = ""
        try:
            if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                self.problem = OLD_GPU
                return
            self._samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
            self._take()
        except Exception as error:  # NVMLError, and what a module of another version lacks
            self.problem = f"NVML's GPM cannot be asked: {error}"

    def sample(self) -> dict[str, Any]:
        """Return FIELDS since the last sample: shares of time in %; None where not known."""
        unknown = dict.fromkeys(METRICS) | {"gpm_problem": self.problem}
        if self.problem or time.monotonic() - self._taken < LEAST_S:
            return unknown
        try:
            self._take()
            asked = self._nvml.c_nvmlGpmMetricsGet_t()
            asked.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
            asked.sample1, asked.sample2 = self._samples
            asked.numMetrics = len(METRICS)
            for index, metric in enumerate(METRICS.values()):
                asked.metrics[index].metricId = metric
            found = self._nvml.nvmlGpmMetricsGet(asked).metrics
        except Exception as error:
            self.problem = f"NVML's GPM cannot be asked: {error}"
            return unknown | {"gpm_problem": self.problem}
        values = {
            name: float(metric_value.value) if metric_value.nvmlReturn == 0 else None
            for name, metric_value in zip(METRICS, found, strict=False)
        }
        return values | {"gpm_problem": ""}

    def _take(self) -> None:
        """Sample into the older buffer, which becomes the newer one."""
        self._samples.reverse()
        self._nvml.nvmlGpmSampleGet(self._handle, self._samples[1])
        self._taken = time.monotonic()
