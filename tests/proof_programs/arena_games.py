"""Plays a tournament of many games on the GPU: in each round a network chooses the move of every game."""

import torch
from common import main
from torch import nn


class Player(nn.Module):
    """Residual convolutions over a board, and the value of each field."""

    def __init__(self, planes, width, depth):
        super().__init__()
        self.first = nn.Conv2d(planes, width, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(depth))
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, boards):
        x = torch.relu(self.first(boards))
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return self.out(x).flatten(1)


def moves(player, boards, together):
    """Return the field that each game plays."""
    if together:
        return player(boards).argmax(1)
    return torch.cat([player(board[None]).argmax(1) for board in boards])


def prepare(device, repaired):
    games, side, width, depth = (192, 9, 64, 6) if device == "cuda" else (4, 3, 4, 1)
    player = Player(2, width, depth).to(device).eval()
    boards = torch.randint(0, 2, (games, 2, side, side), device=device).float()
    return player, boards


@torch.inference_mode()
def run(state, steps, repaired):
    player, first = state
    boards = first.clone()
    total = torch.zeros((), device=boards.device)
    for _ in range(steps):
        fields = moves(player, boards, together=repaired)
        played = torch.zeros_like(boards[:, 0]).flatten(1)
        played.scatter_(1, fields[:, None], 1.0)
        boards = torch.stack(
            [boards[:, 1], torch.maximum(boards[:, 0], played.view_as(boards[:, 0]))], 1
        )
        total += boards.mean()
    return total / steps


main(prepare, run, steps=50)
