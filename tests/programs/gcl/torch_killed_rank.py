"""Under torchrun or poprun-py: rank 1 is killed in the middle of training, and rank 0 prints its error."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gcl.torch

if "RANK" in os.environ:
    dist.init_process_group("gcl")
else:
    gcl.torch.init_process_group()
os.write(1, f"process {os.getpid()}\n".encode())  # in one write, so that lines of two ranks do not mix
model = DistributedDataParallel(nn.Linear(1000, 1000), gradient_as_bucket_view=True)
if sys.argv[1] == "ddp_hook":
    model.register_comm_hook(None, gcl.torch.ddp_hook)
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # launchers end the others when one dies
since = 0.0
try:
    for step in range(10):
        if step == 5:
            since = time.monotonic()
            if dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        model(torch.ones(4, 1000)).sum().backward()
except RuntimeError as error:
    print(f"rank 0 heard after {time.monotonic() - since:.2f} s: {type(error).__name__}: {error}", flush=True)
    raise SystemExit(1) from None
