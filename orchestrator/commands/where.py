"""`prof where`: the lines of the source that the time belongs to, on the host and in kernels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nsight_prof.orchestrator.commands import shared_options
from nsight_prof.orchestrator.terminal import completion
from nsight_prof.orchestrator.terminal.say import say
from nsight_prof.parsers.errors import UsageError

if TYPE_CHECKING:
    from nsight_prof.parsers.run.run import Run
    from nsight_prof.reports.analysis.lines import HostLine, KernelLine
    from nsight_prof.reports.page import Number
    from nsight_prof.reports.profile.view_models import KernelRow

SHOWN = 10
NO_HOST = (
    "no samples of Python stacks: record the run with --set trace.python_sampling=true; of a "
    "program in C++, --set trace.launch_lines=true gives the functions that make CUDA calls"
)
AT_KERNELS = "no samples of Python stacks; the functions that launch stand at each kernel"
NO_LINES = (
    "no lines of kernels: record the run with --set counters.source=true; kernels of CUDA need "
    "nvcc -lineinfo, those of Triton and torch.compile have lines, those of libraries have none"
)


@click.command("where")
@click.argument("run", type=click.Path(path_type=Path), shell_complete=completion.runs)
@click.option(
    "--kernel", type=click.IntRange(min=1), help="Only this kernel, by its number in the report."
)
@click.option("--range", "nvtx_range", metavar="NAME", help="Only this stage or NVTX range.")
@shared_options.as_json
def command(run: Path, kernel: int | None, nvtx_range: str | None, as_json: bool) -> None:
    """Say which lines of the source the time belongs to.

    On the host: lines of Python by stage, with what the host did there and whether the GPU had
    work meanwhile, from samples of the stacks (trace.python_sampling). In kernels: lines with their
    share of the samples of warps, from ncu (counters.source); of kernels without lines, the lines
    of Python that launched them; of kernels of torch.compile the lines that it fused
    (operators.enabled). Each share has its 95 % interval. Needs no GPU.

    \b
    Examples:
      prof where runs/mine
      prof where runs/mine --kernel 1
      prof where runs/mine --range decode --json | jq '.host[] | [.file, .line, .share]'
    """
    from nsight_prof.orchestrator.report.run_tables import load_one_run

    loaded = load_one_run(run, "ask for", refresh=True)
    data = as_data(loaded, kernel, nvtx_range)
    if as_json:
        shared_options.say_json(data)
    else:
        say(as_text(data))


def as_data(run: Run, kernel: int | None = None, nvtx_range: str | None = None) -> dict[str, Any]:
    """Return the lines for --json: shares 0 to 1 with the ends of their interval, times in ns.

    Raises:
        UsageError: the run has no such kernel, or no sample in such a range.
    """
    from nsight_prof.reports.profile.kernel_rows import kernel_rows

    frame, kernels = run.host_lines, {row.number: row for row in kernel_rows(run)}
    if kernel is not None and kernel not in kernels:
        raise UsageError(
            f"the report of this run has no kernel {kernel}",
            f"it numbers {len(kernels)}, the largest first",
        )
    if nvtx_range is not None:
        names = sorted({*frame["stage"], *frame["nvtx_range"]} - {""})
        frame = frame[(frame["stage"] == nvtx_range) | (frame["nvtx_range"] == nvtx_range)]
        if frame.empty:
            raise UsageError(
                f"no sample of the host lies in a stage or range {nvtx_range!r}",
                f"there are: {', '.join(names) or 'none'}",
            )
    if kernel is not None:
        kernels = {kernel: kernels[kernel]}
        frame = frame[frame["kernel_id"] == kernels[kernel].kernel_id]
    no_host = NO_HOST if run.launch_lines.empty else AT_KERNELS
    return {
        "run": str(run.path),
        "samples": int(frame["samples"].sum()),
        "why_no_host": _reason(run, "host_lines", no_host) if run.host_lines.empty else None,
        "why_no_kernels": _reason(run, "source_lines", NO_LINES)
        if run.source_lines.empty
        else None,
        "host": _host(frame),
        "kernels": [] if nvtx_range else _kernels(run, kernels.values()),
    }


def _reason(run: Run, table: str, default: str) -> str:
    reasons = run.gaps.loc[run.gaps["table"] == table, "reason"].dropna()
    return str(reasons.iloc[0]) if len(reasons) else default


def _host(frame: Any) -> list[dict[str, Any]]:
    from nsight_prof.reports.analysis.lines import host_lines

    times = frame.groupby("stage")["time_ns"].sum().sort_values(ascending=False)
    return [
        {"stage": str(stage), **_host_line(line)}
        for stage in times.index
        for line in host_lines(frame[frame["stage"] == stage])
    ]


def _host_line(line: HostLine) -> dict[str, Any]:
    return {
        "file": line.file,
        "line": line.line,
        "function": line.function,
        "doing": line.doing,
        "call": line.call or None,
        "nvtx_range": line.nvtx_range or None,
        "inner": line.inner or None,
        "samples": line.samples,
        "time_ns": line.time.value,
        **_share(line.share),
        "gpu_idle": line.idle.value,
    }


def _kernels(run: Run, rows: Iterable[KernelRow]) -> list[dict[str, Any]]:
    from nsight_prof.reports.analysis.lines import callers, fused_lines, kernel_lines

    found = []
    for row in rows:
        lines, launched_by = kernel_lines(run, row.kernel_id), callers(run, row.kernel_id)
        fused_from = fused_lines(run, row.kernel_id)
        if lines or launched_by or fused_from:
            found.append(
                {
                    "number": row.number,
                    "kernel_id": row.kernel_id,
                    "name": row.short_name,
                    "lines": [_kernel_line(line) for line in lines],
                    "launched_by": [_host_line(line) for line in launched_by],
                    "fused_from": [asdict(line) for line in fused_from],
                }
            )
    return found


def _kernel_line(line: KernelLine) -> dict[str, Any]:
    return {
        "file": line.file,
        "line": line.line,
        "source": line.source,
        "samples": line.samples,
        **_share(line.share),
        "stall": line.stall or None,
        "stall_samples": line.stalled.value,
        "instructions": line.instructions.value,
        "sectors": line.sectors.value,
        "excessive_sectors": line.excessive.value,
    }


def _share(share: Number) -> dict[str, float | None]:
    return {"share": share.value, "share_low": share.low, "share_high": share.high}


def as_text(data: dict[str, Any]) -> str:
    """Return the lines for a terminal."""
    lines = [f"{data['run']}: {data['samples']} samples of the host"]
    if data["why_no_host"]:
        lines += ["", f"host: not available: {data['why_no_host']}"]
    stage = None
    count = 0
    for row in data["host"]:
        if row["stage"] != stage:
            stage, count = row["stage"], 0
            lines += ["", f"host, in {stage}:" if stage else "host, outside of every stage:"]
        count += 1
        if count <= SHOWN:
            lines += _host_text(row)
    if data["why_no_kernels"]:
        lines += ["", f"kernels: not available: {data['why_no_kernels']}"]
    for kernel in data["kernels"]:
        lines += ["", f"kernel {kernel['number']}, {kernel['name']}:"]
        lines += [_kernel_text(row) for row in kernel["lines"][:SHOWN]]
        if not kernel["lines"] and kernel["launched_by"]:
            lines.append("  launched by:")
            lines += [text for row in kernel["launched_by"][:SHOWN] for text in _host_text(row)]
        if kernel["fused_from"]:
            lines.append("  fused by torch.compile from:")
            lines += [_fused_text(row) for row in kernel["fused_from"][:SHOWN]]
    return "\n".join(lines)


def _host_text(row: dict[str, Any]) -> list[str]:
    from nsight_prof.reports.analysis.lines import location

    doing = f"{row['doing']}: {row['call']}" if row["call"] else row["doing"]
    line = f"  {_percent(row)}  {location(row['file'], row['line'])} in {row['function']}"
    idle = "" if row["gpu_idle"] is None else f"; GPU idle in {100 * row['gpu_idle']:.0f} %"
    return [line, f"{'':26}{doing}{idle}"]


def _kernel_text(row: dict[str, Any]) -> str:
    from nsight_prof.reports.analysis.lines import location

    stall = f", most for {row['stall']}" if row["stall"] else ""
    excess, sectors = row["excessive_sectors"], row["sectors"]
    wide = (
        f", {100 * excess / sectors:.0f} % of {sectors:,.0f} sectors excessive"
        if sectors and excess is not None
        else ""
    )
    source = f"\n{'':26}{row['source'].strip()}" if row["source"].strip() else ""
    return f"  {_percent(row)}  {location(row['file'], row['line'])}{stall}{wide}{source}"


def _fused_text(row: dict[str, Any]) -> str:
    from nsight_prof.reports.analysis.lines import location

    return (
        f"    {location(row['file'], row['line'])} in {row['function']}  {row['source']}".rstrip()
    )


def _percent(row: dict[str, Any]) -> str:
    if row["share"] is None:
        return f"{'not measured':>22}"
    low, high = 100 * row["share_low"], 100 * row["share_high"]
    return f"{100 * row['share']:5.1f} % ({low:3.0f} to {high:3.0f} %)"
