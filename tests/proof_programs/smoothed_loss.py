"""Trains the output layer of a language model."""

import torch
from common import main
from torch.nn import functional as F

SMOOTH = 0.1


def prepare(device, repaired):
    tokens, width, words = (8192, 2048, 32768) if device == "cuda" else (8, 4, 20)
    head = (torch.randn(words, width, device=device) / width**0.5).requires_grad_()
    hidden = torch.randn(tokens, width, device=device)
    return head, hidden, torch.randint(words, (tokens,), device=device)


def run(state, steps, repaired):
    head, hidden, labels = state
    words = len(head)
    for _ in range(steps):
        with torch.autocast(hidden.device.type, torch.bfloat16):
            scores = hidden @ head.T
        if repaired:
            loss = F.cross_entropy(scores.float(), labels, label_smoothing=SMOOTH)
        else:
            target = F.one_hot(labels, words) * (1 - SMOOTH) + SMOOTH / words
            loss = -(target * scores.float().log_softmax(1)).sum(1).mean()
        loss.backward()
        with torch.no_grad():
            head -= 0.1 * head.grad
        head.grad = None
    return loss.detach()


main(prepare, run, steps=8)
