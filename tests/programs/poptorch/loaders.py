"""Data loaders and accessors in all modes, with map-style and iterable data sets and with workers.

Their processes are forked; that of mnist.py is started in the default way, by a fork server, and imports PyTorch.
"""

import poptorch
import torch


class Numbers(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.tensor([float(index)]), torch.tensor(index % 2)


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(torch.tensor([float(i)]) for i in range(first, self.count, step))


def main():
    opts = poptorch.Options().deviceIterations(2).replicationFactor(2)
    opts.Training.gradientAccumulation(2)
    fork = {"sharing_strategy": poptorch.SharingStrategy.Fork}
    for mode, workers in ((poptorch.DataLoaderMode.Sync, 0), (poptorch.DataLoaderMode.Async, 2)):
        with poptorch.DataLoader(
            opts, Numbers(48), batch_size=2, shuffle=True, num_workers=workers, mode=mode, async_options=fork
        ) as loader:
            seen = [value for x, _ in loader for value in x.flatten().tolist()]
            assert loader.combinedBatchSize == 16
            assert sorted(seen) == list(range(48)), (mode, workers)
            assert len(loader) == 3
    options = poptorch.Options()
    rebatched = poptorch.DataLoaderMode.AsyncRebatched
    loader = poptorch.DataLoader(
        options, Stream(101), batch_size=4, num_workers=2, mode=rebatched, async_options=fork
    )
    assert sum(len(batch) for batch in loader) == 100
    loader.terminate()
    accessor = poptorch.AsynchronousDataAccessor(
        torch.utils.data.DataLoader(Numbers(6), batch_size=2), load_indefinitely=False, **fork
    )
    assert sum(len(x) for x, _ in accessor) == 6
    accessor.terminate()
    print("every sample once")


if __name__ == "__main__":
    main()
