"""Scores transactions for fraud, and writes what it said of each to a log that auditors read."""

import tempfile

import numpy as np
import torch
from common import main
from torch import nn


def write_text(file, first, scores, labels):
    """Write a line for each transaction."""
    for number, (score, label) in enumerate(zip(scores.tolist(), labels.tolist(), strict=True)):
        line = f'{{"transaction": {first + number}, "score": {score:.5f}, "class": {label}}}\n'
        file.write(line.encode())


def write_table(file, first, scores, labels):
    """Write the same as numbers of fixed width, all at once."""
    rows = np.zeros(len(scores), [("transaction", "<i8"), ("score", "<f4"), ("class", "i1")])
    rows["transaction"] = np.arange(first, first + len(scores))
    rows["score"], rows["class"] = scores, labels
    file.write(rows.tobytes())


def prepare(device, repaired):
    fields, width, batch = (256, 2048, 16384) if device == "cuda" else (8, 16, 8)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    net = nn.Sequential(
        nn.Linear(fields, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4),
    )  # fmt: skip
    transactions = torch.randn(4, batch, fields, device=device, dtype=dtype)
    file = tempfile.TemporaryFile()  # noqa: SIM115
    return net.to(device, dtype).eval(), transactions, file


@torch.inference_mode()
def run(state, steps, repaired):
    net, transactions, file = state
    file.seek(0)
    total = 0.0
    for step in range(steps):
        chances = net(transactions[step % 4]).float().softmax(1)
        scores, labels = chances.max(1)
        scores, labels = scores.cpu().numpy(), labels.cpu().numpy()
        (write_table if repaired else write_text)(file, step * len(scores), scores, labels)
        total += float(scores.mean()) + float(labels.mean())
    file.flush()
    return total / steps


main(prepare, run, steps=90)
