"""Feed: order and content equal those of a plain loop, for any workers, prefetch depth and instances."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipu_emu.errors import EmulatorError, FeedError
from ipu_emu.hostio import Feed, ReplicaRange

IMAGES = np.random.default_rng(0).integers(0, 256, (61, 3, 2)).astype(np.uint8)
LABELS = np.arange(61, dtype=np.int32)
pytestmark = pytest.mark.filterwarnings("ignore:The source ended:UserWarning")
WORKERS = [(0, None), (1, False), (3, False), (1, True), (2, True)]
all_workers = pytest.mark.parametrize(
    ("workers", "processes"), WORKERS, ids=["caller", "1 thread", "3 threads", "1 process", "2 processes"]
)


def plain(order: list[int], shape: tuple[int, int, int, int], local: slice) -> list[Any]:
    """The steps of an epoch, by hand: [batches, accumulation, replicas, micro-batch], replicas cut to ``local``."""
    size = int(np.prod(shape))
    steps = [order[at : at + size] for at in range(0, len(order) - size + 1, size)]
    return [np.array(step).reshape(shape)[:, :, local].tolist() for step in steps]


@all_workers
@pytest.mark.parametrize("prefetch", [1, 4])
def test_steps_equal_a_plain_loop(workers: int, processes: bool | None, prefetch: int) -> None:
    with Feed(
        {"x": IMAGES, "y": LABELS},
        micro_batch=2,
        batches_per_step=2,
        accumulation=3,
        epochs=2,
        workers=workers,
        processes=processes,
        prefetch=prefetch,
    ) as feed:
        steps = [{name: array.copy() for name, array in step.items()} for step in feed]
    expected = 2 * plain(list(range(61)), (2, 3, 1, 2), slice(None))
    assert [step["y"].reshape(2, 3, 1, 2).tolist() for step in steps] == expected
    for step, rows in zip(steps, expected, strict=True):
        np.testing.assert_array_equal(step["x"].reshape(-1, 3, 2), IMAGES[np.ravel(rows)])


@all_workers
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("instances", [1, 2, 4])
def test_the_global_order_does_not_depend_on_instances(
    workers: int, processes: bool | None, shuffle: bool, instances: int
) -> None:
    local = 4 // instances
    parts = []
    for instance in range(instances):
        replica_range = ReplicaRange(local, instance * local, 4)
        how: dict[str, Any] = {"workers": workers, "processes": processes, "shuffle": shuffle, "seed": 7}
        with Feed(LABELS, micro_batch=3, replica_range=replica_range, epochs=3, **how) as feed:
            parts.append([step.reshape(local, 3).copy() for step in feed])
    together = [np.concatenate(step).reshape(-1) for step in zip(*parts, strict=True)]
    orders = [
        np.random.Generator(np.random.Philox(key=np.array([7, epoch], np.uint64))).permutation(61)
        if shuffle
        else np.arange(61)
        for epoch in range(3)
    ]
    expected = [order[at : at + 12] for order in orders for at in range(0, 60, 12)]
    np.testing.assert_array_equal(together, expected)


def doubled(sample: Any) -> Any:
    return {"z": sample * 2}


def jittered(sample: Any, random: np.random.Generator) -> Any:
    return sample + random.random()


class Dataset:
    """A map-style data set in the sense of torch.utils.data."""

    def __len__(self) -> int:
        return 61

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return IMAGES[row], row


def enumerated() -> Iterator[tuple[Any, int]]:
    return ((image, row) for row, image in enumerate(IMAGES))


class Batches:
    """The part of a tf.data data set that a feed uses."""

    def as_numpy_iterator(self) -> Iterator[Any]:
        return (LABELS[at : at + 5] for at in range(0, 60, 5))


def counted() -> Iterator[int]:
    yield from range(61)


@all_workers
@pytest.mark.parametrize(
    "source", [Dataset(), list(enumerated()), enumerated, iter(())], ids=["data set", "list", "function", "generator"]
)
def test_kinds_of_sources(workers: int, processes: bool | None, source: Any) -> None:
    source = enumerated() if isinstance(source, Iterator) else source
    with Feed(source, micro_batch=6, workers=workers, processes=processes) as feed:
        steps = [[array.copy() for array in step] for step in feed]
    assert len(steps) == 10
    for number, (images, rows) in enumerate(steps):
        assert rows.tolist() == list(range(6 * number, 6 * number + 6))
        np.testing.assert_array_equal(images, IMAGES[6 * number : 6 * number + 6])


@all_workers
def test_a_stream_restarts_in_every_epoch(workers: int, processes: bool | None) -> None:
    replica_range = ReplicaRange(1, 1, 2)
    with Feed(
        counted, micro_batch=4, replica_range=replica_range, epochs=2, workers=workers, processes=processes
    ) as feed:
        steps = [step.tolist() for step in feed]
    assert steps == 2 * [list(range(8 * n + 4, 8 * n + 8)) for n in range(7)]


def test_elements_may_be_micro_batches() -> None:
    steps = [step.copy() for step in Feed(Batches(), accumulation=2)]
    np.testing.assert_array_equal(steps, LABELS[:60].reshape(6, 2, 5))


@all_workers
def test_functions_prepare_samples(workers: int, processes: bool | None) -> None:
    with Feed(LABELS, micro_batch=10, prepare=doubled, workers=workers, processes=processes) as feed:
        assert [step["z"].tolist() for step in feed] == (2 * LABELS[:60]).reshape(6, 10).tolist()


def test_random_preparation_is_a_function_of_seed_epoch_and_sample() -> None:
    def run(**how: Any) -> list[Any]:
        with Feed(LABELS.astype(float), prepare=jittered, micro_batch=4, epochs=2, **how) as feed:
            return [step.copy() for step in feed]

    single = run(workers=0)
    for how in ({"workers": 2}, {"workers": 3, "processes": False, "prefetch": 7}):
        np.testing.assert_array_equal(single, run(**how))
    assert len(np.unique(np.ravel(single))) == 2 * 60
    shuffled = np.sort(np.ravel(run(workers=1, shuffle=True)))
    assert len(np.intersect1d(shuffled, np.ravel(single))) > 100


@pytest.mark.parametrize("start", [0, 1, 5, 29, 41, 60])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_feed_continues_where_another_was(start: int, shuffle: bool) -> None:
    steps = [step.copy() for step in Feed(LABELS, micro_batch=2, epochs=2, shuffle=shuffle)]
    feed = Feed(LABELS, micro_batch=2, epochs=2, shuffle=shuffle, start=start)
    rest = [step.copy() for step in feed]
    np.testing.assert_array_equal(rest, steps[start:] or np.empty((0,)))
    assert feed.position == 60


def test_streams_continue_too() -> None:
    assert [int(step) for step in Feed(counted, epochs=2, start=70)] == list(range(9, 61))


def test_torch_data() -> None:
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.arange(20.0), torch.arange(20))
    steps = [(x.tolist(), y.tolist()) for x, y in Feed(data, micro_batch=5)]
    assert steps == 1 * [(list(range(n, n + 5)), list(range(n, n + 5))) for n in range(0, 20, 5)]
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    assert [y.tolist() for _, y in Feed(loader)] == [list(range(n, n + 4)) for n in range(0, 20, 4)]


def test_torch_loaders_with_workers() -> None:
    """They are read by a thread, even if a Python function prepares their samples."""
    torch = pytest.importorskip("torch")
    methods = {"__iter__": lambda self: iter(torch.arange(12.0))}
    numbers = type("Numbers", (torch.utils.data.IterableDataset,), methods)
    loader = torch.utils.data.DataLoader(numbers(), batch_size=4, num_workers=1)
    with Feed(loader, prepare=lambda rows: -rows.numpy(), epochs=2) as feed:
        assert [step.tolist() for step in feed] == 2 * [[-n, -n - 1, -n - 2, -n - 3] for n in (0, 4, 8)]
    with pytest.raises(FeedError, match=r"processes=True.*DataLoader"):
        Feed(loader, processes=True)
    assert [step.tolist() for step in Feed(numbers(), micro_batch=6)] == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


def test_tensorflow_is_not_forked() -> None:
    with Feed(Batches(), prepare=lambda rows: rows + os.getpid()) as feed:
        assert [step.tolist()[0] - os.getpid() for step in feed] == list(range(0, 60, 5))
    with pytest.raises(FeedError, match=r"processes=True.*TensorFlow"):
        Feed(Batches(), processes=True)


def write_files(folder: Path, suffix: str) -> Any:
    """Three shards of IMAGES (or of LABELS and IMAGES); return the argument of the feed."""
    for shard, rows in enumerate(np.split(np.arange(60), [7, 31])):
        file = folder / f"shard-{shard}{suffix}"
        if suffix == ".npy":
            np.save(file, LABELS[rows])
        elif suffix == ".npz":
            np.savez(file, x=IMAGES[rows], y=LABELS[rows])
        else:
            arrow = pytest.importorskip("pyarrow")
            import pyarrow.parquet

            table = arrow.table({"x": IMAGES[rows].tolist(), "y": LABELS[rows]})
            if suffix == ".parquet":
                pyarrow.parquet.write_table(table, file)
            else:
                with arrow.OSFile(str(file), "wb") as out, arrow.ipc.new_file(out, table.schema) as writer:
                    writer.write_table(table)
    return [folder, str(folder / "shard-*"), sorted(folder.iterdir())]


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet", ".arrow"])
def test_sharded_files(tmp_path: Path, suffix: str) -> None:
    for data in write_files(tmp_path, suffix):
        with Feed(data, micro_batch=4, workers=2, shuffle=True) as feed:
            rows = np.random.Generator(np.random.Philox(key=np.array([0, 0], np.uint64))).permutation(60)
            for step, expected in zip(feed, rows.reshape(15, 4), strict=True):
                labels = step if suffix == ".npy" else step["y"]
                np.testing.assert_array_equal(labels, LABELS[expected])
                if suffix != ".npy":
                    np.testing.assert_array_equal(step["x"], IMAGES[expected])


def test_views_are_not_copied_without_workers() -> None:
    data = np.arange(12.0)
    assert all(np.shares_memory(step, data) for step in Feed(data, micro_batch=3, workers=0))


@pytest.mark.parametrize(
    ("data", "how", "text"),
    [
        (np.zeros(5), {"micro_batch": 6}, "A step of all replicas needs 6 samples, but the source has 5"),
        ((np.zeros(5), np.zeros(4)), {}, "item 0 has 5, item 1 has 4"),
        ({"x": np.zeros(0)}, {}, "found no samples in {\"'x'\": 0}"),
        ({"x": {"y": np.zeros(2)}}, {}, "Nested list/tuple input shapes are not supported"),
        (3.5, {}, "A feed was given a float"),
        (["a.npy"], {}, "a.npy: no such file"),
        ([["text"]], {}, "data; a feed carries numbers"),
        (iter([]), {}, "The source has no sample"),
        (iter([1]), {"shuffle": True}, "shuffle=True needs a source with length and index"),
        (np.zeros(5), {"prepare": {"y": None}}, "prepare names y, but a sample is one array"),
        (np.zeros(5), {"prepare": 3}, "prepare is a int"),
    ],
)
def test_mistakes_are_reported_at_once(data: Any, how: dict[str, Any], text: str) -> None:
    with pytest.raises(FeedError) as error:
        Feed(data, **how)
    assert text in str(error.value)


def test_all_wrong_numbers_are_reported_together() -> None:
    with pytest.raises(EmulatorError, match=r"workers=-1.*prefetch=0"):
        Feed(LABELS, workers=-1, prefetch=0)


@pytest.mark.parametrize("instances", [1, 2, 4])
def test_sources_prefetch_workers_and_instances_agree_on_a_grid(instances: int, full: bool) -> None:
    """Five steps of four replicas, whose micro-batches have three samples."""
    expected = np.arange(60).reshape(5, 4, 3)
    local = 4 // instances
    grid = list(product(WORKERS, [1, 2, 9], (LABELS, LABELS.tolist(), counted)))
    for (workers, processes), prefetch, source in grid if full else grid[instances % 4 :: 4]:
        how: dict[str, Any] = {"workers": workers, "processes": processes, "prefetch": prefetch}
        for at in range(0, 4, local):
            with Feed(source, micro_batch=3, replica_range=ReplicaRange(local, at, 4), **how) as feed:
                steps = [step.reshape(local, 3).copy() for step in feed]
            np.testing.assert_array_equal(steps, expected[:, at : at + local], str(how))
