"""What torch 2.13 told on stderr under TORCH_LOGS=recompiles, as it stood there."""

from pathlib import Path

from nsight_prof.parsers.torch.recompilations import read_recompilations

HEAD = "V1126 22:48:14.981000 18247 torch/_dynamo/guards.py:5396] [0/{n}] [__recompiles] "
HINT = "(HINT: torch.compile considers integer attributes of the nn.Module to be static.)"
BLOCK = f"""\
Recompiling function forward in /a/p.py:13
    triggered by the following guard failure(s):
    - 0/{{n}}: self.calls == {{n}}      # self.calls += 1  # mp/lines/p.py:14 in forward {HINT}
    - User stack trace:
    -   File "/a/p.py", line 14, in forward
    -     self.calls += 1
    - 0/0: self.calls == 0        # self.calls += 1  # mp/lines/p.py:14 in forward
    - User stack trace:
    -   File "/a/p.py", line 99, in other
    -     other()
"""
SHAPE = """\
Recompiling function step in /a/p.py:40
    triggered by the following guard failure(s):
    - 1/0: tensor 'x' size mismatch at index 0. expected 8, actual 9
"""


def test_the_first_guard_names_the_line(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    told = [
        HEAD.format(n=n) + line
        for n, block in enumerate([BLOCK, BLOCK, SHAPE, BLOCK])
        for line in block.format(n=n).splitlines()
    ]
    log.write_text("\n".join(["a warning of the program", *told, "Generating report"]))
    first, second = read_recompilations(log).itertuples()
    assert (first.file, first.line, first.function) == ("/a/p.py", 14, "forward")
    assert (first.source, first.guard, first.compilations) == (
        "self.calls += 1", "self.calls == 3", 3,
    )  # fmt: skip
    assert (second.line, second.function, second.compilations) == (40, "step", 1)
    assert second.guard == "tensor 'x' size mismatch at index 0. expected 8, actual 9"


def test_a_log_that_tells_nothing_or_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_bytes(b"\xff\xfe nothing\n[__recompiles]")
    assert read_recompilations(tmp_path / "stderr.log").empty
    assert read_recompilations(tmp_path / "none.log").empty
