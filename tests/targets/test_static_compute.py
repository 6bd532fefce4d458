"""FLOPs and bytes of torch modules, held to what they must be by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")

import torch  # noqa: E402

from nsight_prof.targets.static_compute import Count, main, stored  # noqa: E402


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
    assert linear["activation_bytes"] == 32 * 4 * (10 + 3 * 2)


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


class Packed(torch.nn.Module):  # type: ignore[misc]
    """A linear layer as AWQ keeps it: 8 values in an int32, a scale and a zero for each group."""

    def __init__(self, inputs: int, outputs: int, group: int) -> None:
        super().__init__()
        self.in_features, self.out_features = inputs, outputs
        half = torch.float16
        self.register_buffer("qweight", torch.zeros(inputs, outputs // 8, dtype=torch.int32))
        self.register_buffer(
            "qzeros", torch.zeros(inputs // group, outputs // 8, dtype=torch.int32)
        )
        self.register_buffer("scales", torch.zeros(inputs // group, outputs, dtype=half))

    def forward(self, x: Any) -> Any:
        return x.new_zeros(*x.shape[:-1], self.out_features)  # its kernel is none of torch's


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}


def test_a_packed_layer_has_the_flops_of_its_sizes_and_all_that_it_holds() -> None:
    model = torch.nn.Sequential(Packed(256, 512, 128), torch.nn.Linear(512, 8, dtype=torch.float16))
    with torch.inference_mode(), Count(model) as count:
        count.enter("forward")
        model(torch.zeros(3, 256, dtype=torch.float16))
    found = count.result({})
    (forward,) = found["stages"]
    assert forward["flops"] == 2 * 3 * (256 * 512 + 512 * 8)
    packed = 256 * 512 // 2 + 2 * 512 // 2 + 2 * 512 * 2
    assert forward["weight_bytes"] == packed + 2 * (512 * 8 + 8)
    assert found["parameters"] == 256 * 512 + 512 * 8 + 8
    assert found["quantization"] == "Packed"
    # The same layer in 16 bits, by what the checkpoint says of itself.
    whole = torch.nn.Sequential(torch.nn.Linear(256, 512, bias=False), torch.nn.Linear(512, 8))
    kept = stored({"quantization_config": AWQ | {"modules_to_not_convert": ["1"]}})
    with torch.inference_mode(), Count(whole, kept) as count:
        count.enter("forward")
        whole(torch.zeros(3, 256))
    found = count.result({})
    (forward,) = found["stages"]
    assert forward["weight_bytes"] == 4 * (256 * 512 + 512 * 8 + 8)
    assert forward["stored_bytes"] == packed + 4 * (512 * 8 + 8)
    assert found["quantization"] == "awq"


@pytest.mark.parametrize(
    ("given", "bits"),
    [
        (AWQ, 4 + 20 / 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, 4 + 16 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": False}, 8),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 128**2),
        ({"quant_method": "fp8", "activation_scheme": "static"}, 8),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8),
    ],
)
def test_bits_of_a_value_with_its_part_of_the_scales(given: dict[str, Any], bits: float) -> None:
    found = stored({"quantization_config": given})
    assert found is not None
    assert found.value_bytes == pytest.approx(bits / 8)


@pytest.mark.parametrize("config", [{}, {"quantization_config": {"quant_method": "aqlm"}}])
def test_what_is_not_known_is_not_made_up(config: dict[str, Any]) -> None:
    assert stored(config) is None
