"""What a collective refuses before it starts: asked, found, and what to do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gcl import ArgumentError, Communicator, Group, connect, connect_threads


@pytest.fixture
def communicator() -> Communicator:
    """Two local replicas, all there are."""
    return connect(local_replicas=2, segment_bytes=1 << 24)


def tensor(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


#: A call -> the beginning of what it is told.
REFUSED: list[tuple[Callable[[Communicator], object], str]] = [
    (lambda c: c.all_reduce((1.0, 2.0)), r"a tensor is a numpy array \[local replicas, ...\], found tuple"),
    (lambda c: c.all_reduce(np.float32(1)), "a tensor is a numpy array"),
    (lambda c: c.all_reduce(np.array(1.0, np.float32)), r"a tensor of shape \[\] was given"),
    (lambda c: c.all_reduce(tensor(3, 2)), r"a tensor of shape \[3, 2\] was given; its leading axis must be the 2"),
    (lambda c: c.all_gather(tensor(1, 2)), "its leading axis must be the 2 local replicas"),
    (lambda c: c.all_reduce(tensor(2, 6)[:, ::2]), "a tensor that is not C-contiguous was given"),
    (lambda c: c.broadcast(tensor(3, 2).T), "a tensor that is not C-contiguous was given"),
    (lambda c: c.all_reduce(tensor(2, 3), out=tensor(2, 6)[:, :3]), "a tensor that is not C-contiguous was given"),
    (
        lambda c: c.all_reduce(tensor(2, 3, dtype=np.complex64)),
        "a tensor of complex64 was asked for; there are float32",
    ),
    (lambda c: c.all_gather(tensor(2, 3, dtype=">f4")), "a tensor of >f4 was asked for"),
    (lambda c: c.all_reduce(tensor(2, 3), "sum"), "operator 'sum' was asked for; there are add, mean"),
    (
        lambda c: c.all_reduce(tensor(2, 3), out=tensor(2, 4)),
        r"out has shape \[2, 4\] and dtype float32; this .*\[2, 3\]",
    ),
    (lambda c: c.all_reduce(tensor(2, 3), out=tensor(2, 3, dtype=np.float16)), "out has shape .* and dtype float16"),
    (lambda c: c.all_gather(tensor(2, 3), out=tensor(2, 3)), r"this collective needs \[2, 2, 3\] and float32"),
    (lambda c: c.reduce_scatter(tensor(2, 5), out=tensor(2, 2)), r"this collective needs \[2, 3\] and float32"),
    (
        lambda c: c.reduce_scatter(tensor(2, 5, 5)),
        "Input tensor to replicatedReduceScatter must have rank 1, but had rank 2",
    ),
    (lambda c: c.broadcast(tensor(2, 3), 2), "root 2 was asked for; group members are 0 to 1"),
    (lambda c: c.broadcast(tensor(2, 3), -1), "root -1 was asked for"),
    (lambda c: c.empty(1 << 24), "bytes were asked for; the shared segment has"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message[:45] for _, message in REFUSED])
def test_refused(call: Callable[[Communicator], object], message: str, communicator: Communicator) -> None:
    with pytest.raises(ArgumentError, match=message):
        call(communicator)
    assert communicator.all_reduce(np.ones((2, 3), np.float32)).tolist() == [[2, 2, 2]] * 2, "and it goes on"


@pytest.mark.parametrize("shape", [-1, (4, -1), (-2, -3)])
def test_a_negative_shape_is_refused(shape: Any, communicator: Communicator) -> None:
    with pytest.raises(ArgumentError, match="a tensor of shape"):
        communicator.empty(shape)


@pytest.mark.parametrize("shape", [3, np.int64(3), (3,), [3], (np.int32(3),)])
def test_shapes_as_numpy_takes_them(shape: Any, communicator: Communicator) -> None:
    assert communicator.empty(shape).shape == (2, 3)
    assert communicator.empty(()).shape == (2,)


def _overlapping(communicator: Communicator, *shape: int) -> np.ndarray:
    """A buffer of one communicator with one local replica, so that parts of it are contiguous tensors."""
    return communicator.empty(shape)


@pytest.mark.parametrize(
    "call",
    [
        lambda c, b: c.all_reduce(b[:, :1000], out=b[:, 1:1001]),
        lambda c, b: c.broadcast(b[:, 10:1010], out=b[:, :1000]),
        lambda c, b: c.reduce_scatter(b[:, :1000], out=b[:, :500]),
        lambda c, b: c.all_gather(b[:, :500], out=b[:, :1000].reshape(1, 2, 500)),
    ],
)
def test_a_result_that_would_overwrite_part_of_its_input_is_refused(
    call: Callable[[Communicator, np.ndarray], object],
) -> None:
    first, _ = connect_threads((1, 1), segment_bytes=1 << 24, timeout=1.0)
    with pytest.raises(ArgumentError, match="overlap"):
        call(first, first.empty(2000))


@pytest.mark.parametrize("n", [3, 100_000])
def test_a_result_that_may_not_be_written_is_refused(n: int, communicator: Communicator) -> None:
    kept = np.ones((2, n), np.float32)
    frozen = np.frombuffer(kept.tobytes(), np.float32).reshape(2, n)
    calls: list[Callable[[], object]] = [
        lambda: communicator.all_reduce(frozen, out=frozen),
        lambda: communicator.all_reduce(kept, out=frozen),
        lambda: communicator.broadcast(frozen, 1, out=frozen),
    ]
    for call in calls:
        with pytest.raises(ArgumentError, match="out is read-only"):
            call()
    assert (frozen == 1).all()
    assert (communicator.all_reduce(frozen) == 2).all(), "it may be read"


def test_another_view_of_the_same_tensor_is_in_place() -> None:
    alone = connect(local_replicas=2, segment_bytes=1 << 24)
    x = alone.empty(3)
    x[...] = [[1, 2, 3], [4, 5, 6]]
    alone.all_reduce(x, out=x[:])
    assert x.tolist() == [[5, 7, 9]] * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"local_replicas": 0}, "at least 1"),
        ({"local_replicas": 2, "global_replicas": 2, "global_offset": 1}, "rank 0 says its first replica is 1"),
        ({"local_replicas": 4, "group": Group.consecutive(8, 2)}, "a group over 8 replicas was given; there are 4"),
        ({"transport": "carrier pigeon"}, "transport 'carrier pigeon' was asked for; there are auto, inprocess"),
    ],
)
def test_what_connect_refuses(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        connect(**arguments)


def test_the_environment_chooses_the_transport_where_the_program_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCL_TRANSPORT", "tin cans")
    with pytest.raises(ArgumentError, match="transport 'tin cans' was asked for"):
        connect()
    assert connect(transport="inprocess", segment_bytes=1 << 20).transport == "inprocess"
