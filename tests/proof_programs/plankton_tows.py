"""Learns to name plankton from the pictures of a few tows, over many short epochs."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Tows(Dataset):
    """Pictures of animals, each turned some way round."""

    def __init__(self, count, size, kinds):
        self.pictures = torch.randint(256, (count, 1, size, size), dtype=torch.uint8)
        self.names = torch.randint(kinds, (count,))

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, at):
        picture = self.pictures[at].float() / 255
        return torch.rot90(picture, at % 4, (1, 2)).contiguous(), self.names[at]


def make_loader(tows, batch, workers, device, keep):
    return DataLoader(
        tows,
        batch_size=batch,
        num_workers=workers,
        pin_memory=device == "cuda",
        drop_last=True,
        persistent_workers=keep,
    )


def prepare(device, repaired):
    cuda = device == "cuda"
    count, size, kinds, batch, workers, width = (
        (1536, 64, 40, 128, 8, 192) if cuda else (8, 8, 3, 4, 1, 4)
    )
    loader = make_loader(Tows(count, size, kinds), batch, workers, device, keep=repaired)
    layers = []
    for inner in (1, width, width, width):
        layers += [nn.Conv2d(inner, width, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, kinds))
    model = model.to(device, memory_format=torch.channels_last)
    return loader, model, torch.optim.SGD(model.parameters(), lr=0.01, fused=True), device


def run(state, steps, repaired):
    loader, model, optimizer, device = state
    total = torch.zeros((), device=device)
    for _ in range(steps):
        for pictures, names in loader:
            x = pictures.to(device, non_blocking=True, memory_format=torch.channels_last)
            y = names.to(device, non_blocking=True)
            with torch.autocast(device, torch.bfloat16):
                guess = model(x)
            loss = F.cross_entropy(guess.float(), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach()
    return total / steps


main(prepare, run, steps=6, small=1, warm=1)
