"""A small regression on all ranks: the same loss with 1 process as with 2 nodes and 2 processes on each."""

import argparse
import os

import torch
import torch.distributed as dist

import windlass

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=100)
options = parser.parse_args()

if "RANK" in os.environ:  # a launcher has started us
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank = dist.get_rank() if dist.is_initialized() else 0
world = dist.get_world_size() if dist.is_initialized() else 1
if torch.cuda.is_available():
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
device = "cuda" if torch.cuda.is_available() else "cpu"

torch.manual_seed(0)  # every rank has the same data and takes every world-th row of it
inputs = torch.randn(64, 8, dtype=torch.float64)
targets = inputs @ torch.linspace(-1, 1, 8, dtype=torch.float64) + 0.5
inputs, targets = inputs[rank::world].to(device), targets[rank::world].to(device)
weights = torch.zeros(9, dtype=torch.float64, device=device)

for step in range(1, options.steps + 1):
    errors = inputs @ weights[:8] + weights[8] - targets
    sums = torch.cat([inputs.T @ errors, errors.sum()[None], errors.pow(2).sum()[None]])
    if world > 1:
        dist.all_reduce(sums)
    weights -= options.lr * sums[:9] / 64
    loss = (sums[9] / 64).item()
    if rank == 0:
        windlass.log(step=step, of=options.steps, loss=loss)
print(f"rank {rank} of {world}: loss {loss:.12f}")
if world > 1:
    dist.destroy_process_group()
