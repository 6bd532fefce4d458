"""A layer with a recurrence, h = a h + x, over long texts (state space models), in Triton."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def step_by_step(a, x, y, length, channels, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.program_id(1).to(tl.int64) * length * channels + column
    state = tl.zeros((BLOCK,), tl.float32)
    for _ in range(length):
        state = state * tl.load(a + at) + tl.load(x + at)
        tl.store(y + at, state)
        at += channels


@triton.jit
def join(decay, state, later_decay, later_state):
    return decay * later_decay, later_decay * state + later_state


@triton.jit
def by_pieces(a, x, y, length, channels, TIME: tl.constexpr, BLOCK: tl.constexpr):
    time, column = tl.arange(0, TIME), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.program_id(1).to(tl.int64) * length * channels
    state = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, TIME):
        at = first + (start + time)[:, None] * channels + column[None, :]
        decay, made = tl.associative_scan((tl.load(a + at), tl.load(x + at)), 0, join)
        made += decay * state[None, :]
        tl.store(y + at, made)
        state = tl.sum(tl.where((time == TIME - 1)[:, None], made, 0.0), axis=0)


def scan(a, x, y, pieces):
    batch, length, channels = x.shape
    if pieces:
        by_pieces[(channels // 16, batch)](
            a, x, y, length, channels, TIME=128, BLOCK=16, num_warps=4
        )
    else:
        step_by_step[(channels // 32, batch)](a, x, y, length, channels, BLOCK=32, num_warps=1)


def prepare(device, repaired):
    shape = (8, 8192, 1024) if device == "cuda" else (1, 256, 32)
    a = torch.rand(shape, device=device) * 0.5 + 0.4
    x = torch.randn(shape, device=device)
    return a, x, torch.empty_like(x)


def run(state, steps, repaired):
    for _ in range(steps):
        scan(*state, repaired)
    return state[-1].square().mean()


main(prepare, run, steps=60)
