"""Which line a finding about a kernel names first: the one where the change is made."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.cells import records
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.lines import host_lines, native_lines
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.page import Text
from nsight_prof.reports.verdicts.lines import inner_loop, located, without_launches
from nsight_prof.reports.verdicts.ranking import findings, producers_first
from tests.reports.conftest import build_run
from tests.reports.programs import english, write

LOOP, LAUNCH = 12, 48
"""Lines of a made-up program: the loop of a kernel, and the launch of that."""


@cache
def kernel_finding() -> Finding:
    """Return the first finding about a kernel of the made-up run, of which all runs are copies."""
    with TemporaryDirectory() as folder:
        run = load_run(build_run(Path(folder) / "run"))
        found = next(f for f in findings(run) if f.key == "kernel")
    return replace(found, verdict=Text("It takes long."))


def finding_of(rule: str = "") -> Finding:
    """Return a finding about a kernel, of a rule, that names no line yet."""
    return replace(kernel_finding(), rule=rule)


def lines_of(run: Run, finding: Finding) -> list[int]:
    return [int(at) for at in re.findall(r"k\.py:(\d+)", english(located(run, finding).verdict))]


def launched(run: Run, *at: tuple[int, int, str]) -> Run:
    """Return the run with lines that launch the kernel: number, samples and text."""
    kernel = finding_of().kernel_ids[0]
    rows: list[dict[str, Any]] = [
        {"file": "/x/k.py", "line": line, "function": "run", "kernel_id": kernel, "call": "",
         "callers": "", "inner": "", "samples": samples, "source": source}
        for line, samples, source in at
    ]  # fmt: skip
    texts = [{**row, "hits": 9} for row in rows]
    return write(write(run, "launch_lines", rows), "timed_lines", texts)


@pytest.fixture
def in_loop(run: Run) -> Run:
    """The run with a kernel that loops at one line, and is launched at another."""
    kernel = finding_of().kernel_ids[0]
    at = {"kernel_id": kernel, "file": "/x/k.py", "samples": 90, "stall": "long_sb"}
    write(run, "source_lines", [{**at, "line": LOOP, "share": 1.0, "source": "x = load(a)"}])
    loop = {**at, "line": LOOP, "offset": 0, "sass": "LDG.E R2, desc[UR4][R2.64]", "sectors": 8}
    store = {**loop, "offset": 16, "sass": "STL [R1], R2", "samples": 0}
    write(
        run,
        "source_instructions",
        [
            {**each, "instructions": times, "excessive_sectors": 4}
            for each, times in ((loop, 64), (store, 640))
        ],
    )
    return launched(run, (LAUNCH, 9, "k[grid](a)"))


@pytest.mark.parametrize(
    ("rule", "places"),
    [
        ("small_grid", [LAUNCH, LOOP]),  # blocks, threads and warps are asked for at the launch
        ("imbalance", [LAUNCH, LOOP]),
        ("tail", [LAUNCH, LOOP]),
        ("block_limited", [LAUNCH, LOOP]),
        ("local_spills", [LAUNCH, LOOP]),  # tiles of Triton, of a size that is chosen there, too
        ("register_limited", [LAUNCH, LOOP]),
        ("uncoalesced_loads", [LOOP]),
        ("l2_saturated", [LOOP]),
    ],
)
def test_the_line_of_the_change_stands_first(in_loop: Run, rule: str, places: list[int]) -> None:
    assert lines_of(in_loop, finding_of(rule)) == places


def test_where_warps_only_queue_for_a_pipe_the_line_is_that_of_what_runs(in_loop: Run) -> None:
    """Warps that have just begun stand at their first instruction, behind those that are ahead."""
    instructions = in_loop.source_instructions
    loop, end = (row for _, row in instructions.iterrows())
    rows = [{**loop, "line": 3, "sass": "IMAD R2, R3, R4, R5", "instructions": 8, "samples": 80},
            {**end, "line": LOOP, "sass": "FFMA R2, R3, R4, R5", "instructions": 900}]  # fmt: skip
    texts = [
        {**in_loop.source_lines.iloc[0], "line": line, "samples": samples, "share": samples / 90}
        for line, samples in ((3, 80), (LOOP, 10))
    ]
    finding = finding_of("latency")
    for stall, places in (("math", [LOOP]), ("long_sb", [3, LOOP])):
        run = write(in_loop, "source_lines", texts)
        run = write(run, "source_instructions", [
            {**row, "stall": stall, "samples": samples}
            for row, samples in zip(rows, (80, 10), strict=True)
        ])  # fmt: skip
        assert lines_of(run, finding) == places


def test_a_single_warp_that_spills_is_a_matter_of_its_launch(in_loop: Run) -> None:
    finding = finding_of("local_spills")
    tables.write(in_loop.kernels.assign(block="32x1x1"), "kernels", in_loop.directory.tables)
    run = load_run(in_loop.path)
    assert lines_of(run, finding) == [LAUNCH, LOOP]


def test_what_a_function_or_a_kernel_in_cuda_spills_is_a_matter_of_its_lines(in_loop: Run) -> None:
    finding = finding_of("local_spills")
    of_sine = write(
        in_loop, "source_lines", records(in_loop.source_lines.assign(source="y = tl.sin(x)"))
    )
    assert lines_of(of_sine, finding) == [LOOP]


def test_blocks_of_which_most_warps_only_wait_are_a_matter_of_their_launch(in_loop: Run) -> None:
    finding = finding_of("latency")
    run = write(in_loop, "counters", records(in_loop.counters.assign(top_stall="barrier")))
    load, store = records(in_loop.source_instructions)
    for sass, times, is_few in (("MOV", 20, True), ("MOV", 64, False), ("LDGSTS", 20, False)):
        head = {**load, "offset": -16, "sass": f"{sass} R1, R2", "line": 3, "instructions": 64}
        rows = [head, {**load, "instructions": times}, store]
        found = located(write(run, "source_instructions", rows), finding)
        places = [LAUNCH, LOOP] if is_few else [LOOP]
        assert [int(at) for at in re.findall(r"k\.py:(\d+)", english(found.verdict))] == places
        assert ("Only 31 % of its warps load anything" in english(found.verdict)) == is_few


@pytest.mark.parametrize(
    ("file", "block", "times", "places"),
    [
        ("k.cu", "256x1x1", 64, [LOOP]),  # its text gives a thread one element
        ("k.cu", "256x1x1", 640, [LAUNCH, LOOP]),  # a loop takes what fewer blocks would leave
        ("k.cu", "1x1x1", 64, [LAUNCH, LOOP]),  # the launch asks for blocks of one thread
        ("k.py", "256x1x1", 64, [LAUNCH, LOOP]),  # the launch chooses the tile
    ],
)
def test_blocks_that_end_at_once_are_a_matter_of_the_kernel_where_it_has_no_loop(
    in_loop: Run, file: str, block: str, times: int, places: list[int]
) -> None:
    finding = finding_of("short_blocks")
    tables.write(in_loop.kernels.assign(block=block), "kernels", in_loop.directory.tables)
    load, store = records(in_loop.source_instructions.assign(file=f"/x/{file}"))
    run = write(in_loop, "source_instructions", [load, {**store, "instructions": times}])
    run = write(run, "source_lines", records(run.source_lines.assign(file=f"/x/{file}")))
    found = english(located(run, finding).verdict)
    assert [int(at) for at in re.findall(r"k\.(?:py|cu):(\d+)", found)] == places


@pytest.mark.parametrize(("served", "places"), [(60, [28, 26]), (98, [26, 28])])
def test_what_l1_serves_stands_behind_what_goes_on_to_l2(
    in_loop: Run, served: float, places: list[int]
) -> None:
    """Scattered loads that find their sectors in L1 cost less than scattered stores."""
    finding = finding_of("uncoalesced_accesses")
    load, store = records(in_loop.source_instructions)
    rows = [{**load, "line": 26, "sass": "LDG.E R2, [R4]", "sectors": 50, "excessive_sectors": 45},
            {**store, "line": 28, "sass": "STG.E [R4], R2", "sectors": 50,
             "excessive_sectors": 45}]  # fmt: skip
    text = records(in_loop.source_lines)[0]
    run = write(in_loop, "source_lines", [{**text, "line": at} for at in (26, 28)])
    run = write(run, "counters", records(run.counters.assign(l2_bytes=32.0 * served)))
    assert lines_of(write(run, "source_instructions", rows), finding) == places


def test_a_chain_stands_at_the_line_that_writes_what_it_alone_reads(run: Run) -> None:
    run = launched(run, (77, 41, "add[n](x, y, sums)"), (78, 31, "norm[n](sums, normed)"),
                   (79, 28, "colour[n](normed, out)"))  # fmt: skip
    texts = [(70, "sums, out = torch.empty_like(x), torch.empty_like(x)"),
             (76, "normed = torch.empty_like(x)"), (80, "return sums, out")]  # fmt: skip
    row = records(run.timed_lines)[0]
    rows = [*records(run.timed_lines), *({**row, "line": n, "source": t} for n, t in texts)]
    finding = replace(finding_of("elementwise_chain"), key="elementwise_chain")
    assert lines_of(run, finding) == [77, 78]  # nobody knows what else reads the sums
    assert lines_of(write(run, "timed_lines", rows), finding) == [78, 79]


@pytest.mark.parametrize(("gain", "order"), [(0.98, [1, 0]), (0.9, [0, 1])])
def test_of_gains_that_are_alike_what_runs_first_stands_first(
    run: Run, gain: float, order: list[int]
) -> None:
    rows = [{"kernel_id": key, "index": at, "start_ns": at * 1000, "duration_ns": 500}
            for at, key in enumerate(("sort", "sum", "sort", "sum"))]  # fmt: skip
    run = write(run, "launches", rows)
    one = finding_of()
    found = [replace(one, kernel_ids=(key,), gain_ns=saved, choice=False)
             for key, saved in (("sum", 1e6), ("sort", gain * 1e6))]  # fmt: skip
    assert producers_first(run, [*found]) == [found[at] for at in order]


def test_kernels_of_a_backward_pass_lead_to_the_forward_line(run: Run) -> None:
    run = launched(run, (54, 61, "loss.backward()"), (32, 39, "y = self.layers(x)"))
    finding = finding_of("tensor_idle")
    assert lines_of(run, finding) == [32, 54]
    alone = launched(run, (54, 61, "loss.backward()"))
    assert lines_of(alone, finding) == [54]


def test_lines_of_a_native_program_are_those_with_the_time_of_their_calls(run: Run) -> None:
    """As `cudaMemset` and `cudaMemcpy` before each look at a result: as many calls of each."""
    calls = [("cudaMemsetAsync", 39, 400, 1.2e6), ("cudaMemcpy", 44, 400, 5.6e6),
             ("cudaMemcpy", 49, 1, 9e6)]  # fmt: skip
    rows = [
        {"file": "/x/k.cu", "line": line, "function": "main", "kernel_id": "", "call": call,
         "callers": "", "inner": "", "samples": samples, "time_ns": time_ns}
        for call, line, samples, time_ns in calls
    ]  # fmt: skip
    found = native_lines(write(run, "launch_lines", rows), ("waiting", "copying"))
    # The last copy, which waits for all that still runs, holds up no step.
    assert [line.line for line in found] == [44, 39]
    assert found[0].share.value == pytest.approx(5.6 / 6.8)


def test_what_is_allocated_in_each_step_stands_before_what_frees_it(run: Run) -> None:
    """What a step frees it has allocated: each of its buffers is to be kept, the first, too."""
    calls = [("cudaFree", 30, 3.1e6), ("cudaMalloc", 46, 2.8e6), ("cudaFree", 51, 2.2e6),
             ("cudaMalloc", 45, 1.9e6)]  # fmt: skip
    rows = [
        {"file": "/x/k.py", "line": line, "function": "main", "kernel_id": "", "call": call,
         "callers": "", "inner": "", "samples": 1500, "time_ns": time_ns}
        for call, line, time_ns in calls
    ]  # fmt: skip
    finding = replace(finding_of("allocation_stalls"), key="idle", stage="")
    run = write(write(run, "host_lines", []), "launch_lines", rows)
    assert lines_of(run, finding) == [45, 46]
    only_free = write(run, "launch_lines", rows[::2])
    assert lines_of(only_free, finding) == [30, 51]


@pytest.mark.parametrize(
    ("inside", "places"), [(90, [48, 46]), (3, [46])]
)  # launches in the loop, or the one wait before them
def test_a_loop_over_what_is_read_once_is_at_fault_for_what_it_launches(
    run: Run, inside: int, places: list[int]
) -> None:
    head = "for end in ends.tolist():"
    run = sampled(run, (46, "waiting", head, 10), (48, "launching", "pack[(end,)](x)", inside))
    finding = replace(finding_of("launch_bound"), key="idle", stage="", choice=False)
    assert lines_of(run, finding) == places


@pytest.mark.parametrize(("hits", "inner"), [(4800, [34, 37]), (100, [])])
def test_a_loop_within_the_step_stands_before_the_rest_of_it(
    run: Run, hits: int, inner: list[int]
) -> None:
    """A backward pass, and a loop over parameters after it: the loop alone can be mended."""
    found = [(57, 39, 100), (34, 28, hits), (37, 11, hits)]
    rows = [
        {"file": "/x/k.py", "line": line, "function": "run", "hits": runs, "time_ns": 1,
         "own_ns": 1, "source": ""}
        for line, _, runs in found
    ]  # fmt: skip
    run = write(run, "timed_lines", rows)
    sampled = pd.DataFrame(rows).assign(samples=[samples for _, samples, _ in found])
    empty = dict.fromkeys(("activity", "call", "nvtx_range", "inner", "callers"), "")
    lines = host_lines(sampled.assign(idle_samples=0, **empty))
    assert [line.line for line in inner_loop(run, lines)] == inner


def test_a_loop_within_the_step_saves_what_its_lines_hold(run: Run) -> None:
    """The rest of the step launches as slowly as before once the items of the loop go at once."""
    run = sampled(run, (57, "launching", "y = f(x)", 60), (34, "launching", "n += p.norm()", 40))
    texts = [{**row, "hits": 100 if row["line"] == 57 else 4800} for row in records(run.host_lines)]
    finding = replace(finding_of("launch_bound"), stage="", choice=True, gain_ns=1e9)
    run = write(run, "timed_lines", texts)
    of_step = located(run, finding)
    assert of_step.gain_ns == 1e9  # 40 % are too few beside 60 %: the step is to mend
    texts[1]["idle_samples"] = texts[1]["samples"] = 55
    of_loop = located(write(run, "host_lines", texts), finding)
    busy = run.kernels["total_ns"].sum()
    assert 1e9 * 55 / 115 <= of_loop.gain_ns <= (1e9 + busy) * 55 / 115
    assert of_loop.most_ns == 1e9


def sampled(run: Run, *lines: tuple[int, str, str, int]) -> Run:
    """Return the run with samples of an idle GPU: line, activity, text of the line and number."""
    rows = [
        {"file": "/x/k.py", "line": line, "function": "run", "activity": activity, "call": "",
         "source": source, "samples": samples, "idle_samples": samples, "callers": "", "inner": ""}
        for line, activity, source, samples in lines
    ]  # fmt: skip
    return write(launched(run, (29, 9, "y = up(x)")), "host_lines", rows)


@pytest.mark.parametrize(("samples", "order"), [(45, [16, 29]), (20, [29, 16])])
def test_where_the_host_works_as_much_as_it_launches_the_work_stands_first(
    run: Run, samples: int, order: list[int]
) -> None:
    run = sampled(run, (16, "program", "n = count(x)", samples), (29, "launching", "y = up(x)", 50))
    assert lines_of(run, replace(finding_of("host_bound"), stage="")) == order


@pytest.mark.parametrize("rule", ["launch_bound", "host_bound", "idle"])
def test_where_the_host_launches_a_backward_pass_the_forward_line_stands_first(
    run: Run, rule: str
) -> None:
    run = sampled(run, (57, "launching", "loss.backward()", 60), (55, "launching", "y = f(x)", 40))
    finding = replace(finding_of(rule), stage="", choice=rule == "launch_bound")
    assert lines_of(run, finding) == [55, 57]


def test_a_line_that_launches_nothing_is_told_from_those_that_do(run: Run) -> None:
    """A look at statistics in each layer keeps the GPU waiting as much as slow launches do."""
    lines = [(16, "program", "used = bytes()", 30), (29, "program", "y = up(x)", 50),
             (29, "launching", "y = up(x)", 10), (40, "program", "a.backward()", 20)]  # fmt: skip
    run = sampled(run, *lines)
    found, others = without_launches(run, run.host_lines, "idle_samples")
    assert [(line.line, line.samples) for line in found] == [(16, 30)]
    assert sorted(others["line"]) == [29, 29, 40]
    # Without the lines that launch, as in runs of older versions, nothing is told apart.
    found, others = without_launches(write(run, "launch_lines", []), run.host_lines, "idle_samples")
    assert not found
    assert len(others) == 4
