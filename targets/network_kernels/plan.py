"""Which cases to make: families, variants and the sizes that are swept, for a GPU and for a CPU."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, field

FAMILIES = (
    "conv", "depthwise", "linear", "attention", "lstm", "norm", "softmax", "pooling",
    "elementwise", "fused", "fine", "side-by-side", "network",
)  # fmt: skip
VARIANTS = ("eager", "graph", "compiled-graph")
"""As those of llm_kernels; a network is also compiled whole."""

BATCHES = (1, 8, 32, 128)
FEWER = (8, 32)
"""Batches of what is swept beside bf16 in the layout channels-last."""

# (channels, filters, size, kernel, stride): every convolution of a ResNet-50 (He et al., arXiv
# 1512.03385, table 1, the stride in the 3x3), and squares of other widths.
RESNET = (
    (3, 64, 224, 7, 2),
    (64, 64, 56, 1, 1), (64, 64, 56, 3, 1), (64, 256, 56, 1, 1), (256, 64, 56, 1, 1),
    (256, 128, 56, 1, 1), (128, 128, 56, 3, 2), (128, 512, 28, 1, 1), (256, 512, 56, 1, 2),
    (512, 128, 28, 1, 1), (128, 128, 28, 3, 1),
    (512, 256, 28, 1, 1), (256, 256, 28, 3, 2), (256, 1024, 14, 1, 1), (512, 1024, 28, 1, 2),
    (1024, 256, 14, 1, 1), (256, 256, 14, 3, 1),
    (1024, 512, 14, 1, 1), (512, 512, 14, 3, 2), (512, 2048, 7, 1, 1), (1024, 2048, 14, 1, 2),
    (2048, 512, 7, 1, 1), (512, 512, 7, 3, 1),
)  # fmt: skip
OTHERS = ((96, 96, 56, 3, 1), (192, 192, 28, 3, 1), (96, 576, 14, 1, 1))
# (size of the image, patch, hidden): the first layer of a ViT (Dosovitskiy et al., 2010.11929).
PATCHES = ((224, 16, 768), (224, 32, 768))
# (channels, size, stride): MobileNetV2 (Sandler et al., arXiv 1801.04381, table 2).
DEPTHWISE = ((32, 112, 1), (144, 56, 1), (144, 56, 2), (384, 14, 1), (960, 7, 1))
# Widths of ViT-B and L (arXiv 2010.11929, table 1).
HIDDEN = (768, 1024)
TOKENS = tuple(197 * batch for batch in BATCHES)
"""A ViT sees (224 / 16)^2 patches of an image and one more token."""
HEADS = ((1000, 768), (1000, 2048), (8192, 512), (16384, 2048))
"""(classes or words, inputs)."""
HEAD_ROWS = (1, 32, 1024)
# (heads, tokens): ViT-B and L at 224 pixels, ViT-B at 384.
ATTENTION = ((12, 197), (16, 197), (12, 577))
# (hidden, layers, batch, steps)
LSTMS = (
    *((hidden, layers, batch, 32) for hidden in (256, 512, 1024, 2048)
      for layers in (1, 2) for batch in (1, 16, 64)),
    *((hidden, 2, batch, 32) for hidden in (768, 900, 1250) for batch in (1, 16, 64)),
    (1024, 2, 16, 8), (1024, 2, 16, 128),
)  # fmt: skip
# (channels, pixels): after the convolutions of a ResNet-50.
IMAGES = ((64, 112**2), (64, 56**2), (256, 56**2), (128, 56**2), (128, 28**2), (512, 28**2),
          (256, 28**2), (256, 14**2), (1024, 14**2), (512, 14**2), (512, 7**2),
          (2048, 7**2))  # fmt: skip
GROUPED = ((256, 56**2), (512, 28**2), (1024, 14**2))
NORM_COLUMNS = (768, 1024, 4096)
SOFTMAX = ((128, 65536), (197, 18912), (1024, 4096), (1024, 65536), (8192, 512), (65536, 64))
"""(columns, rows)."""
ELEMENTS = tuple(1 << power for power in range(12, 28, 2))
FINE_CONVOLUTION, FINE_BATCHES = (256, 256, 14, 3, 1), tuple(range(1, 41))
FINE_ELEMENTS = tuple(megabytes << 19 for megabytes in range(32, 72))
"""Evenly spaced, so that an oscillation of the time shows: batches, and MiB of bf16 to copy."""
EMBEDDINGS = ((512, 64), (512, 8192), (2048, 64), (2048, 8192))
"""(width, tokens)."""


@dataclass(frozen=True)
class Plan:
    """Which cases to make; `tiny`: sizes for a CPU, `device`: "cuda" or "cpu"."""

    families: tuple[str, ...]
    variants: tuple[str, ...]
    batches: tuple[int, ...] = field(default=BATCHES)
    tiny: bool = False
    device: str = "cuda"


def make_plan(args: Namespace) -> Plan:
    """Turn the parsed options into a plan; a CPU gets tiny sizes."""
    tiny = str(args.device).startswith("cpu")
    batches = tuple(sorted(args.batches or ((1, 2) if tiny else BATCHES)))
    families, variants = tuple(args.families or FAMILIES), tuple(args.variants or VARIANTS)
    return Plan(families, variants, batches, tiny, str(args.device))
