"""DataLoader and AsynchronousDataAccessor."""

import os
import random
import signal

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")

from torch.utils.data import DistributedSampler, WeightedRandomSampler  # noqa: E402

import ipu_emu.poptorch as poptorch  # noqa: E402

pytestmark = pytest.mark.torch


class Numbers(torch.utils.data.Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.tensor([float(index)]), index


def options(iterations=1, accumulation=1, replicas=1, process=0, processes=1):
    chosen = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas).randomSeed(7)
    chosen.Training.gradientAccumulation(accumulation)
    chosen.Distributed.configureProcessId(process, processes)
    return chosen


def test_the_batch_is_that_of_a_step():
    loader = poptorch.DataLoader(options(5, 10), Numbers(2000), batch_size=5)
    assert (loader.combinedBatchSize, len(loader)) == (250, 8)


def test_processes_own_equal_shares():
    parts = []
    for process in range(3):
        loader = poptorch.DataLoader(options(process=process, processes=3), Numbers(100), batch_size=4)
        assert (loader.combinedBatchSize, len(loader)) == (4, 8)
        parts.append([int(i) for _, ids in loader for i in ids])
    assert parts == [list(range(32 * p, 32 * p + 32)) for p in range(3)]


def test_a_shuffled_epoch_has_every_sample_once_over_all_processes():
    loaders = [
        poptorch.DataLoader(options(2, process=p, processes=2), Numbers(48), batch_size=4, shuffle=True)
        for p in range(2)
    ]
    for _ in range(2):
        seen = [int(i) for loader in loaders for _, ids in loader for i in ids]
        assert sorted(seen) == list(range(48))
        assert seen != list(range(48))


def test_asynchronous_batches_are_those_of_the_loader():
    sync = [(x.clone(), i.clone()) for x, i in poptorch.DataLoader(options(2), Numbers(20), batch_size=2)]
    settings = {"sharing_strategy": poptorch.SharingStrategy.Fork}
    loader = poptorch.DataLoader(
        options(2), Numbers(20), batch_size=2, mode=poptorch.DataLoaderMode.Async, async_options=settings
    )
    for _ in range(2):
        batches = [(x.clone(), i.clone()) for x, i in loader]
        assert len(batches) == 5
        for (x, i), (expected, number) in zip(batches, sync, strict=True):
            assert torch.equal(x, expected)
            assert torch.equal(i, number)
    for _ in loader:
        break
    assert [int(i[0]) for _, i in loader] == [0, 4, 8, 12, 16]
    loader.terminate()


class Broken(Numbers):
    def __getitem__(self, index):
        raise ValueError("no such file")


def test_a_worker_that_fails_is_named():
    settings = {"sharing_strategy": poptorch.SharingStrategy.Fork}
    loader = poptorch.DataLoader(options(), Broken(4), mode=poptorch.DataLoaderMode.Async, async_options=settings)
    with pytest.raises(poptorch.Error, match=r"worker thread failed to start.*no such file"):
        next(iter(loader))
    loader.terminate()


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_the_global_order_is_the_same_for_every_spread_and_has_each_sample_once(processes):
    expected = None
    for count in (1, processes):
        seen = []
        for number in range(count):
            options = poptorch.Options().randomSeed(7).deviceIterations(3).replicationFactor(4 // count)
            options.Training.gradientAccumulation(2)
            options.Distributed.configureProcessId(number, count)
            loader = poptorch.DataLoader(options, range(96), batch_size=2, shuffle=True)
            epochs = [[int(number) for batch in loader for number in batch] for _ in range(2)]
            seen.append(epochs)
        order = [[number for part in seen for number in part[epoch]] for epoch in range(2)]
        expected = expected or order
        assert order == expected
        assert sorted(order[0]) == sorted(order[1]) == list(range(96))
        assert order[0] != order[1]


def test_iterable_data_lose_one_batch_in_all_where_batches_are_put_together_again():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(torch.arange(10))

    loader = poptorch.DataLoader(
        poptorch.Options(), Stream(), batch_size=4, mode=poptorch.DataLoaderMode.AsyncRebatched,
        rebatched_worker_size=3, async_options={"sharing_strategy": poptorch.SharingStrategy.Fork},
    )  # fmt: skip
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    loader.terminate()


@pytest.fixture
def signals():
    """Restore the signal handler, which PyTorch's loaders replace."""
    before = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, before)


