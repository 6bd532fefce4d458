"""Packs what each of many experts will read in eight bits, with a scale for each expert's share, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def pack_rows(x, scale, out, begin, end, width, BLOCK: tl.constexpr):
    row = begin + tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = (cols < width) & (row < end)
    s = tl.load(scale)
    values = tl.load(x + row * width + cols, mask=mask, other=0.0).to(tl.float32)
    packed = tl.floor(values * (127.0 / s) + 0.5)
    tl.store(out + row * width + cols, packed.to(tl.int8), mask=mask)


@triton.jit
def pack_owned(x, owners, scales, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < width
    s = tl.load(scales + tl.load(owners + row))
    values = tl.load(x + row * width + cols, mask=mask, other=0.0).to(tl.float32)
    packed = tl.floor(values * (127.0 / s) + 0.5)
    tl.store(out + row * width + cols, packed.to(tl.int8), mask=mask)


class Crates:
    """Rows of the first expert come first, up to `ends` of it; then those of the next."""

    def __init__(self, experts):
        self.experts = experts

    def scales(self, x, owners):
        most = x.abs().amax(1).float()
        return most.new_zeros(self.experts).scatter_reduce_(0, owners, most, "amax")

    def expert_by_expert(self, x, owners, ends):
        out = torch.empty_like(x, dtype=torch.int8)
        scales = self.scales(x, owners)
        width, begin = x.shape[1], 0
        block = triton.next_power_of_2(width)
        for scale, end in zip(scales.split(1), ends.tolist(), strict=True):
            if end > begin:
                pack_rows[(end - begin,)](x, scale, out, begin, end, width, BLOCK=block)
            begin = end
        return out, scales

    def all_experts(self, x, owners, ends):
        out = torch.empty_like(x, dtype=torch.int8)
        scales = self.scales(x, owners)
        width = x.shape[1]
        block = triton.next_power_of_2(width)
        pack_owned[(len(x),)](x, owners, scales, out, width, BLOCK=block)
        return out, scales


def prepare(device, repaired):
    cuda = device == "cuda"
    experts, rows, width = (64, 16384, 1024) if cuda else (4, 13, 16)
    dtype = torch.bfloat16 if cuda else torch.float32
    crates = Crates(experts)
    owners = torch.randint(experts, (rows,), device=device).sort()[0]
    ends = torch.bincount(owners, minlength=experts).cumsum(0)
    x = torch.randn(rows, width, device=device).to(dtype)
    return crates.all_experts if repaired else crates.expert_by_expert, x, owners, ends


def run(state, steps, repaired):
    pack, x, owners, ends = state
    total = torch.zeros((), device=x.device)
    for step in range(steps):
        out, scales = pack(x, owners, ends)
        total += scales.mean() + out[step % len(out)].float().abs().mean()
    return total / steps


main(prepare, run, steps=600)
