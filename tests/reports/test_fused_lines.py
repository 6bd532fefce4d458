"""From what Inductor tells of its kernels to the lines that were fused into them."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from nsight_prof.orchestrator.commands.where import as_data, as_text
from nsight_prof.parsers import tables
from nsight_prof.parsers.build.load import load_run
from nsight_prof.parsers.cells import number
from nsight_prof.parsers.errors import ArtifactUnreadable
from nsight_prof.parsers.torch.fused_kernels import read_fused_lines
from nsight_prof.reports.analysis.lines import program_lines
from nsight_prof.reports.page.writer import Writer
from nsight_prof.reports.verdicts.ranking import findings
from nsight_prof.targets.under_torch_profiler import FusedKernels

FUSED = "cpp_fused__softmax_add_gelu_mul_sum_0"
# As torch 2.13 logged it of a function compiled for a CPU, and the frame of a module of torch.
PAYLOAD = {
    "extern_kernels.mm:1": [
        '  File "model.py", line 3, in block\n    y = torch.nn.functional.gelu(x @ w)\n'
        "                                 ^^^^^^\n"
    ],
    f"{FUSED}:2": [
        '  File "model.py", line 5, in block\n    return z.softmax(-1).sum(-1)\n'
        "           ^^^^^^^^^^^^^^^^^^^^^\n",
        '  File "model.py", line 4, in block\n    z = y * 2 + 1\n        ^^^^^^^^^\n',
        '  File "model.py", line 3, in block\n    y = self.norm(x @ w)\n'
        '  File "/x/site-packages/torch/nn/modules/normalization.py", line 9, in forward\n'
        "    return F.rms_norm(input, self.normalized_shape)\n",
    ],
}


def log(handler: FusedKernels, payload: object, name: str = FusedKernels.ARTIFACT) -> None:
    record = logging.LogRecord("torch.__trace", logging.DEBUG, "", 0, "", None, None)
    record.metadata, record.payload = {"artifact": {"name": name}}, json.dumps(payload)
    handler.handle(record)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    handler = FusedKernels()
    assert os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] == "1"
    logging.getLogger("torch.__trace").removeHandler(handler)
    log(handler, {"another": ["artifact"]}, "inductor_post_grad_graph")
    log(handler, ["not", "a", "mapping"])
    for _ in range(2):  # the same graph, compiled again
        log(handler, PAYLOAD)
    handler.write(tmp_path)
    return tmp_path / "fused_kernels.json"


def test_a_fused_kernel_leads_to_the_programs_own_lines(written: Path) -> None:
    kernels = pd.DataFrame({"kernel_id": ["k1", "k2"], "name": [FUSED, "triton_poi_fused_add_0"]})
    frame = read_fused_lines(written, kernels)
    assert list(frame["kernel_id"]) == ["k1"] * 3
    assert list(frame["line"]) == [5, 4, 3]
    assert set(frame["file"]) == {"model.py"}
    assert list(frame["source"])[1:] == ["z = y * 2 + 1", "y = self.norm(x @ w)"]


def test_kernels_of_a_training_step_on_an_h100_lead_to_its_lines(root: Path) -> None:
    recorded = root / "tests" / "fixtures" / "fused_kernels"
    kernels = pd.read_csv(recorded / "kernels.csv")
    lines = read_fused_lines(recorded / "fused_kernels.json", kernels)
    assert set(lines["file"]) == {"/opt/nanoGPT/model.py"}
    gelu = lines[lines["source"] == "x = self.gelu(x)"]
    names = kernels[kernels["kernel_id"].isin(gelu["kernel_id"])]["name"]
    assert len(names)
    assert names.str.contains("gelu").all()
    # Two kernels of the backward pass have no stack.
    told = kernels["kernel_id"].isin(lines["kernel_id"])
    assert (told.sum(), len(kernels)) == (13, 15)
    assert kernels[told]["total_ns"].sum() > 0.8 * kernels["total_ns"].sum()


@pytest.mark.parametrize(
    "text", ["[", "[1]", '{"k": [[]]}', '{"k": [[["f", "x", "g", "s"]]]}', '{"k": 1}']
)
def test_damage_is_told(written: Path, text: str) -> None:
    written.write_text(text)
    with pytest.raises(ArtifactUnreadable, match="does not tell what was fused"):
        read_fused_lines(written, pd.DataFrame({"kernel_id": ["k"], "name": ["k"]}))


def test_findings_and_where_name_them(make_run: Callable[..., Path]) -> None:
    path = make_run()
    told = next(f for f in findings(load_run(path)) if f.kernel_ids and f.rule)
    line = {"kernel_id": told.kernel_ids[0], "file": "/x/model.py", "function": "block"}
    rows = [{**line, "line": number, "source": "z = y"} for number in (4, 5)]
    tables.write(tables.check(pd.DataFrame(rows), "fused_lines"), "fused_lines", path / "tables")
    run = load_run(path)
    verdicts = [Writer().text(finding.verdict) for finding in findings(run)]
    named = "2 lines of the program: model.py:4 in block and model.py:5 in block"
    assert any(named in verdict for verdict in verdicts), verdicts
    assert "fused by torch.compile from:\n    model.py:4 in block  z = y" in as_text(as_data(run))


def test_where_asks_for_no_launch_lines_that_are_there(make_run: Callable[..., Path]) -> None:
    path = make_run()
    assert "trace.launch_lines=true" in as_text(as_data(load_run(path)))
    kernel = load_run(path).kernels["kernel_id"].iloc[0]
    row = {"kernel_id": kernel, "call": "cudaLaunchKernel", "file": "/x/app", "function": "main"}
    row |= {"samples": 5, "time_ns": 100.0}
    columns = [column.name for column in tables.tables()["launch_lines"]]
    frame = tables.check(pd.DataFrame([row], columns=columns), "launch_lines")
    tables.write(frame, "launch_lines", path / "tables")
    assert "the functions that launch stand at each kernel" in as_text(as_data(load_run(path)))


def test_warps_in_a_header_stand_at_the_line_that_inlines_it(make_run: Callable[..., Path]) -> None:
    path = make_run()
    kernel = next(f for f in findings(load_run(path)) if f.key == "kernel").kernel_ids[0]
    header = "/usr/local/cuda/targets/x86_64-linux/include/cuda_bf16.hpp"
    at = [("k.cu", 62, 5, "wait"), ("k.cu", 63, 5, "wait"), (header, 585, 90, "long_sb")]
    rows = [
        {"kernel_id": kernel, "file": file, "line": line, "samples": samples, "stall": stall}
        for file, line, samples, stall in at
    ]
    lines = [{**row, "share": 0.01 * at[n][2], "source": ""} for n, row in enumerate(rows)]
    instructions = [{**row, "offset": 16 * n, "sass": ""} for n, row in enumerate(rows)]
    for table, found in (("source_lines", lines), ("source_instructions", instructions)):
        columns = [column.name for column in tables.tables()[table]]
        frame = pd.DataFrame(found, columns=columns)
        tables.write(tables.check(frame, table), table, path / "tables")
    first, second = program_lines(load_run(path), kernel)
    assert (first.location, first.samples, first.stall) == ("k.cu:63", 95, "long_sb")
    assert first.inlined
    assert number(first.share.value) == 0.95
    assert (second.location, second.samples, second.inlined) == ("k.cu:62", 5, False)
