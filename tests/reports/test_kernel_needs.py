"""What a program says its work needs, and what becomes of it."""

import json
import lzma
import math
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.analysis.declared import Need
from nsight_prof.reports.analysis.needs import needs
from nsight_prof.reports.findings.kernels.findings import abstentions, kernel_findings
from nsight_prof.reports.findings.kernels.measure import EXECUTION_STALLS
from nsight_prof.reports.findings.kernels.roofs import ROOFS
from nsight_prof.reports.findings.kernels.rules import BY_KEY
from nsight_prof.reports.findings.kernels.waits import REMEDIES, STALLS
from nsight_prof.reports.verdicts.ranking import findings
from tests.reports.programs import english

GEMM = "cuBLAS GEMM 64x8 splitK"


def kernel_id(run: Run, name: str) -> str:
    ids = run.kernels.set_index("short_name")["kernel_id"]
    return str(ids[name])


def declare(run: Run, *lines: str) -> Run:
    path = run.directory.artifact("trace", "stdout.log")
    assert path is not None
    path.write_text("\n".join(["ready", *lines]), encoding="utf-8")
    return load_run(run.path)


def work(**item: Any) -> str:
    return "log: " + json.dumps({"work": [item]})


def test_a_program_tells_its_bytes_by_kernel_and_stage(run: Run) -> None:
    told = declare(run, work(kernel="64x8_64x4_4x1_v_bz_splitK", stage="decode", bytes=1e8))
    assert needs(told) == {kernel_id(run, GEMM): Need(1e8)}
    elsewhere = declare(run, work(kernel="splitK", stage="prefill", bytes=1e8))
    assert needs(elsewhere) == {}


@pytest.mark.parametrize(
    "line",
    ['{"work": 3}', '{"work": ["x"]}', '{"work": [{"kernel": "x"}]}', '{"work"',
     work(kernel="splitK", bytes=-1), work(bytes=5),
     '{"work": [{"kernel": "splitK", "bytes": "many"}]}'],
)  # fmt: skip
def test_lines_that_say_something_else_are_left_alone(run: Run, line: str) -> None:
    assert needs(declare(run, line)) == {}


def test_output_of_a_recorded_capture_is_read_as_it_lies(run: Run) -> None:
    told = declare(run, work(kernel="splitK", bytes=1e8))
    path = told.directory.artifact("trace", "stdout.log")
    assert path is not None
    path.with_suffix(".log.xz").write_bytes(lzma.compress(path.read_bytes()))
    path.unlink()
    assert kernel_id(run, GEMM) in needs(load_run(run.path))


def test_shapes_that_the_program_printed_belong_to_the_kernel_of_their_flops(run: Run) -> None:
    found = needs(run)
    assert found[kernel_id(run, GEMM)].size == (8, 128256, 4096)
    assert math.isnan(found[kernel_id(run, GEMM)].bytes)


def product(run: Run, **values: Any) -> pd.DataFrame:
    rows = [dict.fromkeys(run.gemms.columns) | values]
    return pd.DataFrame(rows, columns=list(run.gemms.columns))


def test_shapes_of_the_torch_profiler_tell_the_bytes(run: Run) -> None:
    key = kernel_id(run, GEMM)
    one = product(run, kernel_id=key, m=8, n=128256, k=4096, bytes=1.05e9)
    tables.write(one, "gemms", run.directory.tables)
    assert needs(load_run(run.path))[key] == Need(1.05e9, (8, 128256, 4096))
    two = pd.concat([one, one.assign(n=64, bytes=1e5)])
    tables.write(two, "gemms", run.directory.tables)
    assert math.isnan(needs(load_run(run.path))[key].bytes), "its launches differ"


def test_a_product_that_reads_its_weights_twice_thrashes_the_cache(run: Run) -> None:
    moved = run.counters.set_index("kernel_id")["dram_bytes"][kernel_id(run, GEMM)]
    told = declare(run, work(kernel="splitK", bytes=moved / 4))
    (finding,) = [f for f in kernel_findings(told) if f.rule == "l2_thrashing"]
    assert english(finding.title).startswith(GEMM)
    assert "4.0 times the bytes" in english(finding.verdict)
    # L2 is busy for 43 % of the time, and stays so.
    assert finding.gain_kernel == pytest.approx(0.57, abs=0.01)


def test_every_finding_of_a_kernel_names_its_rule_and_its_disproof(run: Run) -> None:
    keys = {*BY_KEY, *(roof.key for roof in ROOFS.values())}
    for finding in (f for f in findings(run) if f.key == "kernel"):
        assert finding.rule in keys
        assert english(finding.disproof).endswith(".")
        assert finding.evidence


def test_what_to_do_about_a_wait_depends_on_what_for(run: Run) -> None:
    (forward,) = [
        f for f in kernel_findings(run) if english(f.title).startswith("FlashAttention forward")
    ]
    assert forward.rule == "latency"
    assert "a library's" in english(forward.action)  # its users cannot change how it waits
    assert "long_scoreboard" not in REMEDIES
    assert all(reason in REMEDIES or reason in STALLS for reason in EXECUTION_STALLS)


def test_rules_that_abstain_say_why(run: Run) -> None:
    found = {rule: one.reason for one in abstentions(run) for rule in one.rules}
    assert "neither the program nor" in english(found["l2_thrashing"])
    assert "threads_per_instruction" not in english(found.get("uncoalesced_loads"))
    assert english(found["uncoalesced_loads"]) == "not known: global_load_efficiency_pct"


def test_an_abstention_gives_the_reason_of_the_table_gaps(run: Run) -> None:
    rows = [("counters", "", "global_load_efficiency_pct", "not collected: metric set memory",
             "not collected")]  # fmt: skip
    gaps = pd.DataFrame(rows, columns=list(run.gaps.columns))
    tables.write(pd.concat([run.gaps, gaps]), "gaps", run.directory.tables)
    found = {rule: one.reason for one in abstentions(load_run(run.path)) for rule in one.rules}
    assert english(found["uncoalesced_loads"]) == "not collected: metric set memory"


def test_a_kernel_that_does_nothing_of_the_kind_is_no_abstention(run: Run) -> None:
    rows = [("counters", "", "fusable_pct", "no FP32 or FP64 arithmetic", "")]
    gaps = pd.DataFrame(rows, columns=list(run.gaps.columns))
    tables.write(pd.concat([run.gaps, gaps]), "gaps", run.directory.tables)
    assert "unfused_fma" not in [r for a in abstentions(load_run(run.path)) for r in a.rules]
