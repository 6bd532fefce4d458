"""Three networks in plain torch with made-up weights: a ResNet-50, a ViT-B/16 and an LSTM model.

Each function returns a module and the tuple of its inputs, as targets/static_compute.py takes them:

    python static_compute.py network_kernels/networks.py:resnet50 --out resnet-50.json
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from nsight_prof.targets.network_kernels.operations import CHANNELS_FIRST, CHANNELS_LAST

Made = tuple[nn.Module, tuple[Any, ...]]


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 with a shortcut; the stride is in the 3x3, as torchvision has it (v1.5)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        made = 4 * width
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, made, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(made)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module | None = None
        if stride > 1 or channels != made:
            shortcut = nn.Conv2d(channels, made, 1, stride, bias=False)
            self.shortcut = nn.Sequential(shortcut, nn.BatchNorm2d(made))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a block of images from (images, channels, rows, columns)."""
        kept = x if self.shortcut is None else self.shortcut(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        x = self.bn3(self.conv3(x))
        x += kept
        return self.relu(x)


class ResNet(nn.Module):
    """He et al. (arXiv 1512.03385), table 1: a stem, four groups of bottlenecks, a head."""

    def __init__(self, blocks: tuple[int, ...], width: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(3, 2, 1)
        made, channels = [], width
        for group, count in enumerate(blocks):
            inner = width << group
            for block in range(count):
                made.append(Bottleneck(channels, inner, 2 if group and not block else 1))
                channels = 4 * inner
        self.blocks = nn.Sequential(*made)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits (images, classes)."""
        x = self.pool(self.relu(self.bn(self.stem(images))))
        return self.head(torch.flatten(self.average(self.blocks(x)), 1))


class EncoderLayer(nn.Module):
    """A layer of a ViT: attention and MLP, each behind a LayerNorm."""

    def __init__(self, hidden: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a layer of (images, tokens, hidden)."""
        images, tokens, hidden = x.shape
        qkv = self.qkv(self.norm1(x)).view(images, tokens, 3, self.heads, hidden // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x = x + self.out(attended.reshape(images, tokens, hidden))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class VisionTransformer(nn.Module):
    """Dosovitskiy et al. (arXiv 2010.11929), table 1: patches, encoder layers, a head."""

    def __init__(self, size: int, patch: int, hidden: int, layers: int, heads: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, hidden))
        self.positions = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, hidden))
        made = [EncoderLayer(hidden, heads, 4 * hidden) for _ in range(layers)]
        self.layers, self.norm = nn.Sequential(*made), nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, 1000)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits (images, classes)."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(len(x), -1, -1), x), 1) + self.positions
        return self.head(self.norm(self.layers(x))[:, 0])


class LanguageModel(nn.Module):
    """Zaremba et al. (arXiv 1409.2329), section 4.1: embedding, LSTM, logits of every position."""

    def __init__(self, vocab: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.lstm = nn.LSTM(hidden, hidden, layers)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits (steps, batch, vocab) of (steps, batch)."""
        return self.head(self.lstm(self.embedding(tokens))[0])


@dataclass(frozen=True)
class Network:
    """A network that is measured whole.

    Attributes:
        key: name in case names, and of its bundled list of operations.
        make: returns the module on torch's default device, weights in FP32.
        inputs: of so many images or sequences: their shape, and the highest integer, 0 for floats.
        dtype: of weights and activations.
        layout: order of images in memory; "" where there are none.
        batches: measured.
        compiles: torch.compile makes kernels of it; cuDNN's LSTM stays what it is.
    """

    key: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[tuple[int, ...], int]]
    dtype: torch.dtype
    layout: str
    batches: tuple[int, ...]
    compiles: bool = False

    def made(self, batch: int) -> Made:
        """Return the network on torch's default device with its inputs, ready for inference."""
        module = self.make().to(self.dtype).eval().requires_grad_(False)
        shape, highest = self.inputs(batch)
        data = torch.randint(highest, shape) if highest else torch.randn(shape, dtype=self.dtype)
        if self.layout == CHANNELS_LAST:
            module = module.to(memory_format=torch.channels_last)
            data = data.to(memory_format=torch.channels_last)
        return module, (data,)


def _images(batch: int) -> tuple[tuple[int, ...], int]:
    return (batch, 3, 224, 224), 0


def _language_model(key: str, hidden: int) -> Network:
    return Network(
        key, lambda: LanguageModel(10_000, hidden, 2), lambda batch: ((35, batch), 10_000),
        torch.float16, "", (1, 8, 20, 64),
    )  # fmt: skip


def _resnet50() -> nn.Module:
    return ResNet((3, 4, 6, 3), 64, 1000)


BF16 = torch.bfloat16
NETWORKS = {
    network.key: network
    for network in (
        Network("resnet-50", _resnet50, _images, BF16, CHANNELS_LAST, (1, 4, 16, 32, 64), True),
        Network("resnet-50-nchw", _resnet50, _images, BF16, CHANNELS_FIRST, (8, 16, 32)),
        Network("resnet-50-tf32", _resnet50, _images, torch.float32, CHANNELS_LAST, (8, 16, 32)),
        Network(
            "vit-b-16", lambda: VisionTransformer(224, 16, 768, 12, 12), _images, BF16,
            CHANNELS_FIRST, (1, 4, 16, 32, 64), True,
        ),
        _language_model("lstm-medium", 650),
        _language_model("lstm-large", 1500),
    )
}  # fmt: skip
TINY_NETWORKS = {
    network.key: network
    for network in (
        Network("tiny-resnet", lambda: ResNet((1, 1), 8, 10), lambda batch: ((batch, 3, 32, 32), 0),
                torch.float32, CHANNELS_LAST, (1, 2)),
        Network("tiny-vit", lambda: VisionTransformer(32, 16, 16, 1, 2),
                lambda batch: ((batch, 3, 32, 32), 0), torch.float32, CHANNELS_FIRST, (1, 2)),
        Network("tiny-lstm", lambda: LanguageModel(16, 8, 2), lambda batch: ((4, batch), 16),
                torch.float32, "", (1, 2)),
    )
}  # fmt: skip


def resnet50() -> Made:
    """Return ResNet-50 for one image, channels last."""
    return NETWORKS["resnet-50"].made(1)


def resnet50_nchw() -> Made:
    """Return ResNet-50 for one image in torch's own order."""
    return NETWORKS["resnet-50-nchw"].made(1)


def resnet50_tf32() -> Made:
    """Return ResNet-50 for one image in FP32, whose convolutions torch computes in TF32."""
    return NETWORKS["resnet-50-tf32"].made(1)


def vit_b16() -> Made:
    """Return ViT-B/16 for one image."""
    return NETWORKS["vit-b-16"].made(1)


def lstm_medium() -> Made:
    """Return the medium LSTM language model for one sequence."""
    return NETWORKS["lstm-medium"].made(1)


def lstm_large() -> Made:
    """Return the large LSTM language model for one sequence."""
    return NETWORKS["lstm-large"].made(1)
