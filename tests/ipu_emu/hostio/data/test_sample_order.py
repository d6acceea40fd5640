"""Sample order: every sample of an epoch goes to one replica, however replicas are spread over instances."""

from __future__ import annotations

import numpy as np
import pytest

from ipu_emu.hostio.data.sample_order import BatchShape, ReplicaRange, SampleOrder, keys_of, permutation


def test_the_drawing_of_the_module() -> None:
    shape = BatchShape(micro_batch=2)
    for replica in range(2):
        order = SampleOrder(9, shape, ReplicaRange(1, replica, 2))
        assert order.steps == 2
        assert [order.rows(0, step).tolist() for step in range(2)] == [
            [2 * replica, 2 * replica + 1],
            [2 * replica + 4, 2 * replica + 5],
        ]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("spread", [(4,), (2, 2), (1, 3), (1, 1, 1, 1)])
def test_a_replica_sees_the_same_samples_in_every_layout(spread: tuple[int, ...], shuffle: bool) -> None:
    shape, epoch, parts = BatchShape(2, 3, 2), 5, []
    for instance, local in enumerate(spread):
        order = SampleOrder(101, shape, ReplicaRange(local, sum(spread[:instance]), 4), shuffle, seed=3)
        assert order.steps == 2
        assert order.contiguous == (not shuffle and len(spread) == 1)
        rows = [order.rows(epoch, step).reshape(2, 3, local, 2) for step in range(order.steps)]
        np.testing.assert_array_equal(np.concatenate(rows).reshape(-1), order.rows(epoch, 0, order.steps))
        parts.append(np.stack(rows))
    seen = np.concatenate(parts, axis=3).reshape(-1)
    expected = permutation(3, epoch, 101) if shuffle else np.arange(101)
    np.testing.assert_array_equal(seen, expected[:96])


def test_epochs_and_seeds_have_their_own_orders() -> None:
    orders = [permutation(seed, epoch, 100).tolist() for seed, epoch in ((0, 0), (0, 1), (1, 0), (-1, 0))]
    assert all(sorted(order) == list(range(100)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4
    assert permutation(-1, 0, 100).tolist() == permutation(2**64 - 1, 0, 100).tolist()


def test_axes_of_a_step() -> None:
    assert BatchShape(5, 4, 3).leading_axes(2) == (5, 4, 2, 3)
    assert BatchShape(5, 1, 1).leading_axes(1) == (5, 1)
    assert BatchShape(1, 4).leading_axes(2) == (4, 2)
    assert (BatchShape(5, 4, 3).samples(2), BatchShape(5, 4).samples(2)) == (120, 40)


def test_keys_are_those_of_splitmix64() -> None:
    """Computed in Python's integers, from the published constants."""

    def mixed(value: int) -> int:
        value = (value + 0x9E3779B97F4A7C15) % 2**64
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
        return value ^ value >> 31

    assert mixed(0) == 0xE220A8397B1DCDAF  # the first output for seed 0
    rows = np.array([0, 1, 2**40])
    for seed, epoch in ((0, 0), (7, 3), (-1, 1)):
        start = mixed((mixed(seed % 2**64) + epoch) % 2**64)
        expected = [mixed((int(row) + start) % 2**64) for row in rows]
        assert keys_of(seed, epoch, rows).tolist() == expected
