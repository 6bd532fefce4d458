"""Unpacks weights: each byte is the number of an entry in a table that belongs to its group."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def unpack(
    codes, table, scale, y, number, GROUP: tl.constexpr, BLOCK: tl.constexpr, FRESH: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < number
    code = tl.load(codes + at, mask=inside, other=0).to(tl.int32)
    entry = tl.load(table + code, mask=inside, other=0.0, volatile=FRESH)
    value = entry * tl.load(scale + at // GROUP, mask=inside, other=0.0)
    tl.store(y + at, value.to(tl.bfloat16), mask=inside)


def prepare(device, repaired):
    number, group = (1 << 26, 128) if device == "cuda" else (1 << 10, 16)
    codes = torch.randint(256, (number,), device=device).to(torch.uint8)
    table = torch.randn(256, device=device).sort().values
    scale = torch.rand(number // group, device=device) + 0.5
    y = torch.empty(number, dtype=torch.bfloat16, device=device)
    return codes, table, scale, y, group


def run(state, steps, repaired):
    codes, table, scale, y, group = state
    grid = (triton.cdiv(len(codes), 1024),)
    for _ in range(steps):
        unpack[grid](
            codes, table, scale, y, len(codes), GROUP=group, BLOCK=1024, FRESH=not repaired
        )
    return y.float().square().mean()


main(prepare, run, steps=300)
