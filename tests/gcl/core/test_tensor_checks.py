"""Tensor checks: invalid arguments are refused before a collective starts, with what was found and what to do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gcl import (
    ArgumentError,
    Collective,
    Communicator,
    Fabric,
    Group,
    LiteralCommunicator,
    connect,
    connect_threads,
    schedule,
)
from tests.gcl.helpers.untyped import ANY

#: Values that are not valid time-outs.
SECONDS = (float("nan"), float("inf"), -1.0, 0, "5", None, True)


@pytest.fixture
def communicator() -> Communicator:
    """A communicator of two replicas, both local."""
    return connect(local_replicas=2, segment_bytes=1 << 24)


def tensor(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


#: A call -> the beginning of its error.
REFUSED: list[tuple[Callable[[Communicator], object], str]] = [
    (lambda c: c.all_reduce(ANY[{1.0}]), r"the tensor is of type set; give a numpy array \[local replicas, ...\]"),
    (lambda c: c.all_reduce((1.0, 2.0)), "the tensor is of type float; give a numpy array"),
    (lambda c: c.all_reduce(np.float32(1)), "the tensor is of type"),
    (lambda c: c.all_reduce(np.array(1.0, np.float32)), r"the tensor has shape \[\]"),
    (lambda c: c.all_reduce(tensor(3, 2)), r"the tensor has shape \[3, 2\]; its leading axis must be the 2"),
    (lambda c: c.all_gather(tensor(1, 2)), "its leading axis must be the 2 local replicas"),
    (lambda c: c.all_reduce(tensor(2, 6)[:, ::2]), "the tensor is not C-contiguous"),
    (lambda c: c.broadcast(tensor(3, 2).T), "the tensor is not C-contiguous"),
    (lambda c: c.all_reduce(tensor(2, 3), out=tensor(2, 6)[:, :3]), "the tensor is not C-contiguous"),
    (
        lambda c: c.all_reduce(tensor(2, 3, dtype=np.complex64)),
        "a tensor of complex64 is not supported; use float32",
    ),
    (lambda c: c.all_gather(tensor(2, 3, dtype=">f4")), "a tensor of >f4 is not supported"),
    (lambda c: c.all_reduce(tensor(2, 3), "sum"), "operator 'sum' is unknown; use add, mean"),
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
    (lambda c: c.broadcast(tensor(2, 3), 2), "root 2 is not a member of the group; use 0 to 1"),
    (lambda c: c.broadcast(tensor(2, 3), -1), "root -1 is not a member of the group"),
    (lambda c: c.empty(1 << 24), "bytes do not fit the shared segment, which has"),
    (lambda c: c.empty(3, complex), "a tensor of complex128 is not supported; use float32"),
    (lambda c: c.all_reduce_async(tensor(2, 3)).wait("x"), "timeout='x' is not valid; give 0 seconds or more"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message[:45] for _, message in REFUSED])
def test_refused(call: Callable[[Communicator], object], message: str, communicator: Communicator) -> None:
    with pytest.raises(ArgumentError, match=message):
        call(communicator)
    assert communicator.all_reduce(np.ones((2, 3), np.float32)).tolist() == [[2, 2, 2]] * 2, "and it goes on"


@pytest.mark.parametrize("shape", [-1, (4, -1), (-2, -3)])
def test_a_negative_shape_is_refused(shape: Any, communicator: Communicator) -> None:
    with pytest.raises(ArgumentError, match="sizes are whole numbers"):
        communicator.empty(shape)


@pytest.mark.parametrize("shape", [3, np.int64(3), (3,), [3], (np.int32(3),)])
def test_shapes_are_given_as_to_numpy(shape: Any, communicator: Communicator) -> None:
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
    writable = np.ones((2, n), np.float32)
    frozen = np.frombuffer(writable.tobytes(), np.float32).reshape(2, n)
    calls: list[Callable[[], object]] = [
        lambda: communicator.all_reduce(frozen, out=frozen),
        lambda: communicator.all_reduce(writable, out=frozen),
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
        (
            {"local_replicas": 4, "group": Group.consecutive(8, 2)},
            "the group is over 8 replicas, but .* has 4",
        ),
        ({"transport": "carrier pigeon"}, "transport 'carrier pigeon' is unknown; use auto, inprocess"),
        ({"local_replicas": True}, "local_replicas=True is not valid; give a whole number of at least 1"),
        ({"global_offset": 0.0}, "global_offset=0.0 is not valid"),
        ({"host": 3}, "host=3 is not valid; give the host's name"),
        ({"local_replicas": 1_000_000}, "1000000 replicas are too many; a communicator has at most 65536"),
    ],
)
def test_connect_refuses_invalid_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        connect(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(({"timeout": value}, "timeout=.* is not valid; give seconds above 0") for value in SECONDS),
        ({"group": "all"}, "group='all' is not valid; give a gcl.Group"),
        ({"fabric": 3}, "fabric=3 is not valid; give a gcl.Fabric"),
        ({"segment_bytes": -5}, "segment_bytes=-5 is not valid; give a whole number of at least 1"),
        ({"segment_bytes": "1MB"}, "segment_bytes='1MB' is not valid"),
        ({"method": 3}, "method 3 is not valid; give the name of a method, or a list of names"),
        ({"method": []}, r"method \[\] is not valid; give the name"),
        ({"method": ["clockwise_ring", 3]}, "method 3 is unknown; use auto"),
    ],
    ids=str,
)
def test_connect_and_connect_threads_refuse_invalid_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        connect(**arguments)
    with pytest.raises(ArgumentError, match=message):
        connect_threads((1,), **arguments)


@pytest.mark.parametrize("counts", [("a",), (1.5,), 3, (0,), (True,), None])
def test_threads_have_whole_replicas(counts: Any) -> None:
    with pytest.raises(ArgumentError, match=r"counts=.*replicas"):
        connect_threads(counts)


def test_whole_numbers_may_be_of_numpy() -> None:
    alone = connect(local_replicas=ANY[np.int64(2)], segment_bytes=ANY[np.int64(1 << 24)])
    assert type(alone.local_replicas) is type(alone.global_replicas) is int
    assert connect_threads((ANY[np.int32(1)], 2), segment_bytes=1 << 24)[1].global_offset == 1


def test_a_method_may_be_a_list() -> None:
    alone = connect(local_replicas=2, segment_bytes=1 << 24, method=["clockwise_ring", "meet_in_middle_ring"])
    assert isinstance(alone, LiteralCommunicator)
    assert alone.methods == ("clockwise_ring", "meet_in_middle_ring")


MESH = Fabric(4)


@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        (("foo", MESH, 8), {}, "collective 'foo' is unknown; use all_reduce"),
        (("all_reduce", 4, 8), {}, "fabric=4 is not valid; give a gcl.Fabric"),
        (("all_reduce", MESH, 8.0), {}, "elements=8.0 is not valid"),
        (("all_reduce", MESH, 8), {"itemsize": 0}, "itemsize=0 is not valid"),
        (("all_reduce", MESH, 8), {"group": "all"}, "group='all' is not valid"),
        (("all_reduce", MESH, 8), {"methods": 3}, "method 3 is not valid; give the name of a method"),
        (("all_reduce", MESH, 8), {"op": "sum"}, "operator 'sum' is unknown; use add"),
        (("all_reduce", MESH, 8), {"options": {}}, "options={} is not valid; give gcl.Options"),
        (("broadcast", MESH, 8), {"root": "a"}, "root='a' is not valid"),
    ],
)
def test_schedule_refuses_invalid_arguments(
    arguments: tuple[Any, ...], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        schedule(*arguments, **changes)


def test_schedule_accepts_names_as_they_are_written() -> None:
    plan = schedule(Collective.ALL_REDUCE, MESH, 8, methods="clockwise_ring")
    assert plan == schedule(Collective("all_reduce"), MESH, 8, methods=["clockwise_ring"])
    assert [program.method for program in plan.programs] == ["clockwise_ring"] * 2


def test_the_environment_chooses_the_transport_where_the_program_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCL_TRANSPORT", "tin cans")
    with pytest.raises(ArgumentError, match="transport 'tin cans' is unknown"):
        connect()
    assert connect(transport="inprocess", segment_bytes=1 << 20).transport == "inprocess"
