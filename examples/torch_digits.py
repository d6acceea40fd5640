"""Train a network on hand-written digits with PyTorch's DistributedDataParallel, over gloo and over gcl.

    torchrun --nproc-per-node 2 examples/torch_digits.py
    poprun-py --num-instances 2 --num-replicas 2 python examples/torch_digits.py

Both back ends train the same weights; what differs is the time of a step. It needs pip install 'poprun-py[torch]'.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gcl.torch

DATA = Path(__file__).parent / "data" / "digits.csv.gz"
EPOCHS, BATCH = 8, 64


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images [n, 64] from -1 to 1 and their labels, in an order that is equal on all ranks."""
    table = np.loadtxt(DATA, delimiter=",", dtype=np.uint8)
    table = table[np.random.default_rng(0).permutation(len(table))]
    return torch.from_numpy(table[:, :-1] / 8.0 - 1).float(), torch.from_numpy(table[:, -1]).long()


def train(group: dist.ProcessGroup) -> tuple[nn.Module, float, float]:
    """The trained network, its accuracy on a fifth of the images, and the median milliseconds of a step."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    model = DistributedDataParallel(network, process_group=group, gradient_as_bucket_view=True)
    optimiser = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    images, labels = digits()
    test, rank, ranks = len(images) // 5, group.rank(), group.size()
    seconds = []
    for _ in range(EPOCHS):
        for first in range(test, len(images) - BATCH, BATCH):
            some = slice(first + rank * BATCH // ranks, first + (rank + 1) * BATCH // ranks)
            since = time.perf_counter()
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images[some]), labels[some]).backward()
            optimiser.step()
            seconds.append(time.perf_counter() - since)
    right = (network(images[:test]).argmax(1) == labels[:test]).float().mean().item()
    return network, right, 1e3 * statistics.median(seconds)


def main() -> None:
    torch.set_num_threads(1)
    if "RANK" in os.environ:  # torchrun
        dist.init_process_group("gloo")
    else:
        gcl.torch.init_process_group("gloo")
    networks = []
    for backend in ("gloo", "gcl"):
        network, accuracy, step = train(dist.new_group(backend=backend))
        networks.append(network)
        if dist.get_rank() == 0:
            print(f"{backend:5} {step:6.2f} ms per step, test accuracy {100 * accuracy:.2f} %", flush=True)
    pairs = zip(*(network.parameters() for network in networks), strict=True)
    apart = max((first - other).abs().max().item() for first, other in pairs)
    if dist.get_rank() == 0:
        print(f"largest difference of a weight: {apart:.1e}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
