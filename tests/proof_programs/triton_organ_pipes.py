"""Plays an organ: each of thousands of pipes has a sound of one of four kinds, which a kernel in Triton computes."""

import torch
import triton
import triton.language as tl
from common import main


@triton.jit
def flute(turn):
    return tl.sin(turn) + 0.2 * tl.sin(2 * turn)


@triton.jit
def bell(turn):
    return tl.sin(turn + 1.4 * tl.sin(1.41 * turn + 0.5 * tl.sin(3 * turn)))


@triton.jit
def reed(turn):
    wave = tl.sin(turn)
    return 1 - 2 / (1 + tl.exp(6 * wave * wave * wave))


@triton.jit
def string(turn):
    return 0.3 * tl.log(1.1 + tl.sin(turn)) + 0.2 * tl.sin(3 * turn)


@triton.jit
def all_kinds(kinds, pitches, sounds, length, BLOCK: tl.constexpr):
    pipe = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kind = tl.load(kinds + pipe)
    turn = tl.load(pitches + pipe) * at
    low = tl.where(kind == 0, flute(turn), bell(turn))
    high = tl.where(kind == 2, reed(turn), string(turn))
    tl.store(sounds + pipe * length + at, tl.where(kind < 2, low, high))


@triton.jit
def own_kind(kinds, pitches, sounds, length, BLOCK: tl.constexpr):
    pipe = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kind = tl.load(kinds + pipe)
    turn = tl.load(pitches + pipe) * at
    if kind == 0:
        sound = flute(turn)
    elif kind == 1:
        sound = bell(turn)
    elif kind == 2:
        sound = reed(turn)
    else:
        sound = string(turn)
    tl.store(sounds + pipe * length + at, sound)


class Organ:
    def __init__(self, kinds, length, block, own):
        self.kinds, self.length, self.block = kinds, length, block
        self.play = own_kind if own else all_kinds

    def __call__(self, pitches):
        sounds = torch.empty(len(pitches), self.length, device=pitches.device)
        grid = (self.length // self.block, len(pitches))
        self.play[grid](self.kinds, pitches, sounds, self.length, BLOCK=self.block, num_warps=4)
        return sounds


def prepare(device, repaired):
    pipes, length, block = (4096, 65536, 1024) if device == "cuda" else (8, 64, 32)
    kinds = torch.arange(pipes, device=device, dtype=torch.int32) % 4
    pitches = 0.01 + 0.2 * torch.rand(4, pipes, device=device)
    return Organ(kinds, length, block, own=repaired), pitches


def run(state, steps, repaired):
    play, pitches = state
    total = torch.zeros((), device=pitches.device)
    for step in range(steps):
        total += play(pitches[step % 4])[:, 7 * step % play.length].square().mean()
    return total / steps


main(prepare, run, steps=600, small=8)
