"""Teaches a robot's gripper from what its camera saw, with views that are recoloured and blurred at random."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


def recolour(views, factors, blur):
    """Changes brightness, contrast and colours of views (N, 3, H, W) by factors (N, 3), and blurs them."""
    x = views.float() / 255
    bright, contrast, colour = (factors[:, k, None, None, None] for k in range(3))
    x = (x * bright).clamp(0, 1)
    grey = x.mean((1, 2, 3), keepdim=True)
    x = (grey + (x - grey) * contrast).clamp(0, 1)
    grey = x.mean(1, keepdim=True)
    x = (grey + (x - grey) * colour).clamp(0, 1)
    x = F.pad(x, (2, 2, 2, 2), mode="reflect")
    return F.conv2d(x, blur.expand(3, 1, 5, 5), groups=3)


def soft_blur():
    line = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
    return (line[:, None] * line)[None, None]


class Episodes(Dataset):
    def __init__(self, views, moves, length, transform):
        self.views, self.moves, self.length, self.transform = views, moves, length, transform
        self.blur = soft_blur()

    def __len__(self):
        return self.length

    def __getitem__(self, at):
        view = self.views[at % len(self.views)]
        chance = torch.Generator().manual_seed(at)
        factors = 0.8 + 0.4 * torch.rand(3, generator=chance)
        if self.transform:
            view = recolour(view[None], factors[None], self.blur)[0]
        return view, factors, self.moves[at % len(self.moves)]


class Policy(nn.Module):
    def __init__(self, width, moves):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(inner, width, 3, stride=2, padding=1) for inner in (3, width, width, width)
        )
        self.last = nn.Linear(width, moves)

    def forward(self, x):
        for conv in self.convs:
            x = torch.relu(conv(x))
        return self.last(x.mean((2, 3)))


def prepare(device, repaired):
    cuda = device == "cuda"
    count, size, batch, workers, width = (512, 256, 64, 8, 256) if cuda else (8, 16, 4, 1, 4)
    views = torch.randint(256, (count, 3, size, size), dtype=torch.uint8)
    moves = torch.randn(count, 7)
    episodes = Episodes(views, moves, batch * 2000, transform=not repaired)
    loader = DataLoader(episodes, batch_size=batch, num_workers=workers, pin_memory=cuda)
    model = Policy(width, 7).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    return model, optimizer, iter(loader), soft_blur().to(device), device


def run(state, steps, repaired):
    model, optimizer, batches, blur, device = state
    total = torch.zeros((), device=device)
    for _ in range(steps):
        views, factors, moves = next(batches)
        x = views.to(device, non_blocking=True)
        if repaired:
            x = recolour(x, factors.to(device, non_blocking=True), blur)
        with torch.autocast(device, torch.bfloat16):
            guess = model(x.contiguous(memory_format=torch.channels_last))
        loss = F.mse_loss(guess.float(), moves.to(device, non_blocking=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    return total / steps


main(prepare, run, steps=96)
