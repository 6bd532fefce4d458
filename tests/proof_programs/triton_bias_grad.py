"""The backward pass of an activation with bias in Triton: gradients of inputs and of the bias."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def backward(
    grad, x, bias, grad_x, grad_bias, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    shift = tl.load(bias + column, mask=inside, other=0.0)
    total = tl.zeros((BLOCK,), tl.float32)
    first = tl.program_id(0).to(tl.int64) * ROWS
    for row in range(ROWS):
        at = (first + row) * columns + column
        here = inside & (first + row < rows)
        value = tl.load(x + at, mask=here, other=0.0).to(tl.float32) + shift
        upper = tl.load(grad + at, mask=here, other=0.0).to(tl.float32)
        gate = tl.sigmoid(value)
        lower = upper * gate * (1 + value * (1 - gate))
        tl.store(grad_x + at, lower, mask=here)
        total += lower
    tl.atomic_add(grad_bias + column, total, mask=inside)


def prepare(device, repaired):
    rows, columns = (131072, 512) if device == "cuda" else (9, 40)
    x, grad = (torch.randn(rows, columns, device=device).bfloat16() for _ in range(2))
    bias = torch.randn(columns, device=device)
    return grad, x, bias, torch.empty_like(x), torch.empty_like(bias)


def gradients(grad, x, bias, grad_x, grad_bias, together):
    """Write both gradients; a program adds up `together` rows before it adds them to the others."""
    rows, columns = x.shape
    block = 256
    grad_bias.zero_()
    grid = (triton.cdiv(rows, together), triton.cdiv(columns, block))
    backward[grid](
        grad, x, bias, grad_x, grad_bias, rows, columns, ROWS=together, BLOCK=block, num_warps=4
    )


def run(state, steps, repaired):
    grad, x, bias, grad_x, grad_bias = state
    together = 64 if repaired else 1
    for _ in range(steps):
        gradients(grad, x, bias, grad_x, grad_bias, together)
    return grad_x.float().square().mean() + grad_bias.abs().mean() / len(x)


main(prepare, run, steps=120)
