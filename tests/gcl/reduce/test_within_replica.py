"""Collectives among the IPUs of a replica, compared with those among replicas and with numpy."""

from __future__ import annotations

import numpy as np
import pytest

import gcl
from gcl.core.groups import Group
from gcl.errors import ArgumentError
from tests.gcl.helpers import reference
from tests.gcl.helpers.reference import draw, same_bits
from tests.gcl.helpers.untyped import ANY


@pytest.mark.parametrize("op", reference.OPERATORS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("local", "ipus", "n"), [(1, 1, 7), (2, 4, 1003), (3, 2, 5), (2, 16, 0), (1, 8, 9)])
def test_reductions_combine_in_the_balanced_tree(op: str, dtype: type, local: int, ipus: int, n: int) -> None:
    data = draw(local * ipus, n, dtype)
    x, group = data.reshape(local, ipus, n), Group.consecutive(local * ipus, ipus)
    with np.errstate(all="ignore"):
        total, shards = reference.all_reduce(data, op, group), reference.reduce_scatter(data, op, group)
    assert same_bits(gcl.all_reduce_within_replica(x, op), total.reshape(x.shape))
    assert same_bits(gcl.reduce_scatter_within_replica(x, op), shards.reshape(local, ipus, -1))
    assert same_bits(x.reshape(data.shape), data)
    inplace = x.copy()
    assert gcl.all_reduce_within_replica(inplace, op, out=inplace) is inplace
    assert same_bits(inplace, total.reshape(x.shape))


def test_all_gather_gives_every_ipu_all_shards() -> None:
    x = np.arange(2 * 4 * 6, dtype=np.int32).reshape(2, 4, 2, 3)
    gathered = gcl.all_gather_within_replica(x)
    assert gathered.shape == (2, 4, 4, 2, 3)
    assert all((gathered[replica, ipu] == x[replica]).all() for replica in range(2) for ipu in range(4))


def test_local_keeps_the_own_fragment() -> None:
    x = np.arange(10, dtype=np.float32).reshape(1, 2, 5)
    assert gcl.reduce_scatter_within_replica(x, "local").tolist() == [[[0, 1, 2], [8, 9, 0]]]
    assert (gcl.all_reduce_within_replica(x, "local") == x).all()


def test_the_example_of_the_module() -> None:
    x = np.array([[[1, 2], [10, 20]], [[3, 4], [30, 40]]])
    x = x.astype(np.int32)
    assert gcl.all_reduce_within_replica(x).tolist() == [[[11, 22]] * 2, [[33, 44]] * 2]
    assert gcl.reduce_scatter_within_replica(x).tolist() == [[[11], [22]], [[33], [44]]]


def test_invalid_arguments_are_refused() -> None:
    x = np.zeros((2, 4, 6), np.float32)
    with pytest.raises(ArgumentError, match=r"\[3\]"):
        gcl.all_reduce_within_replica(np.zeros(3))
    with pytest.raises(ArgumentError, match="not C-contiguous"):
        gcl.all_reduce_within_replica(x[:, :, ::2])
    with pytest.raises(ArgumentError, match="must have rank 1, but had rank 2"):
        gcl.reduce_scatter_within_replica(np.zeros((2, 4, 3, 3), np.float32))
    with pytest.raises(ArgumentError, match=r"\[2, 4, 4, 6\]"):
        gcl.all_gather_within_replica(x, out=x)
    with pytest.raises(ArgumentError, match="out overlaps the input"):
        gcl.all_reduce_within_replica(x[:1], out=x.reshape(-1)[6:30].reshape(1, 4, 6))
    frozen = np.frombuffer(bytes(x.nbytes), np.float32).reshape(x.shape)
    with pytest.raises(ArgumentError, match="out is read-only"):
        gcl.all_reduce_within_replica(np.ones_like(x), out=frozen)
    assert not frozen.any()
    with pytest.raises(ArgumentError, match="out is 'a'"):
        gcl.all_reduce_within_replica(x, out=ANY["a"])
    with pytest.raises(ArgumentError, match="it takes bool"):
        gcl.all_reduce_within_replica(x, "logical_and")


def test_lists_are_their_tensors_one_by_one() -> None:
    tensors = [np.arange(2 * 4 * n, dtype=np.float32).reshape(2, 4, n) for n in (1, 5, 8)]
    for collective in (
        gcl.all_reduce_within_replica,
        gcl.reduce_scatter_within_replica,
        gcl.all_gather_within_replica,
    ):
        results = collective(tensors)
        assert all(same_bits(result, collective(x)) for result, x in zip(results, tensors, strict=True))
        outs = [np.zeros_like(result) for result in results]
        collective(tensors, out=outs)
        assert all(same_bits(out, result) for out, result in zip(outs, results, strict=True))
        with pytest.raises(gcl.ArgumentError, match=r"list.*out"):
            collective(tensors, out=outs[:2])
    before = [x.copy() for x in tensors]
    with pytest.raises(gcl.ArgumentError, match=r"\bstr\b"):
        gcl.all_reduce_within_replica([*tensors, "x"], out=[*tensors, tensors[0]])
    assert all(same_bits(x, old) for x, old in zip(tensors, before, strict=True))
