"""Tensor: a named value of one micro-batch on one replica."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from math import prod

from ipu_emu.graph.dtype import DType
from ipu_emu.graph.shards import Shards

_IPU_SUFFIX = "/ipu"


class Role(Enum):
    """The origin of a tensor's value, which determines its lifetime."""

    INPUT = "input"  # a stream from the host, new for every micro-batch
    WEIGHT = "weight"  # loaded once, changed by weight updates
    STATE = "state"  # optimiser state: loaded once, changed by weight updates
    SCALAR = "scalar"  # an optimiser value that the host may change between runs
    CONSTANT = "constant"  # known when the graph is built
    COMPUTED = "computed"  # made by an op

    @property
    def is_variable(self) -> bool:
        """Whether weight updates change tensors of this role."""
        return self in (Role.WEIGHT, Role.STATE)


@dataclass(frozen=True)
class Tensor:
    """Id, element type and per-replica shape.

    ``group`` is (stride, size) of the replicas that share a variable, or between which its gradient is reduced; None
    is all replicas. The data of a variable of several groups has a leading axis, one entry for each group.

    A variable that is sharded over replicas has ``shards``; the tensor is then one shard, but its data are whole.
    A tensor that is ``off_chip`` is in Streaming Memory.
    """

    id: str
    dtype: DType
    shape: tuple[int, ...]
    role: Role = Role.COMPUTED
    group: tuple[int, int] | None = None
    shards: Shards | None = None
    off_chip: bool = False

    @property
    def unsharded(self) -> Tensor:
        """The id of the variable that this is a shard of, or its own."""
        if self.shards is None:
            return self
        return replace(self, shape=self.shards.shape, group=self.shards.group, shards=None)

    @property
    def nelms(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.nelms * self.dtype.itemsize

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.id}: {self.dtype}{list(self.shape)}"


def id_on_ipu(id: str, ipu: int) -> str:
    """Return the id of the copy of a tensor on another IPU."""
    return f"{id}{_IPU_SUFFIX}{ipu}"


def original_of(id: str) -> str:
    """Return the id of the tensor that ``id`` is a copy of (see ``id_on_ipu``), else ``id``."""
    return id.partition(_IPU_SUFFIX)[0]
