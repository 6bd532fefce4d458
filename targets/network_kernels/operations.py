"""One operation of a network, its sizes and its work: what sweeps and lists of networks share.

FLOPs and bytes follow the conventions of targets/llm_kernels/formulas.py: a multiply-add counts as
two FLOPs, in other operations each +, -, *, /, comparison, exp, erf and rsqrt as one; bytes are
compulsory. Those of the weights stand by themselves, since they do not grow with the batch and, in
a network, are what the L2 cache has not seen lately.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nsight_prof.targets.harness import Work
from nsight_prof.targets.llm_kernels import formulas

CHANNELS_LAST, CHANNELS_FIRST = "channels-last", "channels-first"


@dataclass(frozen=True)
class Operation:
    """An operation; `rows` is what grows with the batch, in proportion.

    Attributes:
        op: "conv2d", "linear", "relu", …
        rows: images of a convolution, tokens of a product, elements of an activation.
        sizes: the others, whose product with the rows need not mean anything.
        flops: of one call.
        activation_bytes: inputs read and outputs written.
        weight_bytes: parameters read.
        layout: order of images in memory; "" where there is none.
    """

    op: str
    rows: int
    sizes: Mapping[str, int] = field(default_factory=dict)
    flops: float = 0.0
    activation_bytes: float = 0.0
    weight_bytes: float = 0.0
    layout: str = ""

    @property
    def work(self) -> Work:
        """FLOPs and compulsory bytes."""
        return Work(flops=self.flops, bytes=self.activation_bytes + self.weight_bytes)


def _of(
    op: str, rows: int, sizes: Mapping[str, int], work: Work, weights: float, layout: str = ""
) -> Operation:
    moved = (work.bytes or 0.0) - weights
    return Operation(op, rows, sizes, work.flops or 0.0, moved, weights, layout)


def conv2d(
    images: tuple[int, int, int, int],
    weight: tuple[int, int, int, int],
    output: tuple[int, int],
    stride: int,
    element: int,
    layout: str,
) -> Operation:
    """Return a 2-D convolution without bias; `depthwise-conv2d` where each channel has its own.

    Args:
        images: images, channels, rows, columns.
        weight: filters, channels that each of them sees, rows, columns.
        output: rows, columns.
        stride: in both directions.
        element: bytes of an element.
        layout: of images and weight.
    """
    batch, channels, *size = images
    filters, depth, *kernel = weight
    areas = (size[0] * size[1], output[0] * output[1], kernel[0] * kernel[1])
    groups = channels // depth
    work = formulas.conv2d(batch, channels, filters, *areas, element, groups)
    sizes = {
        "channels": channels,
        "filters": filters,
        "size": size[0],
        "outputs": areas[1],
        "kernel": kernel[0],
        "stride": stride,
        "groups": groups,
    }
    op = "depthwise-conv2d" if groups == channels > 1 else "conv2d"
    return _of(op, batch, sizes, work, filters * depth * areas[2] * element, layout)


def linear(tokens: int, outputs: int, inputs: int, element: int) -> Operation:
    """Return y = x W^T; a bias is under a thousandth of the work and left out."""
    work = formulas.linear(tokens, outputs, inputs, element)
    return _of("linear", tokens, {"n": outputs, "k": inputs}, work, outputs * inputs * element)


def attention(
    batch: int, heads: int, queries: int, keys: int, head_dim: int, causal: bool, element: int
) -> Operation:
    """Return softmax(Q K^T) V of every head."""
    work = formulas.attention(batch, heads, heads, queries, keys, head_dim, causal, element)
    sizes = {
        "heads": heads,
        "queries": queries,
        "keys": keys,
        "head_dim": head_dim,
        "causal": int(causal),
    }
    return _of("attention", batch, sizes, work, 0.0)


def lstm(batch: int, steps: int, inputs: int, hidden: int, layers: int, element: int) -> Operation:
    """Return layers of an LSTM, the output of each being written and read by the next."""
    first = formulas.lstm(steps, batch, inputs, hidden, element)
    others = formulas.lstm(steps, batch, hidden, hidden, element)
    work = Work(
        flops=(first.flops or 0.0) + (layers - 1) * (others.flops or 0.0),
        bytes=(first.bytes or 0.0) + (layers - 1) * (others.bytes or 0.0),
    )
    gates = 4 * hidden * (inputs + hidden + 2) + (layers - 1) * 4 * hidden * (2 * hidden + 2)
    sizes = {"steps": steps, "inputs": inputs, "hidden": hidden, "layers": layers}
    return _of("lstm", batch, sizes, work, gates * element)


def softmax(rows: int, columns: int, element: int) -> Operation:
    """Return the softmax along the columns."""
    return _of("softmax", rows, {"columns": columns}, formulas.softmax(rows, columns, element), 0.0)


def rms_norm(rows: int, columns: int, element: int) -> Operation:
    """Return RMSNorm along the columns."""
    work = formulas.rms_norm(rows, columns, element)
    return _of("rms-norm", rows, {"columns": columns}, work, columns * element)


def layer_norm(rows: int, columns: int, element: int) -> Operation:
    """Return LayerNorm along the columns: 7 FLOPs an element (Ba et al., arXiv 1607.06450)."""
    moved = 2.0 * rows * columns * element
    weights = 2.0 * columns * element
    return Operation("layer-norm", rows, {"columns": columns}, 7.0 * rows * columns, moved, weights)


def group_norm(
    images: int, channels: int, pixels: int, groups: int, element: int, layout: str
) -> Operation:
    """Return GroupNorm: 7 FLOPs an element as LayerNorm (Wu, He, arXiv 1803.08494)."""
    values = images * channels * pixels
    sizes = {"channels": channels, "pixels": pixels, "groups": groups}
    moved, weights = 2.0 * values * element, 2.0 * channels * element
    return Operation("group-norm", images, sizes, 7.0 * values, moved, weights, layout)


def batch_norm(images: int, channels: int, pixels: int, element: int, layout: str) -> Operation:
    """Return BatchNorm of inference: one multiply-add an element, 2 FLOPs, and 4 parameters.

    Ioffe, Szegedy (arXiv 1502.03167), algorithm 2: mean and variance are those of the training,
    so that it is a linear function of each channel. torch keeps these parameters in FP32.
    """
    values = images * channels * pixels
    sizes = {"channels": channels, "pixels": pixels}
    moved, weights = 2.0 * values * element, 4.0 * channels * element
    return Operation("batch-norm", images, sizes, 2.0 * values, moved, weights, layout)


def pool2d(
    kind: str,
    images: int,
    channels: int,
    pixels: int,
    outputs: int,
    taps: int,
    element: int,
    layout: str,
) -> Operation:
    """Return "max-pool2d" or "avg-pool2d": a comparison or a sum for each value of a window.

    Goodfellow et al., Deep Learning (2016), section 9.3. Each input is read once, however many
    windows it is in.
    """
    moved = float(images * channels * (pixels + outputs) * element)
    sizes = {"channels": channels, "pixels": pixels, "outputs": outputs, "taps": taps}
    flops = float(images * channels * outputs * taps)
    return Operation(kind, images, sizes, flops, moved, 0.0, layout)


FLOPS_OF = {"relu": 1.0, "gelu": 5.0, "silu": 4.0, "add": 1.0, "mul": 1.0, "copy": 0.0}
"""FLOPs an element: max(x, 0); x / 2 (1 + erf(x / sqrt 2)) (Hendrycks, Gimpel, arXiv 1606.08415);
x / (1 + exp(-x)) (Elfwing et al., arXiv 1702.03118); a sum, a product, none."""


def elementwise(op: str, elements: int, inputs: int, element: int, layout: str = "") -> Operation:
    """Return an operation on each element of as many inputs, with one output."""
    moved = float((inputs + 1) * elements * element)
    return Operation(op, elements, {}, FLOPS_OF[op] * elements, moved, 0.0, layout)


def embedding(tokens: int, width: int, element: int) -> Operation:
    """Return the gather of one row per token."""
    work = formulas.embedding(tokens, width, element)
    return _of("embedding", tokens, {"columns": width}, work, 0.0)
