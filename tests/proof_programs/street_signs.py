"""Tells street signs apart while their colours are changed as a policy in a YAML file says."""

import tempfile
from pathlib import Path

import torch
import yaml
from common import main
from torch import nn

CHANGES = ("brightness", "contrast", "red", "green", "blue")


def write_policy(to, rules):
    """Write rules as somebody would tune them: groups of changes, each with a range and a chance."""
    text = {
        "policy": [
            {
                "name": f"rule {number}",
                "chance": 0.25 + number % 4 / 8,
                "changes": {
                    change: {"from": 0.7 + (number * at) % 5 / 20, "to": 1.1 + number % 3 / 10}
                    for at, change in enumerate(CHANGES)
                },
            }
            for number in range(rules)
        ]
    }
    to.write_text(yaml.safe_dump(text))


class Augmenter:
    def __init__(self, file, keep):
        self.file, self.kept = file, None
        if keep:
            self.kept = self.read()

    def read(self):
        """Return ranges of each rule, as numbers on the host."""
        policy = yaml.safe_load(self.file.read_text())["policy"]
        return [
            (rule["chance"], [(r["from"], r["to"]) for r in map(rule["changes"].get, CHANGES)])
            for rule in policy
        ]

    def __call__(self, pictures, step):
        rules = self.kept or self.read()
        chance, ranges = rules[step % len(rules)]
        light, contrast, *colours = (low + (high - low) * chance for low, high in ranges)
        pictures = (pictures - 0.5) * contrast + 0.5 * light
        return torch.cat([pictures[:, at : at + 1] * colours[at] for at in range(3)], 1)


def prepare(device, repaired):
    batch, side, width, rules = (128, 128, 64, 12) if device == "cuda" else (2, 8, 4, 3)
    folder = tempfile.TemporaryDirectory()
    file = Path(folder.name) / "policy.yaml"
    write_policy(file, rules)
    model = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.ReLU(),
        nn.Conv2d(width, width, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 43),
    ).to(device).eval()  # fmt: skip
    pictures = torch.rand(4, batch, 3, side, side, device=device)
    return model, Augmenter(file, keep=repaired), pictures, folder


@torch.inference_mode()
def run(state, steps, repaired):
    model, augment, pictures, _ = state
    total = torch.zeros((), device=pictures.device)
    for step in range(steps):
        total += model(augment(pictures[step % 4], step)).square().mean()
    return total / steps


main(prepare, run, steps=110)
