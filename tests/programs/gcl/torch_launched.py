"""In a job of mpirun or poprun-py: print the sum over the ranks on each rank."""

import os

import torch
import torch.distributed as dist

import gcl.torch

gcl.torch.init_process_group()
x = torch.tensor([1.0 + dist.get_rank()])
dist.all_reduce(x)
said = f"rank {dist.get_rank()} of {dist.get_world_size()}: {x.item():g}\n"
os.write(1, said.encode())  # in one write, so that lines of two ranks do not mix
dist.destroy_process_group()
