"""What a program does at the line that a finding about its host is about, by that line."""

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.verdicts.operations import calls_at
from nsight_prof.reports.verdicts.ranking import findings
from tests.reports.findings.program.test_host_work import MS, line
from tests.reports.programs import english, write


def titled(run: Run, rule: str, rows: list[dict[str, object]], cause: str) -> tuple[str, str]:
    gap = {"stage": "decode", "cause": cause, "waited": "cudaStreamSynchronize", "call": "",
           "nvtx_range": "", "gaps": 30, "idle_ns": 6 * MS, "longest_ns": MS}  # fmt: skip
    if cause != "synchronisation":
        gap["waited"] = ""
    run = write(write(run, "idle_gaps", [gap]), "host_lines", rows)
    (found,) = [f for f in findings(run) if f.rule == rule]
    return english(found.title), english(found.action)


@pytest.mark.parametrize(
    ("source", "title", "action"),
    [
        ("loss += float(step_loss.item())", ".item()", "every some steps"),
        ("kept = values[scores > 0.5]", "boolean mask (nonzero)", "masked_fill"),
        ("if (residual < 1e-5).all():", "truth of a tensor", "torch.where"),
        ("words = chosen.tolist()", "Python lists (.tolist())", "loop over the list"),
        ("seen = torch.unique(users)", "torch.unique", "minlength"),
        ("solved = torch.linalg.solve(a, b)", "torch.linalg", "solve_ex"),
    ],
)
def test_a_wait_is_told_by_what_the_line_asks_for(
    run: Run, source: str, title: str, action: str
) -> None:
    rows = [line("", 40, source=source, activity="waiting", call="cudaStreamSynchronize")]
    words = titled(run, "sync_stalls", rows, "synchronisation")
    assert title in words[0]
    assert action in words[1]


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("row = json.loads(text)", "parses or writes data"),
        ("words = text.lower().split()", "works on text"),
        ("ids = tokenizer.encode(prompt)", "works on text"),
        ("image = vae.decode(latents)", "runs code on the host (CPU)"),
        ("halves = state.split(64)", "runs code on the host (CPU)"),
        ("raw = zlib.decompress(packed)", "compresses, unpacks"),
        ("order = sorted(scores)", "item by item"),
        ("state = advance(state)", "runs code on the host (CPU)"),
    ],
)
def test_work_of_the_host_is_told_by_its_line(run: Run, source: str, title: str) -> None:
    assert title in titled(run, "host_bound", [line("", 40, source=source)], "host")[0]


def test_small_launches_are_told_by_who_makes_them(run: Run) -> None:
    cell = line("", 40, inner="/v/site-packages/torch/nn/modules/rnn.py:1640 forward")
    title, action = titled(run, "launch_bound", [cell], "launches")
    assert "LSTMCell" in title
    assert action.startswith("Give the whole sequence to nn.LSTM")
    plain = titled(run, "launch_bound", [line("", 40, source="y = net(x)")], "launches")
    assert "the program" not in plain[0]


def test_a_line_is_told_with_what_it_calls() -> None:
    assert english(calls_at("x = self.norm(F.gelu(torch.cat([a, b])))")) == (
        " It calls norm, F.gelu and torch.cat there."
    )
    assert calls_at("for row in range(len(rows)):  # sum(rows)") == ""
