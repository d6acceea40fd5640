"""World: which rank owns which global replicas, as one communicator sees it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gcl.errors import ArgumentError


@dataclass(frozen=True)
class World:
    """``counts[rank]`` replicas on each rank, in contiguous blocks; this process is ``rank``.

    ``names``: the ranks in messages, where they are only some of the ranks of a job.
    """

    rank: int
    counts: tuple[int, ...]
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.counts or min(self.counts) < 1:
            raise ArgumentError(f"{self.counts} replicas per rank are not possible; give every rank at least 1")

    @classmethod
    def joined(cls, rank: int, claims: list[tuple[int, int, int]]) -> World:
        """The world in which each rank claims (local replicas, global offset, global replicas).

        Raises ArgumentError, the same on all ranks, when the claims do not tile the replicas in rank order.
        """
        start = 0
        for peer, (local, offset, total) in enumerate(claims):
            if offset != start:
                raise ArgumentError(
                    f"rank {peer} says its first replica is {offset}, but ranks before it own {start}; "
                    "offsets start at 0 and grow by the local replicas of each rank"
                )
            if total != claims[0][2]:
                raise ArgumentError(
                    f"rank {peer} says there are {total} replicas, rank 0 says {claims[0][2]}; they must agree"
                )
            start += local
        if start != claims[0][2]:
            raise ArgumentError(
                f"{len(claims)} ranks own {start} replicas in total, but global_replicas is {claims[0][2]}; "
                "local replicas of all instances must add up to the global number"
            )
        return cls(rank, tuple(claim[0] for claim in claims))

    @property
    def ranks(self) -> int:
        return len(self.counts)

    @property
    def replicas(self) -> int:
        return sum(self.counts)

    @property
    def local(self) -> int:
        """Replicas of this rank."""
        return self.counts[self.rank]

    @property
    def offset(self) -> int:
        """First global replica of this rank."""
        return sum(self.counts[: self.rank])

    @cached_property
    def owners(self) -> list[int]:
        """Rank of each global replica."""
        return [rank for rank, count in enumerate(self.counts) for _ in range(count)]

    def describe(self, rank: int) -> str:
        """``rank`` by its replicas, for messages."""
        if self.names:
            return self.names[rank]
        first = sum(self.counts[:rank])
        last = first + self.counts[rank] - 1
        replicas = f"replica {first}" if first == last else f"replicas {first} to {last}"
        return f"{replicas} (rank {rank})"
