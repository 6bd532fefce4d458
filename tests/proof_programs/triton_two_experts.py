"""Chooses two experts of 128 for each word and what each of them counts, with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def choose(
    scores, experts, shares, SORTED: tl.constexpr, WORDS: tl.constexpr, EXPERTS: tl.constexpr
):
    word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    expert = tl.arange(0, EXPERTS)[None, :]
    score = tl.load(scores + word[:, None] * EXPERTS + expert)
    # positive numbers compare like their bits; the last bits tell the expert
    key = (score.to(tl.int32, bitcast=True) & -EXPERTS) | expert
    if SORTED:
        key = tl.sort(key, dim=1, descending=True)
        first = tl.sum(tl.where(expert == 0, key, 0), 1)
        second = tl.sum(tl.where(expert == 1, key, 0), 1)
    else:
        first = tl.max(key, 1)
        second = tl.max(tl.where(key == first[:, None], 0, key), 1)
    one = (first & -EXPERTS).to(tl.float32, bitcast=True)
    two = (second & -EXPERTS).to(tl.float32, bitcast=True)
    tl.store(experts + 2 * word, first & (EXPERTS - 1))
    tl.store(experts + 2 * word + 1, second & (EXPERTS - 1))
    tl.store(shares + 2 * word, one / (one + two))
    tl.store(shares + 2 * word + 1, two / (one + two))


class Router:
    def __init__(self, words, count, device):
        self.experts = torch.empty(words, 2, dtype=torch.int32, device=device)
        self.shares = torch.empty(words, 2, device=device)
        self.count = count

    def choose(self, scores, by_order):
        grid = (len(scores) // 16,)
        choose[grid](
            scores, self.experts, self.shares, SORTED=by_order, WORDS=16, EXPERTS=self.count
        )
        return self.experts, self.shares


def prepare(device, repaired):
    words, count = (1 << 20, 128) if device == "cuda" else (32, 16)
    return Router(words, count, device), torch.rand(2, words, count, device=device)


def run(state, steps, repaired):
    router, scores = state
    total = torch.zeros((), device=scores.device)
    for step in range(steps):
        experts, shares = router.choose(scores[step % 2], by_order=not repaired)
        total += shares[:4096, 0].mean() + experts[:4096, 1].float().mean() / 128
    return total / steps


main(prepare, run, steps=2000)
