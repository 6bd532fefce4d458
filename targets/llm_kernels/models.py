"""Sizes of public models and of the layers that they are made of, with their sources."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """A decoder with grouped-query attention and a gated MLP.

    Attributes:
        key: name on the command line and in case names.
        source: the repository on huggingface.co whose config.json holds the sizes.
        hidden: width of the residual stream.
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: width of one head.
        intermediate: width of the gated MLP.
        vocab: rows of the embedding and of the head.
        ranks: ranks of tensor parallelism that share a layer; the sizes of the projections are
            those of one rank (column-parallel QKV and gate/up, row-parallel out and down, as in
            Megatron-LM, arXiv 1909.08053).
    """

    key: str
    source: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    ranks: int = 1

    def projections(self) -> dict[str, tuple[int, int]]:
        """Return the linear layers as {name: (n outputs, k inputs)} of one rank."""
        heads, kv_heads = self.heads // self.ranks, self.kv_heads // self.ranks
        inner = self.intermediate // self.ranks
        return {
            "qkv": ((heads + 2 * kv_heads) * self.head_dim, self.hidden),
            "out": (self.hidden, heads * self.head_dim),
            "gate-up": (2 * inner, self.hidden),
            "down": (self.hidden, inner),
            "head": (self.vocab // self.ranks, self.hidden),
        }


MODELS = {
    model.key: model
    for model in (
        Model("llama-3.1-8b", "meta-llama/Llama-3.1-8B", 4096, 32, 8, 128, 14336, 128256),
        Model("llama-3.1-70b", "meta-llama/Llama-3.1-70B", 8192, 64, 8, 128, 28672, 128256),
        Model("qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B", 896, 14, 2, 64, 4864, 151936),
        Model("qwen2.5-7b", "Qwen/Qwen2.5-7B", 3584, 28, 4, 128, 18944, 152064),
        Model("mistral-7b-v0.3", "mistralai/Mistral-7B-v0.3", 4096, 32, 8, 128, 14336, 32768),
        Model("llama-3.1-70b-tp8", "meta-llama/Llama-3.1-70B", 8192, 64, 8, 128, 28672, 128256, 8),
        Model("tiny", "no model: sizes for tests on a CPU", 64, 4, 2, 16, 128, 256),
    )
}
DEFAULT_MODELS = ("llama-3.1-8b", "llama-3.1-70b", "qwen2.5-0.5b", "qwen2.5-7b", "mistral-7b-v0.3")
REFERENCE = "llama-3.1-8b"
"""The model whose sizes the operations other than linear layers take, where it is asked for."""


@dataclass(frozen=True)
class Convolution:
    """A 2-D convolution with square images and kernels; `padding` keeps size / stride.

    Attributes:
        key: name in case names.
        source: where the layer comes from.
        batch: images.
        channels: input channels.
        filters: output channels.
        size: rows and columns of the input.
        kernel: rows and columns of the kernel.
        stride: step in both directions.
    """

    key: str
    source: str
    batch: int
    channels: int
    filters: int
    size: int
    kernel: int
    stride: int = 1

    @property
    def padding(self) -> int:
        """Rows and columns of zeros on each side."""
        return self.kernel // 2

    @property
    def output(self) -> int:
        """Rows and columns of the output."""
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1


_RESNET = "ResNet-50, He et al. 2015 (arXiv 1512.03385), table 1"
CONVOLUTIONS = (
    Convolution("resnet50-stem", _RESNET, 32, 3, 64, 224, 7, 2),
    Convolution("resnet50-conv2", _RESNET, 32, 64, 64, 56, 3),
    Convolution("resnet50-conv4", _RESNET, 32, 256, 256, 14, 3),
)
TINY_CONVOLUTION = Convolution("tiny", "no model: sizes for tests on a CPU", 2, 4, 8, 8, 3)
