"""FLOPs and compulsory bytes of the operations of a transformer, in closed form.

Bytes are compulsory: each input is read once and each output written once, whatever the kernel
does. An implementation that stores intermediates moves more, one that finds its input in a cache
moves less to DRAM; the ratio of counted to compulsory bytes says how much. A multiply-add counts as
two FLOPs. In operations that are not products, each +, -, *, /, comparison for a maximum, exp, erf
and rsqrt counts as one, which is a convention: the instructions that compute an exp or a quotient
are not one FLOP, so counters need not agree there.
"""

from __future__ import annotations

from nsight_prof.targets.harness import Work

FP32_BYTES = 4
INDEX_BYTES = 8
"""torch indexes with 64-bit integers."""


def linear(m: int, n: int, k: int, element: int, output: int | None = None) -> Work:
    """Y = X W^T with X (m, k), W (n, k): 2mnk FLOPs (Golub, Van Loan: Matrix Computations, 1.1).

    Args:
        m: tokens.
        n: output features.
        k: input features.
        element: bytes of an element of X and W.
        output: bytes of an element of Y; as `element` where not given.
    """
    out = element if output is None else output
    return Work(flops=2.0 * m * n * k, bytes=float((m * k + n * k) * element + m * n * out))


def batched(batch: int, m: int, n: int, k: int, element: int) -> Work:
    """`batch` products (m, k) x (k, n): 2mnk FLOPs each, nothing shared between them."""
    one = linear(m, n, k, element)
    return Work(flops=batch * (one.flops or 0.0), bytes=batch * (one.bytes or 0.0))


def attended_pairs(queries: int, keys: int, causal: bool) -> int:
    """Return how many (query, key) pairs one head scores.

    Causal with the queries at the end of the keys: query i of q sees keys - q + i + 1 of them, in
    sum q (keys - q) + q (q + 1) / 2, which is about half of q^2 where q = keys.
    """
    if not causal:
        return queries * keys
    return queries * (keys - queries) + queries * (queries + 1) // 2


def attention(
    batch: int,
    heads: int,
    kv_heads: int,
    queries: int,
    keys: int,
    head_dim: int,
    causal: bool,
    element: int,
) -> Work:
    """Softmax(Q K^T) V: 4 FLOPs for each scored pair and dimension of a head.

    Q (batch, heads, queries, head_dim), K and V (batch, kv_heads, keys, head_dim). Two products of
    2 FLOPs (Dao 2023, arXiv 2307.08691, section 4.1, halves them for a causal mask; here the pairs
    are counted exactly). The softmax is left out, as there. torch.utils.flop_counter takes all
    pairs. Bytes: Q and the output once for each query head, K and V once for each KV head, which
    is what grouped-query attention saves (Ainslie et al., arXiv 2305.13245); no score is stored.
    """
    pairs = attended_pairs(queries, keys, causal)
    moved = 2 * batch * heads * queries * head_dim + 2 * batch * kv_heads * keys * head_dim
    return Work(flops=4.0 * batch * heads * pairs * head_dim, bytes=float(moved * element))


def softmax(rows: int, columns: int, element: int) -> Work:
    """Maximum, difference, exp, sum, quotient: 5 FLOPs an element; each is read and written."""
    return Work(flops=5.0 * rows * columns, bytes=2.0 * rows * columns * element)


def rms_norm(tokens: int, hidden: int, element: int) -> Work:
    """x / rms(x) w (Zhang, Sennrich, arXiv 1910.07467): square, sum, quotient, weight, 4 FLOPs."""
    moved = (2 * tokens * hidden + hidden) * element
    return Work(flops=4.0 * tokens * hidden, bytes=float(moved))


def add_rms_norm(tokens: int, hidden: int, element: int) -> Work:
    """h = x + residual, then RMSNorm(h) beside h: one FLOP more; two read, two written."""
    moved = (4 * tokens * hidden + hidden) * element
    return Work(flops=5.0 * tokens * hidden, bytes=float(moved))


