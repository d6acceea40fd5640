"""Replica groups: GCL's formulas and the examples of its documents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcl import ArgumentError, CommGroup, Group
from tests.gcl.helpers.untyped import ANY

#: group, and its expected members
EXAMPLES = [
    (Group.consecutive(12, 3), [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]),
    (Group.orthogonal(12, 4), [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]),
    (Group.orthogonal(12, 3), [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]]),
    (Group(8, stride=2, size=2), [[0, 2], [1, 3], [4, 6], [5, 7]]),
    (Group.all(3), [[0, 1, 2]]),
    (Group.none(3), [[0], [1], [2]]),
    (Group.orthogonal(3, 1), [[0], [1], [2]]),
    (Group.all(1), [[0]]),
]


@pytest.mark.parametrize(("group", "members"), EXAMPLES, ids=lambda value: str(value)[:40])
def test_members(group: Group, members: list[list[int]]) -> None:
    assert group.all_members() == members
    assert group.count == len(members)


@st.composite
def groupings(draw: st.DrawFn) -> Group:
    size = draw(st.integers(1, 9))
    stride = draw(st.integers(1, 9)) if size > 1 else 1
    return Group(stride * size * draw(st.integers(1, 5)), stride, size)


@given(groupings())
def test_every_replica_is_in_one_group_where_index_and_of_find_it(group: Group) -> None:
    everyone = [replica for members in group.all_members() for replica in members]
    assert sorted(everyone) == list(range(group.replicas))
    for replica in range(group.replicas):
        assert group.members(group.of(replica))[group.index(replica)] == replica


@given(groupings())
def test_the_formulas_of_gcl(group: Group) -> None:
    n, s, k = group.replicas, group.stride, group.size
    for r in range(n):
        assert group.of(r) == r % s + s * (r // (s * k))
    for g in range(n // k):
        first = g // s * s * k + g % s
        assert group.members(g) == [first + i * s for i in range(k)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Group(12, 1, 5), "12 is not divisible by 5"),
        (lambda: Group(12, 4, 2), "12 is not divisible by 8"),
        (lambda: Group(12, 2, 1), "groups of 1 with stride 2"),
        (lambda: Group(12, 1, 0), "all three must be whole numbers of at least 1"),
        (lambda: Group(12, -1, 2), "all three must be whole numbers of at least 1"),
        (lambda: Group.all(0), "all three must be whole numbers of at least 1"),
        (lambda: Group.consecutive(8, 3), "8 is not divisible by 3"),
        (lambda: Group.orthogonal(8, 3), "8 is not divisible by 3"),
        (lambda: Group.orthogonal(8, 0), "groups of 0"),
        (lambda: Group(ANY["8"], 1, 2), "over '8' replicas: all three must be whole numbers"),
        (lambda: Group(ANY[8.0], 1, 2), "over 8.0 replicas"),
        (lambda: Group(ANY[True], 1, 1), "over True replicas"),
        (lambda: Group.consecutive(8, ANY[None]), "groups of None"),
        (lambda: Group.orthogonal(8, ANY[None]), "groups of None"),
        (lambda: Group.orthogonal(ANY["8"], 2), "over '8' replicas"),
        (lambda: Group.of_comm_group(8, CommGroup(ANY["foo"], 3)), "type 'foo' is unknown; use all, none"),
        (lambda: Group.of_comm_group(8, ANY["all"]), r"give a CommGroup\(type, size\)"),
        (lambda: Group.all(8).members(99), "there is no group 99; use 0 to 0"),
        (lambda: Group.none(8).members(-1), "there is no group -1; use 0 to 7"),
        (lambda: Group.all(8).index(99), "there is no replica 99; use 0 to 7"),
        (lambda: Group.all(8).of(ANY["a"]), "there is no replica 'a'"),
    ],
)
def test_invalid_groups_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ArgumentError, match=message):
        make()
