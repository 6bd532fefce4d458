"""What is told of small programs that are recorded on a CPU, as they are and mended."""

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from nsight_prof.parsers.cells import records
from nsight_prof.parsers.run.run import Run
from nsight_prof.parsers.torch.values import read_values
from nsight_prof.reports.findings.model import Finding
from nsight_prof.reports.findings.values.calls import differentiated
from nsight_prof.reports.findings.values.findings import value_findings
from tests.reports.findings.program.test_host_work import MS, line
from tests.reports.programs import english, write

torch = pytest.importorskip("torch")

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
WEIGHTS = [torch.randn(64, 64) / 8 for _ in range(6)]
BATCHES = [torch.randn(32, 64) for _ in range(4)]
TARGETS = [torch.randn(32, 64) for _ in range(4)]
GRAPH = (torch.rand(64, 64) < 0.005).float()
MANY = torch.randn(64, 64)


def net(width=64):
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(4)))
"""


def recorded(run: Run, tmp_path: Path, source: str) -> tuple[Run, list[str]]:
    """Record `main()` of a source; its operators launch kernels as often as they are called."""
    from nsight_prof.targets.value_profiler.recorder import Recorder

    script = tmp_path / "model.py"
    script.write_text(HEAD + textwrap.dedent(source))
    names: dict[str, Any] = {}
    exec(compile(script.read_text(), script, "exec"), names)
    recorder = Recorder(tmp_path / "values.jsonl.gz", script, 20_000, 60)
    recorder.start()
    try:
        names["main"]()
    finally:
        recorder.stop()
    values, _ = read_values(tmp_path / "values.jsonl.gz")
    values = values[values["file"].eq(str(script))]
    values = values.assign(time_ns=values["calls"] * MS)  # as long as any: no clock decides
    run = write(run, "kernels", records(run.kernels.head(1)))
    rows = [
        {
            "kernel_id": run.kernels["kernel_id"].iloc[0],
            "call": "",
            **{name: row[name] for name in ("file", "line", "function")},
            "inner": "",
            "callers": " < ".join(
                f"{at['file']}:{at['line']} {at['function']}" for at in json.loads(row["callers"])
            ),
            "samples": row["calls"],
            "time_ns": row["calls"] * MS,
        }
        for row in records(values)
    ]
    run = write(write(run, "host_lines", [line("", 5)]), "launch_lines", rows)
    return write(run, "operator_values", records(values)), script.read_text().split("\n")


def told(run: Run) -> list[Finding]:
    return value_findings(run)


LAYERS = """
    FREQUENCIES = 1 / 100 ** (torch.arange(32) / 32)

    def waves(position):
        angles = position * FREQUENCIES
        return torch.cat([angles.cos(), angles.sin()])

    def layer(x, weight, position, kept):
        turned = kept if kept is not None else waves(position)
        return torch.tanh(x @ weight) * turned

    def main(mended=MENDED):
        x = BATCHES[0]
        for position in range(12):
            kept = waves(position) if mended else None
            for weight in WEIGHTS:
                x = layer(x, weight, position, kept)
        return x.sum()
"""
TWICE = """
    def main():
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        right = 0
        for step in range(8):
            scores = model(BATCHES[step % 4])
            right = right + (SECOND).argmax(1).sum()
            F.mse_loss(scores, TARGETS[step % 4]).backward()
            optimizer.step()
            optimizer.zero_grad()
        return right
"""
LAST = """
    def main():
        table = torch.randn(500, 64)
        total = 0
        for step in range(8):
            h = torch.tanh(BATCHES[step % 4] @ WEIGHTS[0])
            LINES
            total = total + scores.amax()
        return total
"""
ATTENTION = """
    def main():
        attention = nn.MultiheadAttention(64, 4, batch_first=True).requires_grad_(False).train()
        total = 0
        for step in range(8):
            x = BATCHES[step % 4][None]
            y = attention(x, x, x, need_weights=NEED)[0]
            total = total + (y @ WEIGHTS[0]).sum()
        return total
"""
SORTED = """
    def main():
        total = 0
        for step in range(8):
            scores = BATCHES[step % 4] @ MANY
            best = CHOOSE
            total = total + best.square().sum()
        return total
