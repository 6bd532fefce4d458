"""Makes a vector of each basket of goods, the mean of those of the goods in it, with a kernel in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def mean_single(
    goods, vectors, means, MANY: tl.constexpr, WIDTH: tl.constexpr, TOGETHER: tl.constexpr
):
    basket = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), tl.float32)
    for k in range(0, MANY):
        ware = tl.load(goods + basket * MANY + k)
        total += tl.load(vectors + ware * WIDTH + column)
    tl.store(means + basket * WIDTH + column, total / MANY)


@triton.jit
def mean_several(
    goods, vectors, means, MANY: tl.constexpr, WIDTH: tl.constexpr, TOGETHER: tl.constexpr
):
    basket = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), tl.float32)
    for k in range(0, MANY, TOGETHER):
        ware = tl.load(goods + basket * MANY + k + tl.arange(0, TOGETHER))
        rows = tl.load(vectors + ware[:, None] * WIDTH + column[None, :])
        total += tl.sum(rows, 0)
    tl.store(means + basket * WIDTH + column, total / MANY)


class Baskets:
    def __init__(self, vectors, together):
        self.vectors, self.together = vectors, together

    def __call__(self, goods):
        count, many = goods.shape
        width = self.vectors.shape[1]
        means = torch.empty(count, width, device=goods.device)
        mean = mean_several if self.together > 1 else mean_single
        mean[(count,)](
            goods, self.vectors, means, MANY=many, WIDTH=width, TOGETHER=self.together, num_warps=4
        )
        return means


def prepare(device, repaired):
    wares, width, count, many, together = (
        (4_000_000, 64, 32768, 64, 32) if device == "cuda" else (50, 8, 5, 8, 4)
    )
    vectors = torch.randn(wares, width, device=device)
    goods = torch.randint(wares, (4, count, many), device=device)
    return Baskets(vectors, together if repaired else 1), goods


def run(state, steps, repaired):
    mean, goods = state
    total = torch.zeros((), device=goods.device)
    for step in range(steps):
        total += mean(goods[step % 4]).square().mean()
    return total / steps


main(prepare, run, steps=1200)
