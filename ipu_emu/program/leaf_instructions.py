"""Leaf: an instruction without others inside: one thing that all replicas of an instance do."""

from __future__ import annotations

from dataclasses import dataclass

from ipu_emu.graph import Op
from ipu_emu.program.io_overlap import Overlap

__all__ = [
    "AccumulateAnchor",
    "AccumulateGradient",
    "AllReduce",
    "Collective",
    "Compute",
    "CountMicroBatch",
    "DrawKey",
    "HostLoad",
    "HostStore",
    "IpuCopy",
    "Leaf",
    "RemoteLoad",
    "RemoteStore",
    "ShardExchange",
    "WeightUpdate",
    "ops_of",
    "touched",
]


@dataclass(frozen=True)
class HostLoad:
    """Take the next chunk of ``tensor`` from the host for each replica, or one for all of them.

    With an overlap it may be taken up to ``ahead`` micro-batches before it is used.
    """

    tensor: str
    broadcast: bool = False
    overlap: Overlap = Overlap.NONE
    ahead: int = 1

    def __str__(self) -> str:
        far = f", up to {self.ahead} micro-batches" if self.ahead > 1 else ""
        return f"HostLoad {self.tensor}{' (one for all replicas)' if self.broadcast else ''}{self.overlap.value}{far}"


@dataclass(frozen=True)
class Compute:
    """Run an op."""

    op: Op

    def __str__(self) -> str:
        return f"Compute {self.op}"


@dataclass(frozen=True)
class IpuCopy:
    """Copy a tensor to the IPU of ``op``."""

    op: Op

    def __str__(self) -> str:
        return f"IpuCopy {self.op}"


@dataclass(frozen=True)
class RemoteLoad:
    """Copy a tensor from Streaming Memory to its IPU."""

    op: Op

    def __str__(self) -> str:
        return f"RemoteLoad {self.op}"


@dataclass(frozen=True)
class RemoteStore:
    """Copy a tensor from an IPU to its Streaming Memory."""

    op: Op

    def __str__(self) -> str:
        return f"RemoteStore {self.op}"


@dataclass(frozen=True)
class CountMicroBatch:
    """Set the weights of a running mean: after f micro-batches, ``keep`` = f/(f+1) and ``take`` = 1/(f+1)."""

    keep: str
    take: str

    def __str__(self) -> str:
        return f"CountMicroBatch {self.keep}, {self.take}"


@dataclass(frozen=True)
class DrawKey:
    """Set the key of random numbers: [seed, global replica (not if ``shared``), step, micro-batch of the step]."""

    tensor: str
    shared: bool = False

    def __str__(self) -> str:
        return f"DrawKey {self.tensor}"


@dataclass(frozen=True)
class AccumulateGradient:
    """Run ``first`` in the first micro-batch of a batch and ``others`` in the others."""

    first: Op
    others: Op

    def __str__(self) -> str:
        return f"AccumulateGradient {self.first.outputs[0]} += {self.first.inputs[1]}"


@dataclass(frozen=True)
class AccumulateAnchor:
    """Run ``first`` in the first micro-batch of a step and ``others`` in the others."""

    first: Op
    others: Op

    def __str__(self) -> str:
        return f"AccumulateAnchor {self.first.outputs[0]} += {self.first.inputs[1]}"


@dataclass(frozen=True)
class AllReduce:
    """Combine a bucket over the replicas of its group, in all instances, in place.

    With ``rounded`` the results, of FLOAT16, are rounded stochastically: the tensors in the bucket, each with the
    name that its random numbers go by.
    """

    bucket: str
    operator: str
    rounded: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"AllReduce {self.operator} {self.bucket}{', rounded stochastically' if self.rounded else ''}"


@dataclass(frozen=True)
class Collective:
    """Run an op between replicas, each of which gives its input and takes its output."""

    op: Op

    def __str__(self) -> str:
        return f"Collective {self.op}"


@dataclass(frozen=True)
class ShardExchange:
    """Run collectives of shards as one: each replica gives the inputs and takes the outputs of all."""

    ops: tuple[Op, ...]

    def __str__(self) -> str:
        return f"ShardExchange {'; '.join(map(str, self.ops))}"


@dataclass(frozen=True)
class WeightUpdate:
    """Run an op that changes a weight and its states in place."""

    op: Op

    def __str__(self) -> str:
        return f"WeightUpdate {self.op}"


@dataclass(frozen=True)
class HostStore:
    """Give the host ``tensor`` of each replica, as ``anchor``.

    With ``every`` = n only in every n-th micro-batch of the step; with ``every`` = 0 only in the last one.
    """

    tensor: str
    anchor: str
    every: int = 1
    overlap: Overlap = Overlap.NONE

    def __str__(self) -> str:
        when = {0: " (last micro-batch)", 1: ""}.get(self.every, f" (every {self.every} micro-batches)")
        return f"HostStore {self.anchor}{when}{self.overlap.value}"


Leaf = (
    HostLoad
    | Compute
    | IpuCopy
    | RemoteLoad
    | RemoteStore
    | CountMicroBatch
    | DrawKey
    | AccumulateGradient
    | AccumulateAnchor
    | AllReduce
    | Collective
    | ShardExchange
    | WeightUpdate
    | HostStore
)


def ops_of(leaf: Leaf) -> list[Op]:
    """The ops that an instruction runs."""
    if isinstance(leaf, Compute | IpuCopy | RemoteLoad | RemoteStore | WeightUpdate | Collective):
        return [leaf.op]
    if isinstance(leaf, ShardExchange):
        return list(leaf.ops)
    if isinstance(leaf, AccumulateGradient | AccumulateAnchor):
        return [leaf.first, leaf.others]
    return []


def touched(leaf: Leaf) -> list[str]:
    """The tensors that an instruction reads or writes."""
    if isinstance(leaf, HostLoad | HostStore):
        return [leaf.tensor]
    return [id for op in ops_of(leaf) for id in (*op.reads, *op.outputs) if id]
