"""Finds for each galaxy of a new survey the one of a catalogue whose features are most alike."""

import torch
from common import main


class Catalogue:
    """Features of known galaxies, made smaller by a learned map."""

    def __init__(self, known, raw, width, exact, device):
        self.reduce = torch.randn(raw, width, device=device) / raw**0.5
        self.known = torch.randn(known, raw, device=device) @ self.reduce
        self.how = "donot_use_mm_for_euclid_dist" if exact else "use_mm_for_euclid_dist"

    def match(self, features):
        """Return how far each galaxy is from the nearest known one, and which that is."""
        away = torch.cdist(features @ self.reduce, self.known, compute_mode=self.how)
        return away.min(1)


def prepare(device, repaired):
    seen, known, raw, width = (4096, 8192, 512, 96) if device == "cuda" else (16, 40, 24, 8)
    catalogue = Catalogue(known, raw, width, not repaired, device)
    return catalogue, torch.randn(4, seen, raw, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    catalogue, surveys = state
    total = torch.zeros((), device=surveys.device)
    for step in range(steps):
        away, which = catalogue.match(surveys[step % 4])
        total += away.mean() + 1e-9 * which[0]
    return total / steps


main(prepare, run, steps=80)
