"""Fits positive functions to positive values in the logarithm, as Levenberg and Marquardt do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

LOW, HIGH = 5, 95
"""Percentiles of held-out residuals that bound an estimate."""
Array = npt.NDArray[np.float64]
Model = Callable[[Array], Array]
"""Parameters (all positive), each of which may be a column -> values, then a row for each."""


def fit(model: Model, values: Array, weights: Array, start: Array) -> Array:
    """Return the parameters that bring `model` next to `values`, in weighted relative error.

    Steps are of the parameters' logarithms, so that they stay positive; after 60 steps, or when
    nothing gets better, the best are returned.
    """
    known = np.log(values)

    def residual(logs: Array) -> Array:
        return np.asarray((np.log(model(np.exp(logs))) - known) * weights)

    logs, damping = np.log(start), 1e-2
    axes = 1e-5 * np.eye(len(logs))
    now = residual(logs)
    for _ in range(60):
        # All at once: of few values numpy takes as long as of many.
        slopes = (residual((logs[:, None] + axes)[:, :, None]) - now) / 1e-5
        normal = slopes @ slopes.T
        scale = damping * np.diag(np.diag(normal) + 1e-9)
        step = np.clip(np.linalg.solve(normal + scale, -slopes @ now), -2, 2)
        better = residual(logs + step)
        gain = float(now @ now - better @ better)
        if gain > 0:
            logs, now, damping = logs + step, better, damping / 3
            if gain < 1e-9 * float(now @ now) + 1e-15:
                break
        else:
            damping *= 4
            if damping > 1e9:
                break
    return np.asarray(np.exp(logs))
