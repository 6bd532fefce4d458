"""FLOPs and bytes of the operations of a transformer: worked by hand, and against torch."""

from __future__ import annotations

import pytest

from nsight_prof.targets.harness import Work
from nsight_prof.targets.llm_kernels import formulas
from nsight_prof.targets.llm_kernels.models import CONVOLUTIONS, MODELS


def test_linear_by_hand() -> None:
    # (2, 3) x (3, 4): 8 outputs of 3 multiply-adds; 6 + 12 inputs and 8 outputs of 2 bytes.
    assert formulas.linear(2, 4, 3, 2) == Work(flops=48.0, bytes=52.0)
    # fp8 in, bf16 out: 18 bytes in, 16 out.
    assert formulas.linear(2, 4, 3, 1, 2) == Work(flops=48.0, bytes=34.0)
    assert formulas.batched(5, 2, 4, 3, 2) == Work(flops=240.0, bytes=260.0)


def test_pairs_of_a_causal_mask_are_those_of_the_mask() -> None:
    for queries, keys in ((1, 1), (1, 7), (4, 4), (3, 8)):
        mask = sum(1 for i in range(queries) for j in range(keys) if j <= keys - queries + i)
        assert formulas.attended_pairs(queries, keys, causal=True) == mask
        assert formulas.attended_pairs(queries, keys, causal=False) == queries * keys


def test_attention_by_hand() -> None:
    # One sequence, 2 query heads on 1 KV head, 3 positions, width 4, causal: 6 pairs a head.
    work = formulas.attention(1, 2, 1, 3, 3, 4, True, 2)
    assert work.flops == 2 * 6 * (2 * 4 + 2 * 4)
    # Q and the output: 2 heads x 3 x 4 each; K and V: 1 head x 3 x 4 each.
    assert work.bytes == (2 * 24 + 2 * 12) * 2


def test_kv_cache_bytes_of_a_decode_step() -> None:
    # Llama-3.1-8B: 2 x 8 x 128 x 2 B = 4096 B a position and layer (its 32 layers: 128 KiB).
    m = MODELS["llama-3.1-8b"]
    step = [
        formulas.attention(1, m.heads, m.kv_heads, 1, keys, m.head_dim, False, 2).bytes or 0
        for keys in (1000, 1001)
    ]
    assert step[1] - step[0] == 4096


@pytest.mark.parametrize(
    ("work", "flops", "moved"),
    [
        (formulas.softmax(2, 10, 2), 100.0, 80.0),
        (formulas.rms_norm(3, 8, 2), 96.0, (24 + 24 + 8) * 2.0),
        (formulas.add_rms_norm(3, 8, 2), 120.0, (4 * 24 + 8) * 2.0),
        (formulas.layer_norm_gelu(3, 8, 2), 288.0, (48 + 16) * 2.0),
        (formulas.silu_mul(3, 8, 2), 120.0, 144.0),
        # 2 tokens, 3 heads of 4: 12 pairs of 6 FLOPs; 24 values in and out, 4 angles a token.
        (formulas.rotary(2, 3, 4, 2), 72.0, (48 + 8) * 2.0),
        (formulas.embedding(2, 8, 2), None, 2 * (8 + 16 + 16.0)),
        (formulas.sample_top_k(2, 100, 4), None, 2 * (400 + 8.0)),
        # One image of 2 x 4 x 4, 3 filters of 2 x 3 x 3, padded: 48 outputs of 18 multiply-adds.
        (formulas.conv2d(1, 2, 3, 16, 16, 9, 2), 48 * 36.0, (32 + 54 + 48) * 2.0),
        # 2 steps of 3 sequences, 4 inputs, 5 hidden: 4 gates x 5 x 9 multiply-adds a sequence.
        (formulas.lstm(2, 3, 4, 5, 2), 2 * 3 * 2 * 180.0, (180 + 40 + 54 + 60) * 2.0),
    ],
)
def test_other_operations_by_hand(work: Work, flops: float | None, moved: float) -> None:
    assert work.flops == flops
    assert work.bytes == moved


def test_flops_agree_with_torchs_counter() -> None:
    """Where torch counts rightly: products, convolutions, attention without mask or groups."""
    torch = pytest.importorskip("torch")
    from torch.nn import functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    def count(function: object) -> float:
        # The fused attention of a CPU has no formula there; the math back end is two products.
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            function()  # type: ignore[operator]
        return float(counter.get_total_flops())

    x, w = torch.randn(5, 7), torch.randn(3, 7)
    assert count(lambda: F.linear(x, w)) == formulas.linear(5, 3, 7, 4).flops
    a, b = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    assert count(lambda: torch.bmm(a, b)) == formulas.batched(2, 3, 5, 4, 4).flops
    image, filters = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    assert (
        count(lambda: F.conv2d(image, filters, None, 2, 1))
        == formulas.conv2d(2, 3, 4, 64, 16, 9, 4).flops
    )
    q = torch.randn(2, 3, 16, 8)
    attended = count(lambda: F.scaled_dot_product_attention(q, q, q))
    assert attended == formulas.attention(2, 3, 3, 16, 16, 8, False, 4).flops
    # It takes all pairs of a causal mask, of which 16 x 17 / 2 of 256 are scored.
    causal = count(lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True))
    ours = formulas.attention(2, 3, 3, 16, 16, 8, True, 4).flops or 0
    assert ours / causal == pytest.approx(17 / 32)


def test_weights_of_a_layer_add_up_to_the_published_parameters() -> None:
    """8.03, 70.6, 0.494, 7.62 and 7.25 billion, as the model cards say; tied heads once."""
    for key, layers, tied, billions in (
        ("llama-3.1-8b", 32, False, 8.03),
        ("llama-3.1-70b", 80, False, 70.6),
        ("qwen2.5-0.5b", 24, True, 0.494),
        ("qwen2.5-7b", 28, False, 7.62),
        ("mistral-7b-v0.3", 32, False, 7.25),
    ):
        sizes = {name: n * k for name, (n, k) in MODELS[key].projections().items()}
        layer = sum(size for name, size in sizes.items() if name != "head")
        total = layers * layer + sizes["head"] * (1 if tied else 2)
        assert total / 1e9 == pytest.approx(billions, rel=2e-3), key


def test_ranks_share_a_layer() -> None:
    whole, rank = (MODELS[key].projections() for key in ("llama-3.1-70b", "llama-3.1-70b-tp8"))
    for name, (n, k) in whole.items():
        assert rank[name][0] * rank[name][1] * 8 == n * k, name


def test_convolution_sizes_are_those_of_the_paper() -> None:
    assert [layer.output for layer in CONVOLUTIONS] == [112, 56, 14]
