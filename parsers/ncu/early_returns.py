"""Kernels most of whose threads look, have nothing to do and return, by their instructions."""

from __future__ import annotations

import math

import pandas as pd

RETURNS = r"^@!?U?P\w+\s+EXIT\b"
"""Instructions at which some threads of a kernel end, and others go on."""
RETURNING = 0.1
"""Part of the warps that go on beyond a return up to which nearly all have nothing to do."""
WORK = r"\b(?:BAR|SHFL|REDUX|STG?|STS|RED|ATOM[GS]?)\b"
"""What threads do that have work: they exchange values, or store them."""
LOOP = 2
"""Times that a warp runs an instruction from which on that is in a loop."""


def beyond_return(rows: pd.DataFrame) -> float:
    """Return the part of a kernel's samples beyond a first return at which most warps end.

    `rows` are of table `source_instructions`, in the order of the program. NaN where there is no
    such return, or threads have worked until then: in a loop, or by what they exchange or store.
    """
    executed, samples = (rows[name].fillna(0).astype(float) for name in ("instructions", "samples"))
    sass = rows["sass"].fillna("")
    beyond = sass.str.contains(RETURNS).shift(fill_value=False).cummax()
    has_worked = executed[~beyond].ge(LOOP * executed.iloc[0]) | sass[~beyond].str.contains(WORK)
    nearly_all = executed[beyond].iloc[:1].le(RETURNING * executed.iloc[0]).any()
    if has_worked.any() or not nearly_all or not samples.any():
        return math.nan
    return float(samples[beyond].sum() / samples.sum())
