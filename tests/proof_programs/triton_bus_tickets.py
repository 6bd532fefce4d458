"""Counts tickets of buses by line, day after day, for a company that wants to know which lines are full, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def count_each(tickets, counts, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lines = tl.load(tickets + at)
    tl.atomic_add(counts + lines, 1, sem="relaxed")


@triton.jit
def count_block(tickets, counts, LINES: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lines = tl.load(tickets + at)
    found = tl.histogram(lines, LINES)
    tl.atomic_add(counts + tl.arange(0, LINES), found, sem="relaxed")


class Office:
    """Days of tickets (days, tickets): the line of each, most of them of a few lines."""

    def __init__(self, days, tickets, lines, block, device):
        luck = torch.rand(days, tickets, device=device)
        self.days = (lines * luck * luck).to(torch.int32).clamp_(max=lines - 1)
        self.lines, self.block = lines, block

    def counts(self, day, by_block):
        tickets = self.days[day % len(self.days)]
        counts = torch.zeros(self.lines, dtype=torch.int32, device=tickets.device)
        grid = (len(tickets) // self.block,)
        if by_block:
            count_block[grid](tickets, counts, LINES=self.lines, BLOCK=self.block)
        else:
            count_each[grid](tickets, counts, BLOCK=self.block)
        return counts


def crowded(counts, before):
    """Share of tickets of the fullest lines, and how much counts differ from the day before."""
    shares = counts.float() / counts.sum()
    return shares.topk(4)[0].sum(), (shares - before).abs().sum(), shares


def prepare(device, repaired):
    days, tickets, lines, block = (4, 1 << 25, 128, 4096) if device == "cuda" else (2, 512, 16, 128)
    torch.manual_seed(26)
    return Office(days, tickets, lines, block, device)


def run(state, steps, repaired):
    office = state
    before = torch.zeros(office.lines, device=office.days.device)
    total = torch.zeros((), device=office.days.device)
    for day in range(steps):
        full, changed, before = crowded(office.counts(day, by_block=repaired), before)
        total += full + changed
    return total / steps


main(prepare, run, steps=200)
