"""Group: the replicas that take part in one collective together, as (replicas, stride, size).

12 replicas, CONSECUTIVE 3   {0 1 2} {3 4 5} {6 7 8} {9 10 11}       stride 1
12 replicas, ORTHOGONAL 4    {0 3 6 9} {1 4 7 10} {2 5 8 11}         stride 12 / 4 = 3
"""

from __future__ import annotations

from dataclasses import dataclass

from gcl.errors import ArgumentError

__all__ = ["Group"]


@dataclass(frozen=True)
class Group:
    """A division of ``replicas`` into groups of ``size`` whose members are ``stride`` apart."""

    replicas: int
    stride: int
    size: int

    def __post_init__(self) -> None:
        if self.replicas < 1 or self.stride < 1 or self.size < 1:
            raise ArgumentError(
                f"groups of {self.size} with stride {self.stride} over {self.replicas} replicas were asked for; "
                "all three must be at least 1"
            )
        if self.size == 1 and self.stride != 1:
            raise ArgumentError(f"groups of 1 with stride {self.stride} were asked for; use stride 1")
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
        """Every replica alone."""
        return cls(replicas, 1, 1)

    @classmethod
    def consecutive(cls, replicas: int, size: int) -> Group:
        """{0 .. size - 1}, {size .. 2 size - 1}, ..."""
        return cls(replicas, 1, size)

    @classmethod
    def orthogonal(cls, replicas: int, size: int) -> Group:
        """{0, m, 2m, ...}, {1, m + 1, ...}, ... with m = replicas / size."""
        if size < 1 or replicas % size:
            raise ArgumentError(
                f"orthogonal groups of {size} over {replicas} replicas: {replicas} is not divisible by {size}"
            )
        return cls(replicas, 1 if size == 1 else replicas // size, size)

    @property
    def count(self) -> int:
        """Number of groups."""
        return self.replicas // self.size

    def of(self, replica: int) -> int:
        """The group of ``replica``."""
        return replica % self.stride + self.stride * (replica // (self.stride * self.size))

    def members(self, group: int) -> list[int]:
        """Replicas of ``group``, in order of their index in it."""
        first = group // self.stride * self.stride * self.size + group % self.stride
        return [first + index * self.stride for index in range(self.size)]

    def index(self, replica: int) -> int:
        """Position of ``replica`` in its group."""
        return (replica - self.members(self.of(replica))[0]) // self.stride

    def all_members(self) -> list[list[int]]:
        """Members of every group."""
        return [self.members(group) for group in range(self.count)]
