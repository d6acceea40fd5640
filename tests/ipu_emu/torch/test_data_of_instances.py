"""Data of several instances: random orders and random changes of samples do not depend on the process."""

import itertools
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from ipu_emu.torch.batches import Loading, Part, Spread, batches_of  # noqa: E402  # noqa: E402
from tests.helpers.mpi_jobs import PROGRAMS, ROOT  # noqa: E402
from tests.helpers.warm_processes import PYTORCH_FACES, warm_python  # noqa: E402

pytestmark = pytest.mark.torch


def run(program, instances, *arguments):
    command = [sys.executable, "-m", "poprun_py", "--num-instances", str(instances), "--num-replicas", "2"]
    command += [*warm_python(*PYTORCH_FACES), str(PROGRAMS / program), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.partition("trained ")[2].split() for line in done.stdout.splitlines() if "trained " in line]


def test_every_kind_of_random_data_trains_the_same_weights_on_two_instances():
    rows = {count: run("ipu_emu/sampled_training.py", count) for count in (1, 2)}
    digests = {kind: digest for kind, digest, *_ in rows[1]}
    assert digests["samples"] == digests["shuffled"] == digests["workers"] == digests["distributed"]
    assert digests["sorted"] == digests["grouped"]
    assert len(set(digests.values())) == 7
    assert {(kind, digest) for kind, digest, *_ in rows[2]} == set(digests.items())
    assert len(rows[2]) == 22
    for kind in digests:
        loaded = {count: [row[2:] for row in values if row[0] == kind] for count, values in rows.items()}
        both = sorted(itertools.chain.from_iterable(loaded[2]))
        assert both == sorted(loaded[1][0]), kind  # in this process: none of a worker
        assert len(loaded[2][0]) == len(loaded[2][1])


def epochs(data, count=2, **settings):
    """The first tensor of each epoch's batches."""
    batches = batches_of(data, settings.pop("size", None), **{"shuffle": None, "seed": 0} | settings)
    spread = Spread(batches.size)
    samples = []
    for number in range(count):
        parts = [part[0] if isinstance(part, tuple | list) else part for part in batches.epoch(spread, number, 0)]
        samples.append(torch.cat(parts).flatten().tolist())
    return samples


def loader(**settings):
    return DataLoader(TensorDataset(torch.arange(12)), **{"batch_size": 4} | settings)


def test_a_sampler_is_drawn_anew_for_each_epoch_and_equally_in_each_run():
    data = loader(sampler=WeightedRandomSampler([1.0] * 12, 12, replacement=False))
    first, second = epochs(data)
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second
    torch.manual_seed(5)
    assert epochs(data) == [first, second]
    assert epochs(data, seed=1) != [first, second]


def test_the_samples_of_a_shorter_sampler_are_those_that_are_used():
    assert epochs(loader(sampler=SequentialSampler(range(8)))) == [list(range(8))] * 2
    (few,) = epochs(loader(sampler=RandomSampler(range(12), num_samples=8)), 1)
    assert len(few) == 8


def test_a_generator_of_the_user_decides_the_order():
    orders = []
    for seed in (1, 1, 2):
        shuffled = loader(shuffle=True, generator=torch.Generator().manual_seed(seed))
        sampler = RandomSampler(range(12), replacement=True, generator=torch.Generator().manual_seed(seed))
        orders.append((epochs(shuffled), epochs(loader(sampler=sampler))))
    assert orders[0] == orders[1]
    assert orders[0][0] != orders[2][0]
    assert orders[0][1] != orders[2][1]


class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.rand(1)


def test_each_sample_has_other_random_numbers_in_every_epoch():
    numbers = [*itertools.chain(*epochs(Noisy(), size=4))]
    assert len(set(numbers)) == 16
    assert [*itertools.chain(*epochs(Noisy(), size=4, seed=1))] != numbers


def test_the_program_keeps_its_own_random_numbers():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    loaded = Loading(Noisy(), torch.stack, 4, (0, 0))[Part(0, range(4), range(4))]
    assert len(loaded) == 4
    assert torch.equal(torch.rand(1), expected)


class Stream:
    def __iter__(self):
        return iter([torch.arange(4)])


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        (
            loader(sampler=DistributedSampler(range(12), 2, 1)), {},
            "DistributedSampler for part 1 of 2, and this is instance 0 of 1; leave the sampler out",
        ),
        (
            loader(sampler=WeightedRandomSampler([1.0] * 12, 12)), {"shuffle": True},
            "shuffle = True, and the data loader has a WeightedRandomSampler",
        ),
        (Stream(), {"shuffle": True}, "shuffle = True, and the order is that of a Stream"),
        (
            DataLoader(TensorDataset(torch.arange(12)), batch_sampler=BatchSampler(range(12), 4, drop_last=True)),
            {"shuffle": True},
            "shuffle = True, and the order is that of a BatchSampler",
        ),
    ],
)  # fmt: skip
def test_orders_that_contradict_each_other_are_refused(data, settings, message):
    with pytest.raises(ValueError, match=message):
        batches_of(data, None, **{"shuffle": None, "seed": 0} | settings)


def test_samples_that_are_not_used_are_said():
    data = TensorDataset(torch.arange(10))
    with pytest.warns(UserWarning, match="2 of 10 samples do not fill a batch of 4 and are not used"):
        epochs(DataLoader(data, batch_size=4))
    with pytest.warns(UserWarning, match="1 batches of an epoch are not used, as they do not have 4 samples"):
        epochs(DataLoader(data, batch_sampler=[[0, 1, 2, 3], [4, 5]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        epochs(DataLoader(data, batch_size=4, drop_last=True))
