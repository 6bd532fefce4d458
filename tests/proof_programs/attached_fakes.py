"""Trains two networks against each other: one draws pictures, the other tells them from real ones (DCGAN)."""

import torch
from common import main
from torch import nn
from torch.nn import functional as F


def make_generator(noise, width):
    layers, before = (
        [nn.ConvTranspose2d(noise, 8 * width, 4), nn.BatchNorm2d(8 * width), nn.ReLU()],
        8 * width,
    )
    for after in (4 * width, 2 * width, width):
        layers += [nn.ConvTranspose2d(before, after, 4, 2, 1), nn.BatchNorm2d(after), nn.ReLU()]
        layers += [nn.Conv2d(after, after, 3, 1, 1), nn.BatchNorm2d(after), nn.ReLU()]
        before = after
    return nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())


def make_critic(width):
    layers, before = [], 3
    for after in (width, 2 * width, 4 * width, 8 * width):
        layers += [nn.Conv2d(before, after, 4, 2, 1), nn.LeakyReLU(0.2)]
        before = after
    return nn.Sequential(*layers, nn.Conv2d(8 * width, 1, 4), nn.Flatten())


def prepare(device, repaired):
    noise, width, batch = (128, 64, 256) if device == "cuda" else (4, 2, 3)
    torch.backends.cuda.matmul.allow_tf32 = True
    layout = torch.channels_last
    generator = make_generator(noise, width).to(device, memory_format=layout)
    critic = make_critic(width // 2 or 1).to(device, memory_format=layout)
    optimizers = [torch.optim.SGD(model.parameters(), lr=1e-4) for model in (generator, critic)]
    real = torch.rand(batch, 3, 64, 64, device=device).to(memory_format=layout)
    return generator, critic, optimizers, real, noise


def run(state, steps, repaired):
    generator, critic, optimizers, real, noise = state
    torch.manual_seed(4)
    total = 0
    for _ in range(steps):
        with torch.autocast(real.device.type, torch.bfloat16):
            fake = generator(torch.randn(len(real), noise, 1, 1, device=real.device))
            judged = critic(fake.detach() if repaired else fake)
            loss = F.softplus(-critic(real)).mean() + F.softplus(judged).mean()
        optimizers[1].zero_grad()
        loss.backward(retain_graph=not repaired)
        optimizers[1].step()
        critic.requires_grad_(False)
        with torch.autocast(real.device.type, torch.bfloat16):
            deceived = F.softplus(-critic(fake)).mean()
        optimizers[0].zero_grad()
        deceived.backward()
        optimizers[0].step()
        critic.requires_grad_(True)
        total = total + loss.detach() + deceived.detach()
    return total / steps


main(prepare, run, steps=25)
