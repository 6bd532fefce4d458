"""Counts how much forest became something else between years, from maps of land cover of many years."""

import torch
from common import main

FOREST, CROPS, TOWN, WATER = 1, 2, 3, 4


def draw_maps(years, side, kind, device):
    """Return maps whose cells hold the number of a class; some of them change each year."""
    shape = (side, side)
    now = torch.randint(0, 6, (side // 16, side // 16), device=device)
    now = now.repeat_interleave(16, 0).repeat_interleave(16, 1)
    maps = torch.empty(years, *shape, dtype=kind, device=device)
    for year in range(years):
        maps[year] = now.to(kind)
        changed = torch.rand(shape, device=device) < 0.04
        now = torch.where(changed, torch.randint(0, 6, shape, device=device), now)
    return maps


class Survey:
    """Maps of all years, and the questions that are asked of two of them."""

    def __init__(self, maps):
        self.maps = maps

    def lost(self, before, after):
        """Return which cells were forest and are none."""
        return (self.maps[before] == FOREST) & (self.maps[after] != FOREST)

    def becomes(self, before, after, kind):
        """Return the share of all cells that were forest and are of a kind."""
        return (self.lost(before, after) & (self.maps[after] == kind)).float().mean()

    def smoothed(self, before, after):
        """Return the year's map in which what was lost is marked as cleared."""
        return torch.where(self.lost(before, after), TOWN + 6, self.maps[after])


def prepare(device, repaired):
    years, side = (8, 8192) if device == "cuda" else (3, 64)
    maps = draw_maps(years, side, torch.uint8 if repaired else torch.int64, device)
    return Survey(maps)


@torch.inference_mode()
def run(state, steps, repaired):
    survey = state
    years = len(survey.maps)
    total = torch.zeros((), device=survey.maps.device)
    for step in range(steps):
        before, after = step % years, (step + 1) % years
        total += survey.becomes(before, after, CROPS) + survey.becomes(before, after, TOWN)
        cleared = survey.smoothed(before, after)
        total += (cleared == TOWN + 6).float().mean()
    return total / steps


main(prepare, run, steps=500)
