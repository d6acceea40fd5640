"""Trains on data in random orders with random changes; prints a digest for each kind, and the samples loaded."""

import random
import warnings

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import ipu_emu.torch
import popdist_py
from ipu_emu.hostio import digest

popdist_py.init()
instance, instances = popdist_py.getInstanceIndex(), popdist_py.getNumInstances()
for seed in (random.seed, np.random.seed, torch.manual_seed):
    seed(instance + 1)  # processes that draw for themselves draw other numbers
module_generator = np.random.default_rng(instance)


class Samples(torch.utils.data.Dataset):
    """Each generator that a program may use changes the samples."""

    def __init__(self):
        self.own = random.Random(instance)
        self.loaded = []

    def __len__(self):
        return 16

    def __getitem__(self, index):
        self.loaded.append(index)
        noise = [random.random(), np.random.rand(), torch.rand(()), self.own.random(), module_generator.random()]
        return torch.tensor([float(noise_of) for noise_of in noise]) + index, torch.tensor([index / 16])


class Sorted(torch.utils.data.Sampler):
    def __len__(self):
        return 16

    def __iter__(self):
        return iter(np.argsort(np.random.rand(16)).tolist())


class Stream:
    def __iter__(self):
        for _ in range(4):
            yield torch.rand(4, 5), torch.tensor(np.random.rand(4, 1), dtype=torch.float32)


def noisy(samples):
    inputs, targets = torch.utils.data.default_collate(samples)
    return inputs.flip(0) * (1 + torch.rand(())), targets


def loader(**settings):
    return DataLoader(Samples(), **{"batch_size": 4} | settings)


KINDS = {
    "samples": Samples(),
    "shuffled": loader(shuffle=True),
    "workers": loader(shuffle=True, num_workers=1),
    "collated": loader(collate_fn=noisy),
    "weighted": loader(sampler=WeightedRandomSampler([1.0] * 16, 16, replacement=False)),
    "replaced": loader(sampler=RandomSampler(range(16), replacement=True)),
    "subset": loader(sampler=SubsetRandomSampler(range(0, 16, 2))),
    "sorted": loader(sampler=Sorted()),
    "grouped": DataLoader(Samples(), batch_sampler=BatchSampler(Sorted(), 4, drop_last=True)),
    "distributed": loader(sampler=DistributedSampler(Samples(), instances, instance)),
    "stream": Stream(),
}

warnings.simplefilter("ignore")
for kind, data in KINDS.items():
    module = torch.nn.Linear(5, 1)
    torch.nn.init.ones_(module.weight)
    torch.nn.init.zeros_(module.bias)
    sgd = torch.optim.SGD(module.parameters(), 0.001)
    ipu_emu.torch.train(module, torch.nn.MSELoss(), sgd, data, batch_size=4, epochs=2, progress=False)
    loaded = sorted(getattr(getattr(data, "dataset", data), "loaded", ()))
    print("trained", kind, digest(module), *loaded)
