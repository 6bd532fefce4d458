"""Brings millions of splats of a scene into the view of a camera, each turned by a matrix of its own."""

import torch
from common import main


class Splats:
    """Matrices and offsets of splats, and places on the film for a camera."""

    def __init__(self, count, device):
        self.turns = torch.linalg.qr(torch.randn(4096, 3, 3, device="cpu")).Q.to(device)
        self.turns = self.turns.repeat(count // 4096, 1, 1)
        self.offsets = torch.randn(count, 3, device=device)
        self.centres = torch.randn(count, 3, device=device)

    def turned(self, plainly):
        """Return the offset of each splat, turned by its matrix."""
        if plainly:
            x, y, z = self.offsets[:, None].unbind(2)
            return self.turns[:, :, 0] * x + self.turns[:, :, 1] * y + self.turns[:, :, 2] * z
        return torch.bmm(self.turns, self.offsets[:, :, None])[:, :, 0]

    def seen(self, camera, plainly):
        """Return the places of the splats on the film of a camera."""
        places = (self.centres + self.turned(plainly)) @ camera
        return places[:, :2] / (places[:, 2:].abs() + 1)


def prepare(device, repaired):
    splats = Splats(3 << 20 if device == "cuda" else 4096, device)
    return splats, torch.randn(8, 3, 3, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    splats, cameras = state
    total = torch.zeros((), device=cameras.device)
    for step in range(steps):
        total += splats.seen(cameras[step % 8], plainly=repaired).square().mean()
    return total / steps


main(prepare, run, steps=400)
