"""Make collectives and send messages in a PyTorch job over several hosts; print its transport and errors.

program.py HOSTS        real ones (0), or as many as simulated by names
"""

import os
import sys

import torch
import torch.distributed as dist

import gcl.torch
from tests.gcl.torch.test_collectives import combined, moves, same
from tests.gcl.torch.test_several_hosts import deferred_receive, messages

torch.set_num_threads(1)
simulated = int(sys.argv[1])
if "TORCHELASTIC_RUN_ID" in os.environ:
    dist.init_process_group("gcl")
else:
    rank = int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0")))
    options = gcl.torch.Options(host=f"host {rank * simulated // 4}") if simulated else None
    gcl.torch.init_process_group(pg_options=options)
rank = dist.get_rank()
wrong = moves()
everyone = [
    torch.randn(50_000, generator=torch.Generator().manual_seed(seed)) for seed in range(dist.get_world_size())
]
total = everyone[rank].clone()
dist.all_reduce(total)
if not same(total, combined(everyone, dist.ReduceOp.SUM)):
    wrong.append("a sum")
said = messages()
if rank == 0 and said != ([1, 2, 3], 18.0):
    wrong.append(said)
if not deferred_receive():
    wrong.append("a receive that nobody waits for")
gcl.torch.monitored_barrier(timeout=30.0)
group = dist.group.WORLD._group
transport = getattr(group, "host_transport", "")
line = f"rank {rank} of {dist.get_world_size()} by {type(group).__name__} {transport}: {wrong}\n"
os.write(1, line.encode())  # in one write, so that lines of two ranks do not mix
dist.destroy_process_group()
