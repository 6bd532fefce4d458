"""Follows ice on the sea through a winter: how thick, how cold and how salty it is, at each place of a map."""

import torch
from common import main


class Diary:
    """Counts what was done; the compiler leaves it alone."""

    def __init__(self):
        self.done = {}

    @torch.compiler.disable
    def note(self, *what):
        for name in what:
            self.done[name] = self.done.get(name, 0) + 1


def warmed(thick, cold, salt, air):
    flux = (air - cold) / (thick + 0.3) + 0.1 * torch.exp(-thick)
    return thick, cold + 0.02 * flux, salt


def frozen(thick, cold, salt, air):
    point = -1.8 - 0.05 * salt
    grown = 0.01 * torch.relu(point - cold) / (1 + thick)
    return thick + grown, cold + 0.5 * grown, salt


def melted(thick, cold, salt, air):
    gone = torch.minimum(thick, 0.004 * torch.relu(cold + 0.5))
    return thick - gone, cold - 0.3 * gone, salt


def drained(thick, cold, salt, air):
    return thick, cold, salt * (1 - 0.002 * torch.sigmoid(cold + 3)) + 0.0005 * thick


def ridged(thick, cold, salt, air):
    high = torch.tanh(0.5 * thick)
    return thick * (1 + 0.001 * high), cold, salt - 0.0002 * high * salt


PARTS = {"warm": warmed, "freeze": frozen, "melt": melted, "drain": drained, "ridge": ridged}


class Winter:
    def __init__(self, repaired):
        self.diary, self.repaired = Diary(), repaired

    def day(self, thick, cold, salt, air):
        thick, cold, salt = warmed(thick, cold, salt, air)
        self.diary.note("warm")
        thick, cold, salt = frozen(thick, cold, salt, air)
        self.diary.note("freeze")
        thick, cold, salt = melted(thick, cold, salt, air)
        self.diary.note("melt")
        thick, cold, salt = drained(thick, cold, salt, air)
        self.diary.note("drain")
        thick, cold, salt = ridged(thick, cold, salt, air)
        self.diary.note("ridge")
        return thick, cold, salt

    def whole_day(self, thick, cold, salt, air):
        for part in PARTS.values():
            thick, cold, salt = part(thick, cold, salt, air)
        return thick, cold, salt


def prepare(device, repaired):
    size = 4096 if device == "cuda" else 16
    winter = Winter(repaired)
    day = winter.whole_day if repaired else winter.day
    if device == "cuda":
        day = torch.compile(day, dynamic=False)
    sea = [torch.rand(size, size, device=device) * by for by in (2, -8, 30)]
    return winter, day, sea, -20 * torch.rand(size, size, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    winter, day, sea, air = state
    winter.diary.done.clear()
    for _ in range(steps):
        sea = day(*sea, air)
        if repaired:
            winter.diary.note(*PARTS)
    return sea[0].mean() + sea[1].mean() + sea[2].mean() + sum(winter.diary.done.values()) / steps


main(prepare, run, steps=1500)
