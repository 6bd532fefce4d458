"""Serves a network that removes haze from photographs of any size; cleans up after each request."""

import torch
from common import main
from torch import nn

SIZES = ((720, 960), (600, 800), (1080, 1440), (480, 640), (900, 1200), (768, 1024))


class Dehaze(nn.Module):
    """What each place lets through, from what several convolutions see, as in AOD-Net."""

    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(3, width, 1)
        self.wider = nn.ModuleList(
            nn.Conv2d(before * width, width, size, padding=size // 2)
            for before, size in ((1, 3), (2, 5), (2, 7))
        )
        self.out = nn.Conv2d(4 * width, 3, 3, padding=1)

    def forward(self, photo):
        found = [torch.relu(self.first(photo))]
        for layer in self.wider:
            found.append(torch.relu(layer(torch.cat(found[-2:], 1))))
        k = self.out(torch.cat(found, 1))
        return (k * photo - k + 1).clamp(0, 1)


def serve(net, photo, tidy):
    """Answer a request; `tidy` gives memory back, as somebody did against running out of it."""
    clear = net(photo)
    answer = clear.float().mean()
    del clear
    if tidy:
        torch.cuda.empty_cache()
    return answer


def prepare(device, repaired):
    cuda = device == "cuda"
    dtype = torch.bfloat16 if cuda else torch.float32
    net = Dehaze(16 if cuda else 4).to(device, dtype, memory_format=torch.channels_last).eval()
    photos = [
        torch.rand(1, 3, *(size if cuda else (12, 16)), device=device, dtype=dtype).to(
            memory_format=torch.channels_last
        )
        for size in SIZES
    ]
    return net, photos


@torch.inference_mode()
def run(state, steps, repaired):
    net, photos = state
    total = 0
    for step in range(steps):
        total = total + serve(net, photos[step % len(photos)], tidy=not repaired)
    return total / steps


main(prepare, run, steps=300, warm=12)
