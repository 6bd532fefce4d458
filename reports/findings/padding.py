"""Findings about GEMMs whose tile pads the work."""

from __future__ import annotations

from nsight_prof.parsers.cells import Row, number, text
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.declared import Shape
from nsight_prof.reports.analysis.evidence import source, threshold
from nsight_prof.reports.analysis.padding import paddings
from nsight_prof.reports.analysis.profiled import kernel_time
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.page import Evidence, Number, Ref, Text, Verbatim, Word

ADVICE = Text("choose sizes that are multiples of the block in which the GPU computes")


def padding_findings(run: Run) -> list[Finding]:
    """Return a finding for each GEMM whose padding costs time: it is bound by arithmetic."""
    total = kernel_time(run)
    found = []
    for padding in paddings(run):
        row, ratio = padding.row, padding.ratio or 1.0
        costs = row is not None and text(row["bound_by"]) in ("tensor", "fp32", "fp16", "fp64")
        if row is not None and costs and ratio > threshold("padding"):
            found.append(_finding(padding.shape, row, ratio, total))
    return [f for f in found if f.gain_program >= threshold("small_gain")]


def _finding(shape: Shape, row: Row, ratio: float, total_ns: float) -> Finding:
    share, gain, kernel_id = number(row["share"]), 1 - 1 / ratio, text(row["kernel_id"])
    refs = (Ref("counters", kernel_id, "flops_tensor"), Ref("gemms", ""))
    name, times = Verbatim(shape.name), Number(ratio, "", refs).at_digits(3)
    return Finding(
        key="padding",
        rule="tile_padding",
        title=Text(
            "{gemm}: the tile pads the work by {padding}",
            gemm=name,
            padding=Number(ratio - 1, "fraction"),
        ),
        headline=Text(
            "{gemm} computes {times} times the FLOPs it needs (tile)", gemm=name, times=times
        ),
        verdict=Text(
            "The GEMM {gemm} ({size}) computes {times} times the FLOPs it needs, because its tile "
            "{tile} does not divide it. A tile that fits would save at most {gain} of the GPU time "
            "({time}).",
            gemm=name,
            size=Verbatim(f"{shape.m} x {shape.n} x {shape.k}"),
            times=times,
            tile=Verbatim(text(row["tile"])),
            gain=Number(share * gain, "fraction"),
            time=Number(share * gain * total_ns, "ns"),
        ),
        kernel_ids=(kernel_id,),
        share=share,
        evidence=(
            Evidence(
                Text("counted over needed FLOPs"),
                Number(ratio, "", refs),
                Text("over {limit}", limit=Verbatim(f"{threshold('padding'):g}")),
                Text("{source}", source=Word(source("padding"))),
            ),
        ),
        gain_kernel=gain,
        gain_program=share * gain,
        gain_ns=share * gain * total_ns,
        bound=text(row["bound_by"]),
        action=Text("Choose sizes that are multiples of the tile, or a tile that divides them."),
        advice=ADVICE,
        confidence="medium",
        disproof=Text(
            "The same product with sizes that the tile divides takes as long, or counts as many "
            "FLOPs."
        ),
    )