class Processes(Numbers):
    def __getitem__(self, index):
        return torch.tensor([index, os.getpid()])


def test_a_worker_that_is_killed_in_an_epoch_is_named_and_the_next_epoch_has_new_ones(signals):
    loader = poptorch.DataLoader(options(), Processes(64), num_workers=2)
    batches = iter(loader)
    worker = int(next(batches)[0, 1])
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(poptorch.Error, match=rf"DataLoader worker 0 \(process {worker}\) was killed by SIGKILL"):
        list(batches)
    assert [int(batch[0, 0]) for batch in loader] == list(range(64))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_killed_process_that_loads_ahead_is_named_in_every_later_epoch(workers):
    loader = poptorch.DataLoader(
        options(), Processes(64), num_workers=workers, mode=poptorch.DataLoaderMode.Async,
        async_options={"sharing_strategy": poptorch.SharingStrategy.Fork},
    )  # fmt: skip
    process = int(next(iter(loader))[0, 1])
    os.kill(process, signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(poptorch.Error, match=rf"process {process}\)? was killed by SIGKILL"):
            list(loader)
    loader.terminate()


class Noisy(Numbers):
    def __getitem__(self, index):
        return index, float(torch.rand(())), random.random(), np.random.rand()


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_and_their_random_numbers_do_not_depend_on_the_process(workers, signals):
    epochs = {}
    for count in (1, 2):
        parts = []
        for process in range(count):
            torch.manual_seed(process)
            chosen = options(process=process, processes=count)
            sampler = WeightedRandomSampler([1.0] * 16, 16, replacement=False)
            loader = poptorch.DataLoader(chosen, Noisy(16), batch_size=2, sampler=sampler, num_workers=workers)
            assert loader.dataset.size == 16
            parts.append([[tuple(row) for batch in loader for row in zip(*batch, strict=True)] for _ in range(2)])
        epochs[count] = [[row for part in parts for row in part[epoch]] for epoch in range(2)]
    assert epochs[1] == epochs[2]
    for rows in epochs[1]:
        assert sorted(int(index) for index, *_ in rows) == list(range(16))
    assert epochs[1][0] != epochs[1][1]
    assert len({float(row[1]) for rows in epochs[1] for row in rows}) == 32


def test_a_distributed_sampler_is_refused_where_samples_would_be_divided_twice():
    sampler = DistributedSampler(range(16), 2, 1)
    for chosen in (options(), options(process=1, processes=2)):
        with pytest.raises(poptorch.Error, match=r"DistributedSampler gives part 1 of 2, and this is process \d of"):
            poptorch.DataLoader(chosen, range(16), sampler=sampler)
    chosen = options(process=1, processes=2)
    loader = poptorch.DataLoader(chosen, range(16), sampler=sampler, auto_distributed_partitioning=False)
    assert [int(sample) for sample in loader] == list(sampler)


def test_a_sampler_of_several_processes_needs_a_common_seed():
    chosen = poptorch.Options()
    chosen.Distributed.configureProcessId(0, 2)
    with pytest.raises(AssertionError, match=r"you must set poptorch\.Options\.randomSeed"):
        poptorch.DataLoader(chosen, range(16), sampler=WeightedRandomSampler([1.0] * 16, 16))


def test_options_of_an_accessor_that_there_is_not_are_said():
    with pytest.warns(UserWarning, match="async_options have no effect"):
        poptorch.DataLoader(options(), Numbers(4), async_options={"buffer_size": 3})
