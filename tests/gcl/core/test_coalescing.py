"""Lists of tensors: invalid ones are refused before any data is sent."""

import numpy as np
import pytest

import gcl


@pytest.fixture
def communicator() -> gcl.Communicator:
    return gcl.connect(local_replicas=4, segment_bytes=1 << 22)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def read_only(*shape: int) -> np.ndarray:
    array = ones(*shape)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("tensors", "outs", "why"),
    [
        ([], None, "the tensors of the list are of no dtype"),
        ([ones(0, 3)], None, r"the tensor has shape \[0, 3\]"),
        ([ones(4, 3), ones(2, 3)], None, r"the tensor has shape \[2, 3\]"),
        ([ones(4, 3), "b"], None, "the tensor is of type"),
        ([ones(4, 3)], ["a"], "but out is a list with str; give a list of the same number of arrays"),
        ([ones(4, 3)], ones(4, 3), "but out is ndarray; give a list of the same number of arrays"),
        ([ones(4, 3)], [ones(4, 5)], r"outs have shapes \[\[4, 5\]\]; these tensors need \[\[4, 3\]\]"),
        ([ones(4, 3)], [ones(4, 3).astype(np.int32)], "out is of int32; it must be of float32"),
        ([ones(4, 3)], [read_only(4, 3)], "out is of float32 and read-only"),
    ],
)
def test_refused(communicator: gcl.Communicator, tensors: list, outs: list | None, why: str) -> None:
    with pytest.raises(gcl.ArgumentError, match=why):
        communicator.all_reduce(tensors, out=outs)


def test_a_list_is_scattered_like_its_tensors(communicator: gcl.Communicator) -> None:
    with pytest.raises(gcl.ArgumentError, match="must have rank 1, but had rank 2"):
        communicator.reduce_scatter([ones(4, 3, 2)])


def test_tensors_that_are_not_contiguous_travel_too(communicator: gcl.Communicator) -> None:
    x = np.arange(40, dtype=np.float32).reshape(4, 10)
    (total,) = communicator.all_reduce([x[:, ::2]])
    assert (total == x[:, ::2].sum(axis=0)).all()


def test_a_tuple_is_as_good(communicator: gcl.Communicator) -> None:
    tensors = (ones(4, 3), ones(4, 2))
    gathered = np.zeros((4, 8), np.float32)
    assert [x.tolist() for x in communicator.all_reduce(tensors, "mean")] == [x.tolist() for x in tensors]
    assert [x.shape for x in communicator.reduce_scatter(tensors)] == [(4, 1), (4, 1)]
    assert communicator.all_reduce(tensors, out=tensors) is tensors
    assert [x.max() for x in tensors] == [4, 4]
    gcl.allGatherToDestinationCrossReplica(communicator, (ones(4, 2),), (gathered,))
    assert gathered.all()
    assert gcl.all_reduce_within_replica((ones(1, 4, 2),))[0].max() == 4


@pytest.mark.parametrize("method", ["auto", "clockwise_ring"])
def test_an_all_to_all_of_a_list_is_that_of_its_tensors(method: str) -> None:
    communicator = gcl.connect(local_replicas=4, segment_bytes=1 << 22, method=method)
    tensors = [np.arange(4 * 4 * n, dtype=np.int32).reshape(4, 4, n) for n in (1, 6, 3)]
    outs = [np.zeros_like(x) for x in tensors]
    assert communicator.all_to_all(tensors, out=outs) is outs
    for x, out in zip(tensors, outs, strict=True):
        assert (out == x.transpose(1, 0, 2)).all()
    with pytest.raises(gcl.ArgumentError, match=r"all-to-all.*4"):
        communicator.all_to_all([ones(4, 3)])
