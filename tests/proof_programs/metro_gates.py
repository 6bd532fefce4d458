"""Foretells crowds from lines that the gates of a metro write: when, where, and how many came through."""

from datetime import datetime

import numpy as np
import torch
from common import main
from torch import nn

DAY = 24 * 3600


def read_lines(lines):
    """Return second of the day, day of the week, station and passengers of each line."""
    rows = np.empty((len(lines), 4), np.float32)
    for number, line in enumerate(lines):
        when, station, passengers = line.split(",")
        moment = datetime.strptime(when, "%Y-%m-%dT%H:%M:%S")
        rows[number, 0] = (moment.hour * 3600 + moment.minute * 60 + moment.second) / DAY
        rows[number, 1] = moment.weekday()
        rows[number, 2:] = int(station), int(passengers)
    return rows


def read_columns(lines):
    """The same, with the moments of all lines read at once."""
    whens, stations, passengers = zip(*(line.split(",") for line in lines), strict=True)
    seconds = np.array(whens, "datetime64[s]").astype(np.int64)
    columns = [seconds % DAY / DAY, (seconds // DAY + 3) % 7]  # 1970 began on a Thursday
    columns += [np.array(stations, np.int64), np.array(passengers, np.int64)]
    return np.stack(columns, 1).astype(np.float32)


class Crowds(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(4, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(6))
        self.last = nn.Linear(width, 1)

    def forward(self, rows):
        x = self.first(rows / 64).relu()
        for layer in self.layers:
            x = x + layer(x).relu()
        return self.last(x)


def write_lines(count, random):
    begin = np.datetime64("2026-03-01T05:00:00")
    moments = begin + np.sort(random.integers(0, 14 * DAY, count)).astype("timedelta64[s]")
    stations, passengers = random.integers(0, 90, count), random.integers(1, 40, count)
    return [f"{m},{s},{p}" for m, s, p in zip(moments, stations, passengers, strict=True)]


def prepare(device, repaired):
    lines, width = (3000, 2048) if device == "cuda" else (40, 16)
    random = np.random.default_rng(5)
    return Crowds(width).to(device).eval(), [write_lines(lines, random) for _ in range(6)], device


@torch.inference_mode()
def run(state, steps, repaired):
    model, batches, device = state
    total = torch.zeros((), device=device)
    read = read_columns if repaired else read_lines
    for step in range(steps):
        rows = torch.from_numpy(read(batches[step % len(batches)]))
        total += model(rows.to(device)).square().mean()
    return total / steps


main(prepare, run, steps=50)
