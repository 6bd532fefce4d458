"""Multiplies matrices for the widest layer of a recommender with a Triton kernel."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def place(pid, rows, columns, GROUP: tl.constexpr):
    """Return the row and the column of tiles for a program."""
    if GROUP == 1:
        return pid // columns, pid % columns
    first = pid // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    return first + pid % (GROUP * columns) % height, pid % (GROUP * columns) // height


@triton.jit
def product(
    a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr
):
    row, column = place(tl.program_id(0), tl.cdiv(m, M), tl.cdiv(n, N), GROUP)
    i = row * M + tl.arange(0, M)
    j = column * N + tl.arange(0, N)
    at = tl.arange(0, K)
    left = a + i[:, None] * k + at[None, :]
    right = b + at[:, None] * n + j[None, :]
    total = tl.zeros((M, N), tl.float32)
    for _ in range(0, k, K):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += K
        right += K * n
    tl.store(c + i.to(tl.int64)[:, None] * n + j[None, :], total.to(tl.bfloat16))


def prepare(device, repaired):
    m, n, k = (4096, 32768, 2048) if device == "cuda" else (64, 256, 64)
    a = torch.randn(m, k, device=device, dtype=torch.bfloat16)
    b = torch.randn(k, n, device=device, dtype=torch.bfloat16)
    return a, b, torch.empty(m, n, device=device, dtype=torch.bfloat16)


def run(state, steps, repaired):
    a, b, c = state
    (m, k), n = a.shape, b.shape[1]
    grid = (triton.cdiv(m, 64) * triton.cdiv(n, 128),)
    for _ in range(steps):
        product[grid](
            a, b, c, m, n, k, M=64, N=128, K=64, GROUP=16 if repaired else 1,
            num_warps=4, num_stages=4,
        )  # fmt: skip
    return c[:256].float().square().mean()


main(prepare, run, steps=200)
