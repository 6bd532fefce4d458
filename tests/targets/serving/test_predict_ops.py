"""Runs predict_ops.py where no GPU is: which cases there are, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from nsight_prof.targets.harness import Setup
from nsight_prof.targets.serving import op_calls, op_shapes, predict_ops

torch: Any = pytest.importorskip("torch")


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert predict_ops.main(["--device", "cpu", "--list", *words]) == 0
    return capsys.readouterr().out.split()


def test_cases_are_those_of_the_model_and_of_as_many_ranks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    alone = listed(capsys, "--model", "llama-3.1-8b")
    assert not [name for name in alone if name.startswith("collective")]
    split = listed(capsys, "--model", "llama-3.1-8b", "--ranks", "2")
    assert set(alone) < set(split)
    few = listed(capsys, "--model", "llama-3.1-8b", "--most-tokens", "64", "--families", "product")
    assert "product/lm_head/t64|cold|normal" in few
    assert not [name for name in few if "/t128|" in name]


def test_small_operators_are_those_that_are_called() -> None:
    assert set(predict_ops.SMALL) == set(op_calls.SMALL)


def test_without_a_gpu_each_case_says_why_it_is_not_measured(tmp_path: Path) -> None:
    out = tmp_path / "records.jsonl"
    words = ["--device", "cpu", "--only", "qkv_proj/t8[|]", "--out", str(out)]
    assert predict_ops.main(["--model", "qwen3-8b", *words]) == 0
    conditions, case = map(json.loads, out.read_text().splitlines())
    assert (conditions["target"], case["status"]) == ("predict_ops", "unsupported")
    assert "GPU" in case["reason"]
    assert case["params"]["n"] == (32 + 2 * 8) * 128


def test_compiled_operators_leave_the_number_of_tokens_alone_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As vLLM compiles them: with all sizes open indices are divided by unknown numbers."""
    free: list[int] = []

    def backend(module: Any, inputs: list[Any]) -> Callable[..., Any]:
        free.append(sum(isinstance(value, torch.SymInt) for value in inputs))
        return module.forward  # type: ignore[no-any-return]

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    monkeypatch.setattr(op_calls, "_compiled", op_calls._compiled.__wrapped__)
    decoder, setup = (
        op_shapes.Decoder(64, 4, 2, 16, 96, 128, False),
        Setup("cpu", 1, "normal", 0, 0),
    )
    for tokens in (8, 6):
        for name in ("norm", "silu_mul", "rotary"):
            _, calls = op_calls.SMALL[name](setup, decoder, tokens)
            calls[0]()
    assert free == [1, 1, 1]
