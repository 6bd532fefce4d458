"""Sums up what users did, each in a row of its own length (jagged), with weights by age, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def sum_up(events, starts, order, out, decay, WIDTH: tl.constexpr, TIME: tl.constexpr):
    user = tl.load(order + tl.program_id(0))
    first, last = tl.load(starts + user), tl.load(starts + user + 1)
    time, column = tl.arange(0, TIME), tl.arange(0, WIDTH)
    total = tl.zeros((TIME, WIDTH), tl.float32)
    for start in range(first, last, TIME):
        row = start + time
        weight = tl.exp(-decay * (last - row).to(tl.float32))
        value = tl.load(
            events + row.to(tl.int64)[:, None] * WIDTH + column[None, :],
            mask=(row < last)[:, None],
            other=0.0,
        )
        total += weight[:, None] * value
    tl.store(out + user * WIDTH + column, tl.sum(total, 0))


def prepare(device, repaired):
    users, width, longest = (12000, 64, 30000) if device == "cuda" else (12, 16, 60)
    rank = torch.arange(users, device=device) / users
    lengths = (20 + longest * rank**40).long() + torch.arange(users, device=device) % 7
    starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).int()
    events = torch.rand(int(starts[-1]), width, device=device)
    order = torch.arange(users, device=device, dtype=torch.int32)
    if repaired:
        order = order.flip(0)
    return events, starts, order, torch.empty(users, width, device=device)


def run(state, steps, repaired):
    events, starts, order, out = state
    for _ in range(steps):
        sum_up[(len(order),)](
            events, starts, order, out, 1e-5, WIDTH=events.shape[1], TIME=32, num_warps=4
        )
    return out.mean()


main(prepare, run, steps=500)
