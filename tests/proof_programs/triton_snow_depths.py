"""Centres maps of snow by sensor before a layer reads them: means of each sensor over all places and days, in Triton."""

import torch
import triton
import triton.language as tl
from common import main
from torch import nn
from torch.nn import functional as F


@triton.jit
def sum_up(x, sums, rows, width, ROWS: tl.constexpr, SENSORS: tl.constexpr):
    sensors = tl.program_id(0) * SENSORS + tl.arange(0, SENSORS)
    share = rows // tl.num_programs(1)
    begin = tl.program_id(1) * share
    total = tl.zeros((SENSORS,), tl.float32)
    for first in range(begin, begin + share, ROWS):
        places = first + tl.arange(0, ROWS)
        total += tl.sum(tl.load(x + places[:, None] * width + sensors[None, :]), 0)
    tl.store(sums + tl.program_id(1) * width + sensors, total)


class Centred(nn.Module):
    """Measures (places, sensors) less the mean of each sensor, and a layer that reads a part of them."""

    def __init__(self, width, hidden, pieces, rows, sensors):
        super().__init__()
        self.pieces, self.rows, self.sensors = pieces, rows, sensors
        self.read = nn.Linear(width, hidden)

    def means(self, x):
        places, width = x.shape
        sums = x.new_empty(self.pieces, width)
        grid = (width // self.sensors, self.pieces)
        sum_up[grid](x, sums, places, width, ROWS=self.rows, SENSORS=self.sensors)
        return sums.sum(0) / places

    def forward(self, x):
        means = self.means(x)
        return F.relu(self.read(x[:64] - means))


def prepare(device, repaired):
    cuda = device == "cuda"
    places, width, hidden, pieces, tile = (
        (2**18, 256, 64, 32, 2048) if cuda else (2**8, 16, 8, 2, 64)
    )
    torch.manual_seed(32)
    sensors = 64 if repaired else 1
    if not cuda:
        sensors = min(sensors, width)
    model = Centred(width, hidden, pieces, tile // sensors, sensors).to(device).eval()
    return model, torch.rand(2, places, width, device=device)


@torch.inference_mode()
def run(state, steps, repaired):
    model, x = state
    total = torch.zeros((), device=x.device)
    for step in range(steps):
        total += model(x[step % 2]).mean()
    return total / steps


main(prepare, run, steps=500)
