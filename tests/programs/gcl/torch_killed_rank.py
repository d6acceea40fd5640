"""Under torchrun: rank 1 is killed in the middle of training, and rank 0 says what it hears."""

import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gcl.torch

dist.init_process_group("gcl")
os.write(1, f"process {os.getpid()}\n".encode())  # at once: lines of two ranks must not mix
model = DistributedDataParallel(nn.Linear(1000, 1000), gradient_as_bucket_view=True)
model.register_comm_hook(None, gcl.torch.ddp_hook)
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends the others when one dies
since = 0.0
try:
    for step in range(10):
        if step == 5:
            since = time.monotonic()
            if dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        model(torch.ones(4, 1000)).sum().backward()
except RuntimeError as error:
    print(f"rank 0 heard after {time.monotonic() - since:.2f} s: {error}", flush=True)
    raise SystemExit(1) from None