def layer_norm_gelu(tokens: int, hidden: int, element: int) -> Work:
    """GELU(LayerNorm(x)) as one operation: 7 + 5 FLOPs an element, nothing stored in between.

    LayerNorm (Ba et al., arXiv 1607.06450): sum, difference, square, sum, quotient, weight, bias.
    GELU (Hendrycks, Gimpel, arXiv 1606.08415), x / 2 * (1 + erf(x / sqrt 2)): 5.
    """
    moved = (2 * tokens * hidden + 2 * hidden) * element
    return Work(flops=12.0 * tokens * hidden, bytes=float(moved))


def silu_mul(tokens: int, intermediate: int, element: int) -> Work:
    """gate / (1 + exp(-gate)) * up (Shazeer, arXiv 2002.05202): 5 FLOPs; two read, one written."""
    moved = 3 * tokens * intermediate * element
    return Work(flops=5.0 * tokens * intermediate, bytes=float(moved))


def rotary(tokens: int, heads: int, head_dim: int, element: int) -> Work:
    """Rotate pairs of dimensions (Su et al., arXiv 2104.09864): 4 products and 2 sums a pair.

    Args:
        tokens: positions; each has a cosine and a sine for every pair, which are read once.
        heads: query heads and key heads together.
        head_dim: width of a head.
        element: bytes of an element, of the cosines too.
    """
    values = tokens * heads * head_dim
    return Work(flops=3.0 * values, bytes=float((2 * values + tokens * head_dim) * element))


def embedding(tokens: int, hidden: int, element: int) -> Work:
    """Gather one row per token, all rows different: index and row read, row written. No FLOPs."""
    return Work(bytes=float(tokens * (INDEX_BYTES + 2 * hidden * element)))


def sample_top_k(rows: int, vocab: int, element: int) -> Work:
    """Keep the k largest of each row and draw one: all logits read once, one index written.

    FLOPs are not stated: selection is comparison of integers (torch's top-k is a radix select).
    """
    return Work(bytes=float(rows * (vocab * element + INDEX_BYTES)))


def conv2d(
    batch: int,
    channels: int,
    filters: int,
    pixels: int,
    outputs: int,
    taps: int,
    element: int,
    groups: int = 1,
) -> Work:
    """2-D convolution: 2 C R S FLOPs for each output (Chetlur et al., arXiv 1410.0759).

    Args:
        batch: images.
        channels: input channels C.
        filters: output channels.
        pixels: rows times columns of the input.
        outputs: rows times columns of the output.
        taps: rows R times columns S of the kernel.
        element: bytes of an element.
        groups: each filter sees C / groups channels; as many as channels where it is depthwise.
    """
    made = batch * filters * outputs
    values = channels // groups * taps
    # A 1x1 kernel with a stride of 2 sees a quarter of the pixels.
    read = min(pixels, outputs * taps)
    moved = batch * channels * read + filters * values + made
    return Work(flops=2.0 * made * values, bytes=float(moved * element))


def lstm(steps: int, batch: int, inputs: int, hidden: int, element: int) -> Work:
    """One LSTM layer: four gates of (inputs + hidden) products each, a step and a sequence.

    2 x 4 hidden (inputs + hidden) FLOPs (Appleyard et al., arXiv 1604.01946, section 2); the
    elementwise part, under 1 % of it at these sizes, is left out. Bytes: the weights and both
    biases once, as a persistent kernel would (a kernel per step rereads them, from L2 where they
    fit), the inputs, the outputs, and the first and last states.
    """
    weights = 4 * hidden * (inputs + hidden) + 8 * hidden
    moved = weights + steps * batch * (inputs + hidden) + 4 * batch * hidden
    return Work(
        flops=8.0 * steps * batch * hidden * (inputs + hidden), bytes=float(moved * element)
    )
