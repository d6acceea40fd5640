"""Infeeds, outfeeds and their benchmarks: shapes, modes, errors, JSON."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ipu_emu.errors import FeedError
from ipu_emu.hostio import ReplicaRange
from ipu_emu.tensorflow import InfeedQueue, OutfeedMode, OutfeedQueue, dataset_benchmark, infeed_benchmark

DATA = np.arange(24.0).reshape(12, 2)


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("structure", [lambda x: x, lambda x: (x, x + 1), lambda x: {"a": x}])
def test_each_replica_dequeues_its_own_element(replicas: int, structure: Any) -> None:
    queue = InfeedQueue(structure(DATA), replica_range=ReplicaRange(replicas, 0, replicas))
    assert not queue.dequeued
    queue.initializer()
    for step in range(12 // replicas):
        for replica, element in enumerate(queue.dequeue()):
            expected = structure(DATA[step * replicas + replica])
            assert type(element) is type(expected)
            np.testing.assert_equal(element, expected)
    with pytest.raises(StopIteration):
        queue.dequeue()
    assert queue.dequeued
    assert queue.number_of_tuple_elements == (2 if isinstance(structure(DATA), tuple) else 1)
    queue.deleter()


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("mode", [None, "all", OutfeedMode.LAST, "get_last", "a name of old programs"])
def test_shapes_of_outfeeds(replicas: int, mode: Any) -> None:
    values = np.random.default_rng(0).standard_normal((5, replicas, 2))
    queue = OutfeedQueue(mode, replicas=replicas)
    queue.enqueue({"x": values[0, 0], "n": 0})
    for step in range(5):
        queue.put([{"x": values[step, replica], "n": step} for replica in range(replicas)])
    expected, counts = (values, np.arange(5)[:, None].repeat(replicas, 1))
    if replicas == 1:
        expected, counts = expected[:, 0], counts[:, 0]
    if queue.mode is OutfeedMode.LAST:
        expected, counts = expected[-1], counts[-1]
    element = queue.dequeue()
    np.testing.assert_array_equal(element["x"], expected)
    np.testing.assert_array_equal(element["n"], counts)
    if queue.mode is OutfeedMode.ALL:
        assert queue.dequeue()["x"].shape == (0, *expected.shape[1:])
    else:
        np.testing.assert_array_equal(queue.dequeue()["x"], expected)


def test_dequeue_waits_for_the_end_of_a_run() -> None:
    queue = OutfeedQueue()
    queue.enqueue(0)
    queue.begin()

    def run() -> None:
        for step in range(100):
            queue.put([step])
        queue.end()

    thread = threading.Thread(target=run)
    thread.start()
    assert queue.dequeue(wait_for_completion=True).tolist() == list(range(100))
    thread.join()
    queue.begin()
    with pytest.raises(FeedError, match=r"did not end within 0\.05 s"):
        queue.dequeue(wait_for_completion=True, timeout=0.05)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"prefetch_depth": -1}, "prefetch_depth must be greater than zero"),
        ({"prefetch_depth": "a"}, "prefetch_depth must be a whole number, not 'a'"),
        ({"prefetch_depth": 256}, "prefetch_depth must be less than 256"),
        ({"device_ordinal": 1.5}, "Device ordinal must be an integer"),
        ({"device_ordinal": -1}, "Device ordinal must be >= 0"),
    ],
)
def test_infeed_options(how: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        InfeedQueue(DATA, **how)


def test_infeed_mistakes() -> None:
    assert InfeedQueue(DATA, "a feed's name").device_ordinal == 0
    assert InfeedQueue(DATA, prefetch_depth=0).prefetch_depth == 3
    spec = {"x": SimpleNamespace(shape=(None, 3))}
    with pytest.raises(
        ValueError, match=r"Output shape \(None, 3\) is not fully defined\. If using tf\.Dataset\.batch"
    ):
        InfeedQueue(SimpleNamespace(element_spec=spec, as_numpy_iterator=lambda: iter([])))
    queue = InfeedQueue(DATA)
    with pytest.raises(FeedError, match="run its initializer"):
        queue.dequeue()
    queue.initializer()
    with pytest.raises(ValueError, match="can only be called once"):
        queue.initializer()


def test_outfeed_mistakes() -> None:
    with pytest.raises(ValueError, match="Outfeed buffer depth cannot be less than 1"):
        OutfeedQueue(buffer_depth=0)
    queue = OutfeedQueue("get_last", replicas=2)
    with pytest.raises(ValueError, match=r"Trying to dequeue an outfeed which has not been enqueued\."):
        queue.dequeue()
    queue.enqueue((np.zeros(2), 1))
    with pytest.raises(ValueError, match=r"An outfeed can only be enqueued once\."):
        queue.enqueue(1)
    with pytest.raises(FeedError, match="The outfeed is empty"):
        queue.dequeue()
    with pytest.raises(FeedError, match="outfeed of 2 replicas was given 1 elements"):
        queue.put([(np.zeros(2), 1)])
    with pytest.raises(FeedError, match=r"item 0 of an outfeed was enqueued as float64\[2\] and is now float64\[3\]"):
        queue.put([(np.zeros(3), 1), (np.zeros(3), 1)])


@pytest.mark.parametrize("do_memcpy", [False, True])
def test_benchmarks(do_memcpy: bool, capsys: pytest.CaptureFixture[str]) -> None:
    queue = InfeedQueue(DATA, replica_range=ReplicaRange(2, 0, 2))
    for text, size in (
        (dataset_benchmark(DATA, 3, 50, do_memcpy=do_memcpy), 16),
        (infeed_benchmark(queue, 2, 3, do_memcpy=do_memcpy), 32),
    ):
        for epoch in json.loads(text)["epochs"]:
            count = epoch["elements_processed"]
            assert epoch["total_bytes_processed"] == count * size
            assert epoch["elements_per_second"] == pytest.approx(count / epoch["time_elapsed"])
            assert epoch["bandwidth"] == pytest.approx(count * size / epoch["time_elapsed"] / 1e9)
    assert capsys.readouterr().out.count("elements/s") == 5


def test_benchmark_mistakes() -> None:
    with pytest.raises(ValueError, match=r"Expected `number_of_epochs` to be at least 1\."):
        dataset_benchmark(DATA, 0, 1)
    with pytest.raises(ValueError, match=r"Expected `elements_per_epochs` to be at least 1\."):
        infeed_benchmark(InfeedQueue(DATA), 1, 0)
    wrong: Any = "data"
    with pytest.raises(TypeError, match="Expected `dataset`"):
        dataset_benchmark(wrong, 1, 1)
    with pytest.raises(TypeError, match="Expected `infeed_queue`"):
        infeed_benchmark(wrong, 1, 1)
