"""Group: the replicas that take part in one collective, as (replicas, stride, size).

12 replicas, CONSECUTIVE 3   {0 1 2} {3 4 5} {6 7 8} {9 10 11}       stride 1
12 replicas, ORTHOGONAL 4    {0 3 6 9} {1 4 7 10} {2 5 8 11}         stride 12 / 4 = 3

The second is the complement of the first: its groups consist of equal positions of the groups of the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from gcl.core.argument_checks import is_whole
from gcl.errors import ArgumentError
from popdist_py.messages.suggestion import did_you_mean


class CommGroupType(StrEnum):
    """The named groupings."""

    ALL = "all"
    NONE = "none"
    CONSECUTIVE = "consecutive"
    ORTHOGONAL = "orthogonal"


@dataclass(frozen=True)
class CommGroup:
    """A named grouping with groups of ``size``; ALL and NONE ignore ``size``."""

    type: CommGroupType
    size: int = 0

    def __post_init__(self) -> None:
        if self.type not in list(CommGroupType):
            hint = did_you_mean(self.type, CommGroupType)
            raise ArgumentError(f"CommGroup type {self.type!r} is unknown; use {', '.join(CommGroupType)}{hint}")


@dataclass(frozen=True)
class Group:
    """A division of ``replicas`` into groups of ``size`` whose members are ``stride`` apart."""

    replicas: int
    stride: int
    size: int

    def __post_init__(self) -> None:
        if not all(is_whole(number, 1) for number in (self.replicas, self.stride, self.size)):
            raise ArgumentError(
                f"groups of {self.size!r} with stride {self.stride!r} over {self.replicas!r} replicas: "
                "all three must be whole numbers of at least 1"
            )
        if self.size == 1 and self.stride != 1:
            raise ArgumentError(f"groups of 1 with stride {self.stride}: use stride 1")
        if self.replicas % (self.stride * self.size):
            raise ArgumentError(
                f"groups of {self.size} with stride {self.stride} over {self.replicas} replicas: "
                f"{self.replicas} is not divisible by {self.stride * self.size}; choose a size and stride "
                "whose product divides the replicas"
            )

    @classmethod
    def all(cls, replicas: int) -> Group:
        """One group of all replicas."""
        return cls(replicas, 1, replicas)

    @classmethod
    def none(cls, replicas: int) -> Group:
        """Every replica in a group of its own."""
        return cls(replicas, 1, 1)

    @classmethod
    def consecutive(cls, replicas: int, size: int) -> Group:
        """{0 .. size - 1}, {size .. 2 size - 1}, ..."""
        return cls(replicas, 1, size)

    @classmethod
    def orthogonal(cls, replicas: int, size: int) -> Group:
        """{0, m, 2m, ...}, {1, m + 1, ...}, ... with m = replicas / size."""
        if not is_whole(size, 1) or not is_whole(replicas, 1):
            return cls(replicas, 1, size)  # raises for wrong numbers
        if replicas % size:
            raise ArgumentError(
                f"orthogonal groups of {size} over {replicas} replicas: {replicas} is not divisible by {size}"
            )
        return cls(replicas, 1 if size == 1 else replicas // size, size)

    @classmethod
    def of_comm_group(cls, replicas: int, comm_group: CommGroup) -> Group:
        """The division of ``replicas`` that ``comm_group`` names."""
        if not isinstance(comm_group, CommGroup):
            raise ArgumentError(f"{comm_group!r} is not a grouping; give a CommGroup(type, size)")
        return _BY_TYPE[comm_group.type](replicas, comm_group.size)

    def comm_group(self) -> CommGroup:
        """The first of NONE, ALL, ORTHOGONAL and CONSECUTIVE that equals this division, else ArgumentError."""
        tests = {
            CommGroupType.NONE: self.size == 1,
            CommGroupType.ALL: self.size == self.replicas,
            CommGroupType.ORTHOGONAL: self.stride == self.count,
            CommGroupType.CONSECUTIVE: self.stride == 1,
        }
        for type_, fits in tests.items():
            if fits:
                return CommGroup(type_, self.size)
        raise ArgumentError(
            f"groups of {self.size} with stride {self.stride} over {self.replicas} replicas have no CommGroup; "
            f"only stride 1 (CONSECUTIVE) and stride {self.count} (ORTHOGONAL) have one at this size"
        )

    def transpose(self) -> Group:
        """The groups of equal positions of these groups; ArgumentError unless stride 1 or stride x size = replicas.

        (N, 1, k) -> (N, k, N/k);  (N, s, k) with s k = N -> (N, 1, s)
        """
        if self.stride == 1:
            size = self.replicas // self.size
            return Group(self.replicas, 1 if size == 1 else self.size, size)
        if self.stride * self.size == self.replicas:
            return Group(self.replicas, 1, self.stride)
        raise ArgumentError(
            f"the transpose of groups of {self.size} with stride {self.stride} over {self.replicas} replicas does "
            f"not exist; use stride 1, or a stride and size whose product is {self.replicas}"
        )

    def complement(self, superset: Group | None = None) -> Group:
        """The groups of replicas at equal positions of these groups within ``superset`` (default: all replicas).

        CONSECUTIVE k <-> ORTHOGONAL N/k, ALL <-> NONE. Inside any other superset only the superset itself has a
        complement, NONE. Raises ArgumentError otherwise.
        """
        if superset is not None and superset != Group.all(self.replicas):
            return self._complement_inside(superset)
        type_ = self.comm_group().type
        return _BY_TYPE[_COMPLEMENTS[type_]](self.replicas, self.replicas // self.size)

    def _complement_inside(self, superset: Group) -> Group:
        if superset != self:
            raise ArgumentError(
                f"the complement of groups of {self.size} (stride {self.stride}) inside groups of {superset.size} "
                f"(stride {superset.stride}) over {superset.replicas} replicas does not exist; inside a "
                "superset other than ALL only a group that equals it has one"
            )
        return Group.none(self.replicas)

    @property
    def count(self) -> int:
        """Number of groups."""
        return self.replicas // self.size

    def of(self, replica: int) -> int:
        """The group of ``replica``."""
        self._check(replica, self.replicas, "replica")
        return replica % self.stride + self.stride * (replica // (self.stride * self.size))

    def members(self, group: int) -> list[int]:
        """Replicas of ``group``, in order of their index in it."""
        self._check(group, self.count, "group")
        first = group // self.stride * self.stride * self.size + group % self.stride
        return [first + index * self.stride for index in range(self.size)]

    def index(self, replica: int) -> int:
        """Position of ``replica`` in its group."""
        return (replica - self.members(self.of(replica))[0]) // self.stride

    def all_members(self) -> list[list[int]]:
        """Members of every group."""
        return [self.members(group) for group in range(self.count)]

    @staticmethod
    def _check(number: int, count: int, name: str) -> None:
        if not is_whole(number) or number >= count:
            raise ArgumentError(f"there is no {name} {number!r}; use 0 to {count - 1}")


_BY_TYPE: dict[CommGroupType, Callable[[int, int], Group]] = {
    CommGroupType.ALL: lambda replicas, _: Group.all(replicas),
    CommGroupType.NONE: lambda replicas, _: Group.none(replicas),
    CommGroupType.CONSECUTIVE: Group.consecutive,
    CommGroupType.ORTHOGONAL: Group.orthogonal,
}

_COMPLEMENTS = {
    CommGroupType.ALL: CommGroupType.NONE,
    CommGroupType.NONE: CommGroupType.ALL,
    CommGroupType.CONSECUTIVE: CommGroupType.ORTHOGONAL,
    CommGroupType.ORTHOGONAL: CommGroupType.CONSECUTIVE,
}
