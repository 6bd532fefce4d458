"""Makes the voices of a choir equally loud before a network compares them, with a kernel in Triton for each of 32 heads."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def level(
    x, weight, y, length, heads, x_batch, x_head, x_time,
    TIMES: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    head, batch = tl.program_id(0), tl.program_id(2)
    time = tl.program_id(1) * TIMES + tl.arange(0, TIMES)
    column = tl.arange(0, SIZE)
    row = x + batch * x_batch + head * x_head + time[:, None] * x_time
    heard = tl.load(row + column[None, :]).to(tl.float32)
    loud = tl.rsqrt(tl.sum(heard * heard, 1) / SIZE + 1e-6)
    heard = heard * loud[:, None] * tl.load(weight + column)[None, :]
    to = y + ((batch * heads + head) * length + time[:, None]) * SIZE + column[None, :]
    tl.store(to, heard.to(y.dtype.element_ty))


class Level:
    """Takes voices with heads beside each other and returns them with heads one after another."""

    def __init__(self, weight, times, in_place):
        self.weight, self.times, self.in_place = weight, times, in_place

    def __call__(self, voices):
        x = voices.transpose(1, 2)
        if not self.in_place:
            x = x.contiguous()
        count, heads, length, size = x.shape
        y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        level[(heads, length // self.times, count)](
            x, self.weight, y, length, heads, x.stride(0), x.stride(1), x.stride(2),
            TIMES=self.times, SIZE=size, num_warps=4,
        )  # fmt: skip
        return y


def prepare(device, repaired):
    shape, times = ((8, 4096, 32, 128), 16) if device == "cuda" else ((2, 8, 3, 16), 4)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    voices = torch.randn(2, *shape, device=device, dtype=dtype)
    weight = 1 + 0.1 * torch.randn(shape[3], device=device)
    return Level(weight, times, in_place=repaired), voices


def run(state, steps, repaired):
    level_all, voices = state
    total = torch.zeros((), device=voices.device)
    for step in range(steps):
        y = level_all(voices[step % 2])
        total += y[:, step % y.shape[1]].float().abs().mean()
    return total / steps


main(prepare, run, steps=3000)
