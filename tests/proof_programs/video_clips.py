"""Labels clips of video with a network of three-dimensional convolutions; clips come as bytes from memory."""

import torch
from common import main
from torch import nn


class Clips:
    """Batches of clips, as a reader of files would hand them over."""

    def __init__(self, batches, shape, pinned):
        self.batches = [torch.randint(256, shape, dtype=torch.uint8) for _ in range(batches)]
        if pinned:
            self.batches = [batch.pin_memory() for batch in self.batches]

    def __iter__(self):
        while True:
            yield from self.batches


def prepare(device, repaired):
    shape, width = ((16, 3, 32, 160, 160), 16) if device == "cuda" else ((2, 3, 4, 16, 16), 4)
    dtype = torch.float16 if device == "cuda" else torch.float32
    net = nn.Sequential(
        nn.Conv3d(3, width, (3, 7, 7), (2, 4, 4), (1, 3, 3)), nn.ReLU(),
        nn.Conv3d(width, 4 * width, 3, 2, 1), nn.ReLU(),
        nn.Conv3d(4 * width, 8 * width, 3, 2, 1), nn.ReLU(),
        nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8 * width, 100),
    )  # fmt: skip
    clips = Clips(4, shape, pinned=repaired and device == "cuda")
    return net.to(device, dtype).eval(), iter(clips), device, dtype


@torch.inference_mode()
def run(state, steps, repaired):
    net, clips, device, dtype = state
    total = torch.zeros((), device=device)
    for _ in range(steps):
        clip = next(clips).to(device, non_blocking=True)
        scores = net(clip.to(dtype) / 255 - 0.5)
        total += scores.float().softmax(-1).amax(-1).mean()
    return total / steps


main(prepare, run, steps=160, small=4, warm=4)
