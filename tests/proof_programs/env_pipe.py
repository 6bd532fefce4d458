"""Plays many games at once: another process simulates them, and a network on the GPU says what to do."""

import multiprocessing

import numpy as np
import torch
from common import main
from torch import nn

FRAME = (4, 84, 84)


class Player(nn.Module):
    """The network that learnt to play Atari, for frames of bytes."""

    def __init__(self, width, actions):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(4, width, 8, 4), nn.ReLU(), nn.Conv2d(width, 2 * width, 4, 2), nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3), nn.ReLU(), nn.Flatten(),
            nn.Linear(2 * width * 49, 512), nn.ReLU(), nn.Linear(512, actions),
        )  # fmt: skip

    def forward(self, frames):
        return self.net(frames.float() / 255)


def simulate(pipe, memory, games):
    """Play as told by the pipe: the newest frame of a game moves by its action."""
    random = np.random.default_rng(0)
    scene = random.integers(0, 255, (games, 84, 84), np.uint8)
    frames = np.frombuffer(memory, np.uint8).reshape(games, *FRAME)
    turn = 0
    while (order := pipe.recv()) is not None:
        actions, shared = order
        slot = turn % 4
        frames[:, slot] = scene
        frames[:, slot, turn % 84] = actions[:, None]
        turn += 1
        pipe.send(True if shared else frames)


def prepare(device, repaired):
    games, width = (384, 32) if device == "cuda" else (2, 4)
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe()
    memory = fork.RawArray("B", games * int(np.prod(FRAME)))
    fork.Process(target=simulate, args=(there, memory, games), daemon=True).start()
    player = Player(width, 6).to(device).eval()
    frames = np.frombuffer(memory, np.uint8).reshape(games, *FRAME)
    return player, here, frames, torch.zeros(games, dtype=torch.int64), device


@torch.inference_mode()
def run(state, steps, repaired):
    player, pipe, frames, first, device = state
    actions, total = first.numpy().astype(np.uint8), 0
    for _ in range(steps):
        pipe.send((actions, repaired))
        said = pipe.recv()
        seen = torch.from_numpy(frames if repaired else said).to(device)
        actions = player(seen).argmax(-1).cpu().numpy().astype(np.uint8)
        total += int(actions.sum())
    return total / steps


main(prepare, run, steps=30)
