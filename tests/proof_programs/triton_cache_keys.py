"""Keeps the keys of an assistant's words as bytes: each 128 numbers get a scale of their own, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def to_bytes(
    keys, out, scales, groups, SIZE: tl.constexpr, TOGETHER: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(0) * TOGETHER + tl.arange(0, TOGETHER)
    mask = group[:, None] < groups
    at = group[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    value = tl.load(keys + at, mask=mask, other=0.0).to(tl.float32)
    largest = tl.max(tl.abs(value), axis=1)
    scale = tl.maximum(largest, 1e-6) / 127.0
    code = tl.floor(value / scale[:, None] + 0.5)
    tl.store(out + at, code.to(tl.int8), mask=mask)
    tl.store(scales + group, scale, mask=group < groups)


class Keeper:
    def __init__(self, size, together):
        self.size, self.together = size, together

    def __call__(self, keys, out, scales):
        """Fill bytes (groups, size) and scales (groups,) from keys (groups, size)."""
        groups = len(keys)
        to_bytes[(triton.cdiv(groups, self.together),)](
            keys, out, scales, groups, SIZE=self.size, TOGETHER=self.together, num_warps=4
        )


def prepare(device, repaired):
    cuda = device == "cuda"
    groups, size = (1 << 19, 128) if cuda else (24, 16)
    dtype = torch.bfloat16 if cuda else torch.float32
    keys = torch.randn(2, groups, size, device=device, dtype=dtype)
    out = torch.empty(groups, size, device=device, dtype=torch.int8)
    scales = torch.empty(groups, device=device)
    together = (32 if cuda else 8) if repaired else 1
    return Keeper(size, together), keys, out, scales


def run(state, steps, repaired):
    keep, keys, out, scales = state
    total = torch.zeros((), device=keys.device)
    for step in range(steps):
        keep(keys[step % len(keys)], out, scales)
        row = step % len(out)
        total += scales[row] + out[row].float().abs().mean() / 1000
    return total / steps


main(prepare, run, steps=1500)
