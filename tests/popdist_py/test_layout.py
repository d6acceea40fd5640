"""Layout: which replicas belong to which instance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popdist_py import Layout, LayoutError


def test_the_drawing() -> None:
    layout = Layout.uniform(num_replicas=12, num_instances=3)
    assert [list(layout.replicas(instance)) for instance in range(3)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]
    assert [layout.offset(instance) for instance in range(3)] == [0, 4, 8]
    assert layout.is_uniform


def test_instances_may_own_different_numbers() -> None:
    layout = Layout.of([3, 1, 2])
    assert [layout.offset(instance) for instance in range(3)] == [0, 3, 4]
    assert [list(layout.replicas(instance)) for instance in range(3)] == [[0, 1, 2], [3], [4, 5]]
    assert (layout.num_instances, layout.num_replicas, layout.is_uniform) == (3, 6, False)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_every_replica_has_one_owner_in_contiguous_blocks(counts: list[int]) -> None:
    layout = Layout.of(counts)
    everyone = [replica for instance in range(len(counts)) for replica in layout.replicas(instance)]
    assert everyone == list(range(sum(counts)))


@pytest.mark.parametrize(
    ("replicas", "instances", "message"),
    [
        (8, 3, "8 replicas over 3 instances: 8 is not divisible by 3; use 1, 2, 4 or 8 instances"),
        (4, 8, "4 replicas over 8 instances: 4 is not divisible by 8; use 1, 2 or 4 instances"),
        (1, 2, "1 replicas over 2 instances: 1 is not divisible by 2; use 1 instances"),
        (0, 1, "0 replicas are not possible; use 1 to 65536"),
        (4, 0, "0 instances are not possible; use 1 to 65536"),
        (-4, 2, "-4 replicas are not possible; use 1 to 65536"),
    ],
)
def test_indivisible_replicas_are_refused(replicas: int, instances: int, message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        Layout.uniform(num_replicas=replicas, num_instances=instances)
    assert str(caught.value) == message


def test_impossible_counts() -> None:
    with pytest.raises(LayoutError, match="0 instances"):
        Layout.of([])
    with pytest.raises(LayoutError, match="instance 1 has 0 replicas"):
        Layout.of([2, 0])


@pytest.mark.parametrize("instance", [-1, 3])
def test_instances_that_are_not_there(instance: int) -> None:
    layout = Layout.of([3, 1, 2])
    with pytest.raises(LayoutError, match=f"instance {instance}.*0 to 2"):
        layout.replicas(instance)
