"""Updates the embeddings of the users that occur in each batch of events."""

import torch
from common import main


def prepare(device, repaired):
    users, width, events = (100_000, 128, 16384) if device == "cuda" else (100, 4, 32)
    table = torch.randn(users, width, device=device)
    ids = torch.randint(users, (8, events), device=device)
    signal = torch.randn(8, events, width, device=device)
    counts = torch.zeros(users, device=device)
    return table, ids, signal, counts


def run(state, steps, repaired):
    table, ids, signal, counts = state
    table = table.clone()
    for step in range(steps):
        who, what = ids[step % 8], signal[step % 8]
        if repaired:
            counts.zero_().index_fill_(0, who, 1)
            table.sub_(table * counts[:, None], alpha=0.01)
        else:
            seen = torch.unique(who)
            table[seen] = table[seen] * 0.99
        table.index_add_(0, who, what, alpha=0.01)
    return table.mean()


main(prepare, run, steps=200)
