"""Forecasts the demand for taxis in several cities with one compiled network; each city has weights of its own at the end."""

import torch
import torch._inductor.config
from common import main
from torch import nn
from torch.nn import functional as F

torch._inductor.config.force_disable_caches = (
    True  # each start compiles, as the first on a machine does
)
REQUESTS = 1600
CITIES = ("Graz", "Lyon", "Porto", "Turku")


class Demand(nn.Module):
    """A network that all cities share, and what each of them adds to it."""

    def __init__(self, hours, width):
        super().__init__()
        self.mix = nn.Linear(hours, width)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, len(CITIES) * width).view(-1, width))
        self.shift = nn.Parameter(torch.linspace(-1, 1, len(CITIES) * width).view(-1, width))
        self.last = nn.Linear(width, 24)

    def forward(self, history, city):
        """Forecast a day; `city` is its name, or its number in a tensor."""
        if isinstance(city, str):
            row = CITIES.index(city)
            scale, shift = self.scale[row], self.shift[row]
        else:
            scale, shift = self.scale.index_select(0, city), self.shift.index_select(0, city)
        x = self.mix(torch.log1p(history))
        x = F.gelu(x * scale + shift)
        return F.softplus(self.last(x))


class Service:
    """Answers the requests of the cities in turn."""

    def __init__(self, model, device, by_name):
        self.compiled = torch.compile(model)
        numbers = [torch.tensor([number], device=device) for number in range(len(CITIES))]
        self.keys = list(CITIES) if by_name else numbers

    def forecast(self, request, history):
        city = self.keys[request * len(CITIES) // REQUESTS % len(CITIES)]
        return self.compiled(history, city)


def prepare(device, repaired):
    places, hours, width = (131072, 168, 256) if device == "cuda" else (8, 12, 16)
    service = Service(Demand(hours, width).to(device).eval(), device, by_name=not repaired)
    history = torch.rand(4, places, hours, device=device) * 50
    return service, history


@torch.no_grad()
def run(state, steps, repaired):
    service, history = state
    total = torch.zeros((), device=history.device)
    for request in range(steps):
        total += service.forecast(request, history[request % 4]).mean()
    return total / steps


main(prepare, run, steps=REQUESTS, warm=2)
