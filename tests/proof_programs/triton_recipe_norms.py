"""Brings the states of a writer of recipes to one size and adds what came before, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def add_and_norm(
    x, before, weight, after, out, rows, width, eps, BLOCK: tl.constexpr,
):  # fmt: skip
    cols = tl.arange(0, BLOCK)
    mask = cols < width
    w = tl.load(weight + cols, mask=mask, other=0.0).to(tl.float32)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        at = row * width + cols
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        value += tl.load(before + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(after + at, value.to(after.dtype.element_ty), mask=mask)
        scale = tl.rsqrt(tl.sum(value * value, 0) / width + eps)
        tl.store(out + at, (value * scale * w).to(out.dtype.element_ty), mask=mask)


def processors(device):
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    return 2


class AddNorm:
    def __init__(self, weight, waves, eps=1e-6):
        self.weight, self.waves, self.eps = weight, waves, eps

    def __call__(self, x, before):
        """Return x + before, and it brought to one size; all are (rows, width)."""
        rows, width = x.shape
        after, out = torch.empty_like(x), torch.empty_like(x)
        programs = min(rows, self.waves * processors(x.device))
        add_and_norm[(programs,)](
            x,
            before,
            self.weight,
            after,
            out,
            rows,
            width,
            self.eps,
            BLOCK=triton.next_power_of_2(width),
            num_warps=4,
        )
        return after, out


def prepare(device, repaired):
    cuda = device == "cuda"
    rows, width = (32768, 2048) if cuda else (12, 24)
    dtype = torch.bfloat16 if cuda else torch.float32
    weight = 1 + 0.1 * torch.randn(width, device=device)
    x, before = torch.randn(2, rows, width, device=device, dtype=dtype)
    return AddNorm(weight.to(dtype), waves=16 if repaired else 1), x, before


def run(state, steps, repaired):
    norm, x, before = state
    total = torch.zeros((), device=x.device)
    for step in range(steps):
        after, out = norm(x, before)
        total += out[step % len(out)].float().abs().mean() + after[0].float().abs().mean()
    return total / steps


main(prepare, run, steps=1200)
