"""Tensor and data parallel groups in one job: four ranks, a communicator for each group.

    torchrun --nproc-per-node 4 groups.py --steps 16 --plant-rank 2

Ranks 2g and 2g+1 are tensor group g, ranks r and r+2 data group r. Two GPUs are enough: ranks 0
and 3 share the first one, 1 and 2 the second, so that no group has a GPU twice, which NCCL refuses.
The kernels of a GPU's two ranks take turns then: their times say nothing of a job with four GPUs.

Each step, NVTX range `step`, sums activations after each layer among the tensor group and the
gradients once among the data group. The rank of --plant-rank sleeps before each step. Each rank
writes what it sent, and how long it slept, to --out.
"""

import argparse
import contextlib
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

SLEEP_S = 0.03


class Rank:
    def __init__(self, args):
        self.args, self.rank = args, int(os.environ["RANK"])
        self.cuda = args.device == "cuda"
        device = torch.device(args.device, (0, 1, 1, 0)[self.rank] if self.cuda else None)
        if self.cuda:
            torch.cuda.set_device(device)
        dist.init_process_group("gloo")
        # All ranks make all groups, in the same order.
        tensor = [self.group(ranks) for ranks in ([0, 1], [2, 3])]
        data = [self.group(ranks) for ranks in ([0, 2], [1, 3])]
        self.tensor, self.data = tensor[self.rank // 2], data[self.rank % 2]
        self.activations, self.weights, self.gradients = (
            torch.zeros(args.hidden, args.hidden, device=device) for _ in range(3)
        )

    def group(self, ranks):
        return dist.new_group(ranks, backend="nccl" if self.cuda else "gloo")

    def step(self):
        for _ in range(self.args.layers):
            torch.mm(self.activations, self.weights, out=self.gradients)
            dist.all_reduce(self.activations, group=self.tensor)
        dist.all_reduce(self.gradients, group=self.data)
        if self.cuda:
            torch.cuda.synchronize()

    def run(self):
        """Do the steps between the profiler's start and stop; return how long each one slept."""
        for _ in range(3):
            self.step()
        dist.barrier()
        if self.cuda:
            torch.cuda.profiler.start()
            dist.barrier()  # a profiler takes each rank another time to start
        slept = []
        for _ in range(self.args.steps):
            with torch.cuda.nvtx.range("step") if self.cuda else contextlib.nullcontext():
                begin = time.perf_counter()
                if self.rank == self.args.plant_rank:
                    time.sleep(SLEEP_S)
                slept.append(time.perf_counter() - begin)
                self.step()
        if self.cuda:
            torch.cuda.profiler.stop()
        return slept


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--plant-rank", type=int)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--go", type=Path)
    parser.add_argument("--out", default="")
    args = parser.parse_args()
    while args.go and not args.go.exists():
        time.sleep(0.02)
    rank = Rank(args)
    slept = rank.run()
    message = rank.activations.numel() * rank.activations.element_size()
    calls = {"tensor": args.steps * args.layers, "data": args.steps}
    facts = {"rank": rank.rank, "slept_s": slept, "bytes": message, "calls": calls}
    if args.out:
        Path(f"{args.out}.{rank.rank}.json").write_text(json.dumps(facts))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
