"""FLOPs and bytes of torch modules, held to what they must be by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")

import torch  # noqa: E402

from nsight_prof.targets.static_compute import Count, main  # noqa: E402


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(100, 8)
        self.up = torch.nn.Linear(8, 32, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.up(self.table(tokens))
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


def test_each_stage_has_its_flops_and_the_weights_that_it_reads() -> None:
    model, tokens = Model(), torch.zeros(2, 5, dtype=torch.long)
    with torch.inference_mode(), Count(model) as count:
        count.enter("prefill")
        model(tokens)
        for _ in range(3):
            count.enter("decode")
            model(tokens[:, :1])
            count.add_cache([torch.zeros(4, 3)])
    found = count.result({"model": "toy"})
    prefill, decode = found["stages"]
    up = 8 * 32 * 4
    # 2 for a multiplication and an addition; QK and PV of 2 sequences, 5 x 5 pairs of width 32.
    assert prefill["flops"] == 2 * 10 * 8 * 32 + 2 * (2 * 2 * 5 * 5 * 32)
    assert prefill["weight_bytes"] == up + 10 * 8 * 4
    assert decode == {
        "stage": "decode",
        "calls": 3,
        "flops": 3 * (2 * 2 * 8 * 32 + 2 * (2 * 2 * 32)),
        "weight_bytes": 3 * (up + 2 * 8 * 4),
        "kv_bytes": 3 * 12 * 4,
    }
    assert found["parameters"] == 100 * 8 + 8 * 32
    linear = next(row for row in found["modules"] if row["module"] == "up")
    assert linear["flops"] == 2 * 8 * 32 * (10 + 3 * 2)


def test_any_module_is_counted_on_the_meta_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Larger than the memory of the machine: shapes alone are made.
    text = "import torch\n\ndef make():\n    linear = torch.nn.Linear(1 << 20, 1 << 20)\n"
    (tmp_path / "mine.py").write_text(f"{text}    return linear, (torch.empty(1, 1 << 20),)\n")
    assert main([f"{tmp_path / 'mine.py'}:make", "--out", str(tmp_path / "out.json")]) == 0
    assert json.loads(capsys.readouterr().out)["flops"] == 2 << 40
    assert json.loads((tmp_path / "out.json").read_text())["device"] == "meta"
    assert main([f"{tmp_path / 'mine.py'}:other"]) == 1
    assert "hint: " in capsys.readouterr().err
