"""In a job of a plain mpirun or of poprun-py: the sum over the ranks, which each rank prints."""

import os

import torch
import torch.distributed as dist

import gcl.torch

gcl.torch.init_process_group()
x = torch.tensor([1.0 + dist.get_rank()])
dist.all_reduce(x)
said = f"rank {dist.get_rank()} of {dist.get_world_size()}: {x.item():g}\n"
os.write(1, said.encode())  # at once: lines of two ranks must not mix
dist.destroy_process_group()
