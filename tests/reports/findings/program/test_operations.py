"""What a program does at the line that a finding about its host is about, by that line."""

import pytest

from nsight_prof.parsers.run.run import Run
from nsight_prof.reports.verdicts.operations import calls_at
from nsight_prof.reports.verdicts.ranking import findings
from tests.reports.findings.program.test_host_work import MS, line
from tests.reports.findings.program.test_needless import launching
from tests.reports.programs import english, write


def gap_of(cause: str) -> dict[str, object]:
    return {"stage": "decode", "cause": cause, "waited": "", "call": "", "nvtx_range": "",
            "gaps": 30, "idle_ns": 6 * MS, "longest_ns": MS}  # fmt: skip


def titled(run: Run, rule: str, rows: list[dict[str, object]], cause: str) -> tuple[str, str]:
    gap = gap_of(cause)
    if cause == "synchronisation":
        gap["waited"] = "cudaStreamSynchronize"
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
        ("word = torch.multinomial(p, 1)", "torch.multinomial", "exponential noise"),
        ("classes = F.one_hot(labels)", "size depends on the data", "num_classes="),
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


@pytest.mark.parametrize(
    ("source", "all_goes"),
    [("roots = torch.linalg.eigvalsh(a)", True), ("kept = values[scores > 0.5]", False)],
)
def test_what_a_solver_launches_goes_with_its_waits(run: Run, source: str, all_goes: bool) -> None:
    run = launching(run, source)
    rows = [line("", 40, source=source, activity="waiting", call="cudaStreamSynchronize")]
    gap = gap_of("synchronisation") | {"waited": "cudaStreamSynchronize"}
    run = write(write(run, "idle_gaps", [gap]), "host_lines", rows)
    (found,) = [f for f in findings(run) if f.rule == "sync_stalls"]
    kernel = run.kernels.set_index("kernel_id")["total_ns"].iloc[0]
    # Three of four samples of the kernel are at that line.
    assert (found.gain_ns >= 0.75 * kernel) == all_goes
    assert ("all matrices in one call" in english(found.verdict)) == all_goes


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


def told(run: Run, rule: str) -> str:
    (found,) = [f for f in findings(run) if f.rule == rule]
    return english(found.verdict)


@pytest.mark.parametrize(("second", "loop"), [(32, False), (6, True)])
def test_lines_that_hold_most_of_a_loop_are_named_before_it(
    run: Run, second: int, loop: bool
) -> None:
    called = {"callers": "/a/train.py:70 run"}
    rows = [line("", 40, line=41, **called), line("", second, line=48, function="sample", **called)]
    others = [line("", 4, line=90 + n, function=f"part{n}", **called) for n in range(9)]
    rows += others if loop else others[:1]
    rows += [line("", 3, line=30 + n, function="run") for n in range(2)]
    run = write(run, "idle_gaps", [gap_of("host")])
    words = told(write(run, "host_lines", rows), "host_bound")
    first = "train.py:70 in run" if loop else "train.py:41 in step"
    assert f"The host is then in {first}" in words


def test_a_copy_that_no_sample_met_is_at_the_line_whose_text_copies(run: Run) -> None:
    copy = {"kind": "host to device", "calls": 40, "bytes": 4e8, "total_ns": 9 * MS}
    rows = [line("", 9, line=20, source="x = net(x)"),
            line("", 1, line=19, source="x = batch.to(device, non_blocking=True)")]  # fmt: skip
    run = write(write(run, "memory_operations", [copy]), "host_lines", rows)
    assert "The host is then in train.py:19 in step" in told(run, "copies")


def test_modules_of_python_are_named_beside_launches(run: Run) -> None:
    inner = "/usr/lib/python3.12/inspect.py:3259 signature"
    rows = [line("", 30, line=32), line("", 12, line=18, inner=inner)]
    run = write(write(run, "idle_gaps", [gap_of("launches")]), "host_lines", rows)
    (found,) = [f for f in findings(run) if f.rule == "launch_bound"]
    assert "29 % of these samples are in Python's inspect.py, called at train.py:18" in english(
        found.verdict
    )


@pytest.mark.parametrize(("copied_at", "together"), [(9, True), (40, False)])
def test_what_is_made_and_copied_at_one_line_ends_together(
    run: Run, copied_at: int, together: bool
) -> None:
    rows = [
        line("", 40, source="rows = F.embedding(chosen, table).to(device)"),
        line("", 20, activity="copying", call="cudaMemcpyAsync", line=copied_at, idle_samples=0),
    ]
    copied = {"kind": "host to device", "calls": 40, "bytes": 40 << 22, "total_ns": 4 * MS,
              "pageable_ns": 4 * MS, "min_ns": 1, "max_ns": MS}  # fmt: skip
    run = write(write(run, "idle_gaps", [gap_of("host")]), "memory_operations", [copied])
    found = {f.rule: f for f in findings(write(run, "host_lines", rows))}
    gains = [found[rule].gain_ns for rule in ("host_bound", "copies")]
    assert ("end together" in english(found["host_bound"].verdict)
            or "end together" in english(found["copies"].verdict)) is together  # fmt: skip
    assert max(gains) > 0
