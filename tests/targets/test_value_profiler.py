"""The recorder of values: it changes nothing, and says what operators repeat and leave unread."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nsight_prof.parsers.torch.values import read_values

torch = pytest.importorskip("torch", reason="the recorder runs in an interpreter that has torch")

RECORDER = Path(__file__).parents[2] / "targets" / "value_profiler" / "run.py"


class Ran:
    """What a script under the recorder did, and what was recorded."""

    def __init__(self, folder: Path, script: str, *options: str) -> None:
        self.file, out = folder / "script.py", folder / "out" / "values.jsonl.gz"
        self.file.write_text(textwrap.dedent(script), encoding="utf-8")
        self._folder = folder
        command = [str(RECORDER), "--out", str(out), *options, "--", str(self.file)]
        self.recorded = self._run(command, folder)
        self.values, self.profile = pd.DataFrame(), pd.DataFrame()
        if out.is_file():
            self.values, self.profile = read_values(out)

    @cached_property
    def alone(self) -> subprocess.CompletedProcess[str]:
        """What it does without the recorder."""
        return self._run([str(self.file)], self._folder)

    @staticmethod
    def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False
        )

    def row(self, operator: str, line: str) -> pd.Series:
        """The row of an operator on the line with a comment."""
        text = self.file.read_text("utf-8").splitlines()
        (number,) = (at for at, content in enumerate(text, 1) if f"# {line}" in content)
        found = self.values[(self.values["operator"] == operator) & (self.values["line"] == number)]
        (row,) = (row for _, row in found.iterrows())
        return row


TRAINING = """
    import sys, torch
    from torch import nn
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.GELU(), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(net.parameters())
    frozen = torch.randn(16, 16)
    for step in range(3):
        x = torch.randn(8, 16) @ frozen.cos()  # again
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        unread = x.exp()  # unread
        print(loss.item().hex(), torch.rand(1).item().hex())
    for parameter in net.parameters():
        print([value.hex() for value in parameter.flatten().tolist()])
    sys.exit(7)
"""


def test_a_training_computes_the_same_bits_and_exits_the_same(tmp_path: Path) -> None:
    ran = Ran(tmp_path, TRAINING)
    assert (ran.recorded.returncode, ran.recorded.stderr) == (7, ran.alone.stderr)
    assert ran.recorded.stdout == ran.alone.stdout
    again, unread = ran.row("aten::cos", "again"), ran.row("aten::exp", "unread")
    assert (again["calls"], again["distinct_inputs"], again["distinct_results"]) == (3, 1, 1)
    assert (unread["calls"], unread["distinct_inputs"]) == (3, 3)
    assert ran.profile["ended"].item() == "program"


WINDOW = """
    import numpy, os, torch
    torch.ones(2) + 1  # before
    torch.cuda.profiler.start()
    a = torch.arange(64.0).exp()  # memory is given away
    a.data_ptr()
    b = torch.arange(64.0).sin()  # numpy reads
    numpy.asarray(b[:16])
    c = torch.arange(64.0).tan()  # index reads
    c[torch.tensor([3, 4])].sum()
    d = torch.arange(64.0).neg()  # lives on
    del a, b, c
    torch.cuda.profiler.stop()
    d + 1  # behind
    if os.fork() == 0:
        torch.ones(3).sum()
        os._exit(0)
    os.wait()
"""


def test_the_profiler_api_bounds_what_is_recorded_and_known(tmp_path: Path) -> None:
    ran = Ran(tmp_path, WINDOW, "--capture", "profiler-api")
    assert ran.recorded.returncode == 0, ran.recorded.stderr
    assert pd.isna(ran.row("aten::exp", "memory is given away")["results_read"])
    assert ran.row("aten::sin", "numpy reads")["results_read"] == 16 / 64
    assert ran.row("aten::tan", "index reads")["results_read"] == 2 / 64
    assert pd.isna(ran.row("aten::neg", "lives on")["results_read"])
    assert not ran.values["operator"].isin(["aten::ones", "aten::add"]).any()
    assert ran.profile["ended"].item() == "profiler-api"


COMPILED = """
    import torch
    from torch.nn import functional as F
    torch.manual_seed(0)
    compiled = torch.compile(lambda x: (x.sin() * x.cos()).sum(), backend="aot_eager")
    x = torch.randn(32, 64)
    print(compiled(x).item().hex(), compiled(x + 1).item().hex())
    torch.sparse.mm(torch.eye(64).to_sparse(), x.T)
    with torch.inference_mode():
        q = torch.randn(1, 2, 8, 16)
        print(F.linear(x, torch.ones(3, 64)).sum().item().hex())  # taken apart
        print(F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().item().hex())
    raise ValueError("the program failed")
"""


def test_a_program_that_compiles_and_fails_is_recorded_as_far_as_it_came(tmp_path: Path) -> None:
    ran = Ran(tmp_path, COMPILED)
    assert ran.recorded.returncode == 1
    assert "ValueError: the program failed" in ran.recorded.stderr
    assert ran.recorded.stdout == ran.alone.stdout
    assert ran.row("aten::mm", "taken apart")["calls"] == 1
    missed = ran.profile["not_recorded"].item()
    assert '"compiled": 1' in missed
    assert '"sparse or nested"' in missed
    assert ran.profile["error"].item() == ""


def test_nothing_recorded_is_an_error_of_the_step(tmp_path: Path) -> None:
    ran = Ran(tmp_path, "print('no operator')", "--capture", "profiler-api")
    assert ran.recorded.returncode == 1
    assert "called no operator of torch" in ran.recorded.stderr


def hashed(*tensors: Any) -> list[tuple[int, ...]]:
    from nsight_prof.targets.value_profiler.hashes import Hashes

    hashes = Hashes()
    slots = [hashes.write(tensor) for tensor in tensors]
    numbers = hashes.read()
    return [tuple(numbers[device][at] for device, at in slot) for slot in slots]


@pytest.mark.parametrize("count", [1, 3, 1000, 70_000, 200_000])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "complex64", "float64"])
def test_equal_values_alone_have_equal_hashes(count: int, dtype: str) -> None:
    values = (torch.arange(count) * 7919 % 1009).to(getattr(torch, dtype))
    other = values.clone()
    other[0] = ~other[0] if dtype == "bool" else other[0] + 1
    first, again, changed, turned = hashed(values, values.clone(), other, values.flip(0))
    assert first == again != changed
    assert (turned == first) == torch.equal(values.flip(0), values)


def test_the_layout_of_a_small_tensor_is_no_value() -> None:
    values = torch.arange(24.0).view(4, 6)
    expanded = torch.ones(1, 6).expand(4, 6)
    first, turned, spread = hashed(values, values.t().contiguous().t(), expanded)
    assert first == turned
    assert spread == hashed(torch.ones(1, 6))[0]
    constant = hashed(torch.zeros(8), torch.ones(8), torch.full((8,), -1.0))
    assert len(set(constant)) == 3
