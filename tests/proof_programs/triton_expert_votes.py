"""Puts together what experts of a mixture say of each word, weighted by votes of a router, in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def add_up(said, words, votes, sums, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(words + row).to(tl.int64)
    part = tl.load(said + row * width + cols).to(tl.float32) * tl.load(votes + row)
    tl.atomic_add(sums + word * width + cols, part, sem="relaxed")


@triton.jit
def gather(said, rows, votes, out, width, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    word = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for expert in tl.static_range(EXPERTS):
        row = tl.load(rows + word * EXPERTS + expert).to(tl.int64)
        total += tl.load(said + row * width + cols).to(tl.float32) * tl.load(votes + row)
    tl.store(out + word * width + cols, total.to(out.dtype.element_ty))


class Votes:
    """Rows that experts wrote, one expert after the other: which word each is of, its vote, and rows of each word."""

    def __init__(self, count, experts, chosen, device):
        picks = torch.rand(count, experts).topk(chosen)[1].flatten()
        order = picks.argsort(stable=True)
        self.words = (order // chosen).int().to(device)
        self.rows = order.argsort().int().to(device)
        self.votes = torch.rand(count * chosen).to(device) / chosen
        self.count, self.chosen = count, chosen

    def sum_with_atomics(self, said, block):
        sums = torch.zeros(self.count, said.shape[1], device=said.device)
        grid = (len(said), said.shape[1] // block)
        add_up[grid](said, self.words, self.votes, sums, said.shape[1], BLOCK=block)
        return sums.to(said.dtype)

    def sum_by_word(self, said, block):
        out = said.new_empty(self.count, said.shape[1])
        gather[(self.count, said.shape[1] // block)](
            said, self.rows, self.votes, out, said.shape[1], EXPERTS=self.chosen, BLOCK=block
        )
        return out


def prepare(device, repaired):
    cuda = device == "cuda"
    count, experts, chosen, width, block = (
        (16384, 64, 8, 2048, 1024) if cuda else (10, 5, 2, 32, 16)
    )
    dtype = torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(36)
    votes = Votes(count, experts, chosen, device)
    said = torch.randn(2, count * chosen, width, device=device, dtype=dtype)
    return votes.sum_by_word if repaired else votes.sum_with_atomics, said, block


@torch.inference_mode()
def run(state, steps, repaired):
    put_together, said, block = state
    total = torch.zeros((), device=said.device)
    for step in range(steps):
        total += put_together(said[step % 2], block)[:64].float().square().mean()
    return total / steps


main(prepare, run, steps=400)
