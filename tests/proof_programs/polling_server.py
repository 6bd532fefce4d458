"""Answers requests: a client sends the next one when it has the answer to the one before."""

import queue
import threading
import time

import torch
from common import main
from torch import nn


def prepare(device, repaired):
    width, tokens, layers = (4096, 4096, 8) if device == "cuda" else (8, 2, 2)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = nn.Sequential(
        *(part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU()))
    )
    return model.to(device, dtype), torch.randn(tokens, width, device=device, dtype=dtype)


def client(requests, answers, number):
    for _ in range(number):
        requests.put("next")
        answers.get()


def next_request(requests, repaired):
    while not repaired and requests.empty():
        time.sleep(0.005)
    return requests.get()


@torch.inference_mode()
def run(state, steps, repaired):
    model, x = state
    requests, answers = queue.Queue(), queue.Queue()
    caller = threading.Thread(target=client, args=(requests, answers, steps))
    caller.start()
    for _ in range(steps):
        next_request(requests, repaired)
        answer = model(x).float().mean().item()
        answers.put(answer)
    caller.join()
    return answer


main(prepare, run, steps=30)
