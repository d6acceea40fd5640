"""Layout: the assignment of the global replicas of a job to its instances.

Replicas are contiguous blocks: instance i owns ``[offset(i), offset(i) + local_replicas[i])``.

    12 replicas over 3 instances
    instance   0            1            2
    replicas   0  1  2  3   4  5  6  7   8  9 10 11
    offset     0            4            8
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from popdist_py.errors import LayoutError

#: Largest number of replicas or instances: far above any Pod, far below what would take long to lay out.
MOST = 65536


@dataclass(frozen=True)
class Layout:
    """The assignment of replicas to instances: ``local_replicas`` holds the number of replicas of each instance.

    Global replica indices are consecutive within an instance and in instance order. Immutable, and the same on all
    instances of a job. Raises LayoutError if there is no instance, or an instance without a replica.
    """

    local_replicas: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.local_replicas:
            raise LayoutError("a layout of 0 instances is not possible; give at least 1 instance")
        for instance, count in enumerate(self.local_replicas):
            if count < 1:
                raise LayoutError(f"instance {instance} has {count} replicas; give every instance at least 1")

    @classmethod
    def uniform(cls, *, num_replicas: int, num_instances: int) -> Layout:
        """Return the layout that divides ``num_replicas`` evenly; raise LayoutError if that is impossible."""
        for name, value in (("replicas", num_replicas), ("instances", num_instances)):
            if not isinstance(value, int):
                raise LayoutError(f"{value!r} is not a number of {name}; give a whole number")
            if not 1 <= value <= MOST:
                raise LayoutError(f"{value} {name} are not possible; use 1 to {MOST}")
        if num_replicas % num_instances:
            raise LayoutError(
                f"{num_replicas} replicas over {num_instances} instances: {num_replicas} is not divisible "
                f"by {num_instances}; use {divisors(num_replicas)} instances"
            )
        return cls((num_replicas // num_instances,) * num_instances)

    @classmethod
    def of(cls, local_replicas: Sequence[int]) -> Layout:
        """Return the layout with these numbers of local replicas, which may differ."""
        return cls(tuple(local_replicas))

    @property
    def num_instances(self) -> int:
        """Number of instances."""
        return len(self.local_replicas)

    @property
    def num_replicas(self) -> int:
        """Number of replicas over all instances."""
        return sum(self.local_replicas)

    @property
    def is_uniform(self) -> bool:
        """Whether every instance has the same number of replicas."""
        return len(set(self.local_replicas)) == 1

    @cached_property
    def _offsets(self) -> list[int]:
        return list(accumulate(self.local_replicas, initial=0))

    def offset(self, instance: int) -> int:
        """Return the global index of the first replica of ``instance``; raise LayoutError if there is none."""
        if not 0 <= instance < self.num_instances:
            raise LayoutError(f"there is no instance {instance}; instances are 0 to {self.num_instances - 1}")
        return self._offsets[instance]

    def replicas(self, instance: int) -> range:
        """Return the global indices of the replicas of ``instance``; raise LayoutError if there is none."""
        start = self.offset(instance)
        return range(start, start + self.local_replicas[instance])


def device_size(ipus: int) -> int:
    """Return the number of IPUs of the smallest device that holds ``ipus``: a power of two."""
    return 1 << (ipus - 1).bit_length()


def divisors(number: int) -> str:
    """Return the divisors of a number as a message lists them: "1, 2 or 4"."""
    *most, last = [str(n) for n in range(1, number + 1) if number % n == 0]
    return f"{', '.join(most)} or {last}" if most else last
