"""Names, complements and transposes of replica groups."""

from __future__ import annotations

import pytest

from gcl.core.groups import CommGroup, CommGroupType, Group
from gcl.errors import ArgumentError

ALL, NONE = CommGroupType.ALL, CommGroupType.NONE
CONSECUTIVE, ORTHOGONAL = CommGroupType.CONSECUTIVE, CommGroupType.ORTHOGONAL


def sets(group: Group) -> set[frozenset[int]]:
    return {frozenset(members) for members in group.all_members()}


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (Group(12, 1, 1), CommGroup(NONE, 1)),
        (Group(12, 1, 12), CommGroup(ALL, 12)),
        (Group(12, 3, 4), CommGroup(ORTHOGONAL, 4)),
        (Group(12, 4, 3), CommGroup(ORTHOGONAL, 3)),
        (Group(12, 1, 3), CommGroup(CONSECUTIVE, 3)),
        (Group(1, 1, 1), CommGroup(NONE, 1)),  # NONE is tested first
        (Group(4, 2, 2), CommGroup(ORTHOGONAL, 2)),
    ],
)
def test_back_conversion(group: Group, expected: CommGroup) -> None:
    assert group.comm_group() == expected
    assert Group.of_comm_group(group.replicas, expected) == group


def test_all_and_none_ignore_their_size() -> None:
    assert Group.of_comm_group(8, CommGroup(ALL, 3)) == Group.all(8)
    assert Group.of_comm_group(8, CommGroup(NONE, 3)) == Group.none(8)


def test_a_stride_in_between_has_no_name() -> None:
    with pytest.raises(ArgumentError, match=r"2.*stride 2.*12 replicas.*CommGroup"):
        Group(12, 2, 2).comm_group()


@pytest.mark.parametrize(
    ("group", "transposed"),
    [
        (Group(12, 1, 3), Group(12, 3, 4)),
        (Group(12, 3, 4), Group(12, 1, 3)),
        (Group(12, 1, 12), Group(12, 1, 1)),
        (Group(12, 1, 1), Group(12, 1, 12)),
    ],
)
def test_transpose(group: Group, transposed: Group) -> None:
    assert group.transpose() == transposed
    assert transposed.transpose() == group


def test_only_whole_blocks_have_a_transpose() -> None:
    with pytest.raises(ArgumentError, match="product is 12"):
        Group(12, 2, 2).transpose()


@pytest.mark.parametrize("replicas", [1, 2, 6, 12, 16])
def test_a_group_and_its_complement_reach_everybody(replicas: int) -> None:
    for size in (n for n in range(1, replicas + 1) if replicas % n == 0):
        for group in (Group.consecutive(replicas, size), Group.orthogonal(replicas, size)):
            other = group.complement()
            for members in group.all_members():
                for others in other.all_members():
                    assert len(set(members) & set(others)) == 1
            assert other.complement() == group


def test_complement_of_the_reference() -> None:
    complement = Group.consecutive(12, 3).complement()
    assert sets(complement) == {frozenset(s) for s in ({0, 3, 6, 9}, {1, 4, 7, 10}, {2, 5, 8, 11})}
    assert Group.all(12).complement() == Group.none(12)
    assert Group.none(12).complement() == Group.all(12)


def test_inside_a_superset_only_the_superset_has_a_complement() -> None:
    four = Group.consecutive(12, 4)
    assert four.complement(superset=four) == Group.none(12)
    assert Group.consecutive(12, 3).complement(superset=Group.all(12)) == Group.orthogonal(12, 4)
    with pytest.raises(ArgumentError, match="only a group that equals it has one"):
        Group.consecutive(12, 2).complement(superset=four)


def test_a_group_without_a_name_has_no_complement() -> None:
    with pytest.raises(ArgumentError, match="have no CommGroup"):
        Group(12, 2, 2).complement()