"""


@pytest.mark.parametrize(
    ("source", "rule", "at"),
    [
        pytest.param(LAYERS.replace("MENDED", "False"), "repeated_work",
                     "turned = kept", id="layers"),
        pytest.param(LAYERS.replace("MENDED", "True"), "", "", id="layers, mended"),
        pytest.param(ATTENTION.replace("NEED", "True"), "unread_results", "y = attention",
                     id="weights of attention"),
        pytest.param(ATTENTION.replace("NEED", "False"), "", "", id="no weights"),
        pytest.param(TWICE.replace("SECOND", "model(BATCHES[step % 4])"), "repeated_work",
                     "right = right +", id="model called twice"),
        pytest.param(TWICE.replace("SECOND", "scores"), "", "", id="model called once"),
        pytest.param(LAST.replace("LINES", "scores = (h @ table.T)[-1]"), "unread_results",
                     "scores =", id="all scores"),
        pytest.param(LAST.replace("LINES", "scores = h[-1] @ table.T"), "", "", id="last scores"),
        pytest.param(SORTED.replace("CHOOSE", "scores.sort(dim=1, descending=True)[0][:, :4]"),
                     "unread_results", "best =", id="sorted"),
        pytest.param(SORTED.replace("CHOOSE", "scores.topk(4, dim=1)[0]"), "", "", id="chosen"),
        pytest.param(LAST.replace("LINES", "scores = (h @ GRAPH).relu()"), "zeros_multiplied",
                     "scores =", id="dense graph"),
    ],
)  # fmt: skip
def test_defects_are_told_at_their_line(
    run: Run, tmp_path: Path, source: str, rule: str, at: str
) -> None:
    run, lines = recorded(run, tmp_path, source)
    found = told(run)
    assert [f.rule for f in found] == [rule] * bool(rule)
    for finding in found:
        place = next(n for n, text in enumerate(lines, 1) if text.strip().startswith(at))
        assert f"model.py:{place}" in english(finding.verdict).split(" ", 2)[1]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("y = y + model(BATCHES[0]).sum()", id="one batch in all steps"),
        pytest.param("model(BATCHES[step % 4])", id="results that nobody takes"),
        pytest.param("""
            F.mse_loss(model(BATCHES[0]), TARGETS[0]).backward()
            optimizer.step()
            optimizer.zero_grad()""", id="training on one batch"),
        pytest.param("""
            h = checkpoint(model, BATCHES[step % 4].requires_grad_(), use_reentrant=False)
            F.mse_loss(h, TARGETS[step % 4]).backward()
            optimizer.step()
            optimizer.zero_grad()""", id="checkpoints"),
        pytest.param("""
            h = F.dropout(model(BATCHES[step % 4]), 0.5)
            y = y + h.square().mean()""", id="dropout"),
        pytest.param("""
            weight = model[0].weight.to(torch.bfloat16)
            F.linear(BATCHES[step % 4].to(torch.bfloat16), weight).float().sum().backward()
            optimizer.step()
            optimizer.zero_grad()""", id="weights that are cast once for each step"),
        pytest.param("""
            with torch.no_grad():
                known = frozen(BATCHES[step % 4])
            F.mse_loss(model(known), TARGETS[step % 4]).backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 4 == 3:
                with torch.no_grad():
                    y = y + model(BATCHES[0]).sum()""", id="a frozen network, and a test"),
    ],
)  # fmt: skip
def test_what_a_program_needs_is_not_told(run: Run, tmp_path: Path, body: str) -> None:
    source = f"""
def main():
    model, frozen, y = net(), net(), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(12):
{textwrap.indent(textwrap.dedent(body).strip(), "        ")}
    return y
"""
    run, _ = recorded(run, tmp_path, source)
    assert not told(run)


@pytest.mark.parametrize(
    ("again", "known"),
    [
        ("", True),
        ("        total = total + (table[kinds] * 3).mean()\n", False),
    ],
)
def test_a_gradient_leads_to_the_line_that_it_derives(
    run: Run, tmp_path: Path, again: str, known: bool
) -> None:
    source = f"""
def main():
    table = torch.randn(20, 64, requires_grad=True)
    kinds = torch.randint(0, 20, (400,))
    for step in range(8):
        rows = table[kinds] * 2
        total = rows.square().mean()
{again}        total.backward()
"""
    run, lines = recorded(run, tmp_path, source)
    values = run.operator_values
    is_main = values["operator"].str.contains("index_put")
    values = values.assign(time_ns=values["time_ns"].where(~is_main, 1000 * MS))
    run = write(run, "operator_values", records(values))
    at = {text: number for number, text in enumerate(lines, 1)}
    place = next(number for text, number in at.items() if "rows = table[kinds]" in text)
    backward = next(number for text, number in at.items() if "backward" in text)
    file = str(tmp_path / "model.py")
    found = differentiated(run, file, backward)
    assert found == ((file, "main", place) if known else None)
    assert differentiated(run, file, place) is None
