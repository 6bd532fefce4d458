"""What the instructions of a kernel do that waits or fills the issue slots, by their SASS."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from nsight_prof.parsers.packaged import packaged_yaml
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.findings.program.rule import of_row
from nsight_prof.reports.page import Number, Ref, Text, Value

BOUNDS = ("issue", "latency", "alu", "xu", "fp32", "l1")
"""Limits of kernels that fewer instructions, or others, would raise."""
PREDICATE = r"^@!?U?P\w+\s+"


class Kind(NamedTuple):
    """Instructions whose opcode matches `pattern`, named from the share
    `minimum` on.

    `times`: instructions that come with each of them.
    """

    pattern: str
    what: Text
    minimum: float
    times: float = 1.0


KINDS = tuple(
    of_row(Kind, row)
    for row in packaged_yaml("nsight_prof.reports.verdicts", "instruction_mix.yaml")
)
"""Kinds of instructions, those that are most often at fault first."""
LISTED = 3


def instruction_mix(run: Run, kernel_id: str, bound: str) -> Text | str:
    """Return a sentence on what the instructions of a kernel do whose bound they are; else none."""
    rows = run.source_instructions
    if rows.empty or bound not in BOUNDS:
        return ""
    rows = rows[rows["kernel_id"] == kernel_id]
    executed = rows["instructions"].astype(float)
    total = float(executed.sum())
    if not total > 0:
        return ""
    opcode: pd.Series[str] = rows["sass"].fillna("").str.replace(PREDICATE, "", regex=True)
    shares: list[Value] = []
    for kind in KINDS:
        chosen = opcode.str.contains(kind.pattern, regex=True).to_numpy(dtype=bool)
        share = min(1.0, kind.times * float(executed[chosen].sum()) / total)
        if share >= kind.minimum:
            number = Number(share, "fraction", (Ref("source_instructions", "", "instructions"),))
            shares.append(Text("{share} {what}", share=number, what=kind.what))
    return Text(" Of its instructions, {parts}.", parts=shares[:LISTED]) if shares else ""
