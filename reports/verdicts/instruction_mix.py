"""What the instructions of a kernel do that waits or fills the issue slots, by their SASS."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from nsight_prof.parsers.run.run import Run
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


KINDS = (
    Kind(
        r"^I2F\S*\.RP",
        Text("integer divisions and remainders (/, %), some 20 instructions each"),
        0.1,
        20.0,
    ),
    Kind(r"^D(?:FMA|ADD|MUL|SETP)", Text("double precision (FP64)"), 0.05),
    Kind(
        r"^CALL",
        Text("calls of functions (slow paths of divisions, roots, sines and powers)"),
        0.005,
    ),
    Kind(
        r"^MUFU",
        Text("special functions (exponentials, logarithms, sines, roots, reciprocals)"),
        0.08,
    ),
    Kind(r"^(?:I2F|F2I|F2F|I2I|F2FP)\b", Text("conversions between types"), 0.1),
    Kind(r"^(?:LDC|ULDC|LDCU)\b", Text("loads of constants"), 0.1),
    Kind(r"^(?:BAR|WARPSYNC|MEMBAR|ERRBAR|CCTL)\b", Text("barriers and memory fences"), 0.05),
    Kind(r"^(?:SHFL|REDUX|VOTE|MATCH)\b", Text("exchanges within a warp (shuffles, votes)"), 0.1),
    Kind(
        r"^U?(?:IMAD|IADD3?|LEA|SHF|LOP3|ISETP|PRMT|IABS|VIADD|IMNMX|SEL)\b",
        Text("integer arithmetic (indices, addresses, comparisons)"),
        0.5,
    ),
    Kind(r"^(?:BRA|BSSY|BSYNC|BREAK|EXIT)\b", Text("branches and where they meet again"), 0.15),
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
