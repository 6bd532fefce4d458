"""Work of the GPU that a line asks for, of which less would do: known by the text of the line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from nsight_prof.parsers.cells import number
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.lines import launching_rows, location
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.findings.gain import of_gpu_time
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.program.rule import LISTED, Rule, Threshold, column, measured
from nsight_prof.reports.page import Evidence, Number, Ref, Text, Verbatim

NEEDLESS_WORK = Rule(
    key="needless_work",
    question="Does the GPU compute at a line what could be left out, or had for less?",
    requires="a trace with samples of Python stacks",
    thresholds={
        "share": Threshold(0.03, Text("prof: part of the GPU time worth a finding")),
        "samples": Threshold(
            10, Text("prof: fewer samples tell a share to no better than a factor of two"), "count"
        ),
    },
    gain="time of the kernels that these lines launch, by samples of stacks, x the part that goes: "
    "all of it where the result is the same each time, or needed rarely.",
)
MOVING = ("copy", "elementwise", "fill", "reduction", "other", "softmax")
"""Categories of kernels that compute no product."""


class Work(NamedTuple):
    """What lines do that match `pattern`, or that are in functions of a library (`inner`).

    `does` stands behind "the program", `saves` is what goes of the time of their kernels, of some
    categories alone where these are given. `unless` matches kernels that show it to be needed.
    """

    pattern: str
    does: Text
    action: Text
    advice: Text
    disproof: Text
    saves: float = 1.0
    categories: tuple[str, ...] = ()
    inner: str = ""
    unless: str = ""

    def is_at(self, rows: pd.DataFrame) -> pd.Series[bool]:
        """Tell which rows of launches by line are its own."""
        found = pd.Series(False, rows.index)
        for name, pattern in (("source", self.pattern), ("inner", self.inner)):
            if pattern:
                found |= rows[name].fillna("").str.contains(pattern)
        return found & (rows["category"].isin(self.categories) | (not self.categories))


SAME_EACH_TIME = Text("With the result of the first step used in all others, steps take as long.")
WORKS = (
    Work(
        r"\.(?:std|var|median|quantile|kurtosis|norm)\(\)|\.abs\(\)\.(?:mean|max|sum)\(\)"
        r"|\bhistc\(|\bhistogram\(|\bisnan\(|\bisfinite\(|\bisinf\("
        r"|\.(?:mean|max|min|sum)\(\).*\.(?:mean|max|min|std)\(\)",
        Text("computes statistics of whole tensors (mean, deviation, extremes, tests for NaN)"),
        Text(
            "Compute what is only watched or logged every some hundred steps, not in each; on the "
            "GPU, without a copy, in one pass (torch.aminmax, var_mean), and take hooks out that "
            "nobody reads."
        ),
        Text("compute what is only logged less often, not in each step"),
        Text("Without these statistics the steps take as long, or results follow from them."),
        categories=MOVING,
    ),
    Work(
        r"\btorch\.(?:arange|linspace|logspace|tril|triu|eye|meshgrid|\w+_window)\(",
        Text("makes constants anew (positions, masks, tables, windows)"),
        Text(
            "Make them once, before the loop, and keep them (register_buffer, a cache by size): "
            "they depend on sizes alone."
        ),
        Text("compute what never changes once, before the loop"),
        SAME_EACH_TIME,
        categories=MOVING,
    ),
    Work(
        "",
        Text("makes weights of parts (weight_norm, spectral_norm, parametrizations) in each call"),
        Text(
            "Where weights do not change, put the finished ones in place once: "
            "torch.nn.utils.remove_weight_norm, parametrize.remove_parametrizations, or with "
            "parametrize.cached() round the loop."
        ),
        Text("work out weights that do not change once, before the loop"),
        SAME_EACH_TIME,
        inner=r"/torch/nn/utils/(?:weight_norm|spectral_norm|parametri[sz]\w*)\.py",
        unless=r"(?i)backward|_bwd",
    ),
    Work(
        r"\bone_hot\(",
        Text("looks up or counts by vectors of zeros and ones (one_hot)"),
        Text(
            "Use the indices themselves: table[index], F.embedding or index_select in place of "
            "one_hot(index) @ table, gather for the value of a class, bincount or index_add_ for "
            "sums; F.cross_entropy takes indices as targets."
        ),
        Text("pick rows by their number instead of multiplying with zeros and ones"),
        Text("With a look-up by index it takes as long."),
        saves=0.95,
    ),
    Work(
        r"\blinalg\.(?:inv|pinv)\w*\(|\.inverse\(\)|\btorch\.(?:inverse|pinverse)\(",
        Text("inverts matrices"),
        Text(
            "Solve instead of inverting (torch.linalg.solve, lstsq); where matrices are symmetric "
            "and positive (covariances, kernels), one Cholesky factor (torch.linalg.cholesky, "
            "cholesky_solve) serves for solutions and determinant (twice the sum of the logarithms "
            "of its diagonal), at an eighth of the operations."
        ),
        Text("solve equations from one factorisation instead of inverting matrices"),
        Text("With solve, or Cholesky factors, it takes as long."),
        saves=0.8,
    ),
    Work(
        r"\.repeat\(|\brepeat_interleave\(|\.tile\(|\.expand\(.*\)\.(?:contiguous|reshape|clone)\(",
        Text("writes repeated copies of a tensor (repeat, expand and reshape)"),
        Text(
            "Broadcast instead: views that repeat (expand, None in the index) into operators that "
            "take them; heads that share keys and values by enable_gqa=True of "
            "scaled_dot_product_attention."
        ),
        Text("use data several times where it lies, instead of writing copies of it"),
        Text("With a broadcast view it takes as long."),
        categories=MOVING,
    ),
    Work(
        r"\[[^\]]*:, None[^\]]*\] *- *\w|\.unsqueeze\(-?\d\) *- *\w+\.unsqueeze\(",
        Text("subtracts each of one set from each of another (by broadcasting)"),
        Text(
            "Take distances from a product (torch.cdist, or |a|^2 + |b|^2 - 2 a b, which the "
            "Tensor Cores compute), or one kernel that reduces as it goes (torch.compile, Triton): "
            "differences of all pairs then never reach memory."
        ),
        Text("compute distances by a matrix product, without writing all differences"),
        Text("With torch.cdist, or compiled, it takes as long."),
        saves=0.8,
        categories=MOVING,
    ),
)
"""Work that a line tells by its text, the most telling first; a line is of the first that fits."""


def needless_work(run: Run) -> list[Finding]:
    """Return a finding for each kind of work whose lines launch enough of the GPU time."""
    rows = launching_rows(run)
    if rows.empty:
        return []
    kernels = run.kernels.set_index("kernel_id")
    rows = rows[rows["kernel_id"].isin(kernels.index)]
    of_kernel = rows["samples"].groupby(rows["kernel_id"]).transform("sum")
    launched = rows["kernel_id"].map(kernels["total_ns"]).astype(float)
    rows = rows.assign(
        category=rows["kernel_id"].map(kernels["category"]).fillna("other"),
        gpu_ns=launched * rows["samples"] / of_kernel,
    )
    return list(_found(run, rows))


def _found(run: Run, rows: pd.DataFrame) -> Iterator[Finding]:
    rule, total = NEEDLESS_WORK, Number(kernel_time(run), "ns", column("kernels", "total_ns"))
    for work in WORKS:
        chosen = work.is_at(rows)
        found, rows = rows[chosen], rows[~chosen]
        refs = (*total.refs, Ref("launch_lines", "", "samples"))
        time = Number(found["gpu_ns"].sum(), "ns", refs)
        share, samples = time.share_of(total), Number(found["samples"].sum(), "count", refs[1:])
        if work.unless and run.kernels["name"].fillna("").str.contains(work.unless).any():
            continue
        if not number(share.value) >= rule.limit("share"):
            continue
        if number(samples.value) < rule.limit("samples"):
            continue
        saved = Number(work.saves * number(time.value), "ns", refs)
        of_line = found.groupby(["file", "line"])["gpu_ns"].sum().sort_values(ascending=False)
        places = [Verbatim(location(str(f), int(n))) for f, n in of_line.index[:2]]
        ids = found.groupby("kernel_id")["gpu_ns"].sum().sort_values(ascending=False).index
        yield rule.finding(
            title=Text("The program {does}: {share} of the GPU time", does=work.does, share=share),
            verdict=Text(
                "The program {does} at {places}: kernels that are launched there take {share} of "
                "the GPU time ({time}). Without that, or with less of it, at most {gain} of the "
                "GPU time is saved ({saved}).",
                does=work.does,
                places=places,
                share=share,
                time=time,
                gain=saved.share_of(total),
                saved=saved,
            ),
            kernel_ids=tuple(map(str, ids[:LISTED])),
            action=work.action,
            advice=work.advice,
            disproof=work.disproof,
            evidence=(
                Evidence(
                    Text("time of kernels launched there"),
                    time,
                    Text("{limit} of the GPU time", limit=rule.thresholds["share"].number),
                    Text("nsys: time of each kernel x the line's part of its samples"),
                ),
                measured(Text("samples of stacks at these lines"), samples),
                measured(
                    Text("could save"), saved, Text("the time x {part}", part=Number(work.saves))
                ),
            ),
            confidence="low",
            **of_gpu_time(saved, time, total),
        )
