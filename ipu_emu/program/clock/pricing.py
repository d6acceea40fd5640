"""Pricing: the modelled seconds of each instruction, with their category and the IPU of the replica."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

from gcl import (
    ClosedPrice,
    Collective,
    Group,
    Price,
    closed_price,
    price,
    schedule,
    sync_seconds,
)
from ipu_emu.graph import Op
from ipu_emu.hardware.rates import GATEWAY_LINK, copy_rate
from ipu_emu.ops.communication.collective_ops import group_of
from ipu_emu.ops.communication.shard_ops import CROSS_DOMAIN, shards_of
from ipu_emu.program.buckets import Bucket
from ipu_emu.program.clock.machine import ModelledMachine
from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import (
    Accumulation,
    AllReduce,
    Compute,
    CountMicroBatch,
    DrawKey,
    HostLoad,
    HostStore,
    Instruction,
    IpuCopy,
    Leaf,
    RemoteLoad,
    RemoteStore,
    ReplicaCollective,
    ShardCollectives,
    WeightUpdate,
    row,
)
from ipu_emu.program.memory_plan import ipu_of, node_in
from ipu_emu.program.op_cycles import op_cycles


class CostCategory(StrEnum):
    """The kind of work that modelled time is spent on."""

    COMPUTE = "compute"
    COPY = "copies between IPUs"
    STREAMING = "Streaming Memory"
    HOST = "host I/O"
    BESIDE = "host I/O during compute"
    PREFETCH = "prefetch into Streaming Memory"
    COLLECTIVE = "collectives"
    UPDATE = "weight update"


class Duration(NamedTuple):
    """Seconds, with the parts for syncs and for data movement between tiles, IPUs or host; the rest is work."""

    seconds: float
    sync: float = 0.0
    exchange: float = 0.0

    @classmethod
    def of_transfer(cls, moving: float, sync: float) -> Duration:
        """The duration of a sync and of the data movement after it."""
        return cls(moving + sync, sync, moving)


@dataclass(frozen=True)
class InstructionPrice:
    """``seconds`` of work on an IPU of the replica, with those for ``sync`` and ``exchange``."""

    category: CostCategory
    ipu: int
    seconds: float
    sync: float = 0.0
    exchange: float = 0.0


class Pricing:
    """The prices of the instructions of one executable on one machine."""

    def __init__(self, executable: Executable, machine: ModelledMachine) -> None:
        self.executable, self.machine = executable, machine
        self.collective = cache(self._collective)

    def of(self, leaf: Leaf) -> InstructionPrice:
        """The price of one execution."""
        return row(PRICES, type(leaf))(self, leaf)

    def compute(self, leaf: Compute) -> InstructionPrice:
        return InstructionPrice(CostCategory.COMPUTE, leaf.op.place.ipu, *self.op_duration(leaf.op))

    def accumulate(self, leaf: Accumulation) -> InstructionPrice:
        return InstructionPrice(CostCategory.COMPUTE, leaf.others.place.ipu, *self.op_duration(leaf.others))

    def update(self, leaf: WeightUpdate) -> InstructionPrice:
        return InstructionPrice(CostCategory.UPDATE, leaf.op.place.ipu, *self.op_duration(leaf.op))

    def copy(self, leaf: IpuCopy) -> InstructionPrice:
        """The price of a copy between IPUs, over the links of the first replica."""
        source, target = self.home(leaf.op.inputs[0]), leaf.op.place.ipu
        nbytes = self.executable.graph.tensor(leaf.op.outputs[0]).nbytes
        places = self.machine.places
        between = (places[source], places[target])
        slowest = nbytes / copy_rate(self.machine.fabric, *between) if source != target else 0.0
        duration = Duration.of_transfer(slowest, self.sync(self.machine.ipus_per_replica))
        return InstructionPrice(CostCategory.COPY, target, *duration)

    def remote(self, leaf: RemoteLoad | RemoteStore) -> InstructionPrice:
        """The price of a transfer over the link to the gateway, after a sync with the host."""
        nbytes = self.executable.graph.tensor(leaf.op.inputs[-1]).nbytes
        duration = Duration.of_transfer(nbytes / GATEWAY_LINK, self.host_sync())
        return InstructionPrice(CostCategory.STREAMING, leaf.op.place.ipu, *duration)

    def load(self, leaf: HostLoad) -> InstructionPrice:
        return self.transfer(leaf.tensor)

    def store(self, leaf: HostStore) -> InstructionPrice:
        """The average price of a store over the micro-batches of a step, not all of which store."""
        price, share = self.transfer(leaf.tensor), 1 / (leaf.every or self.micro_batches)
        return replace(price, seconds=share * price.seconds, sync=share * price.sync, exchange=share * price.exchange)

    def transfer(self, id: str) -> InstructionPrice:
        """The price of a transfer between the host and an IPU, after a sync with the host."""
        nbytes = self.executable.graph.tensor(id).nbytes
        duration = Duration.of_transfer(nbytes / self.machine.host_rate, self.host_sync())
        return InstructionPrice(CostCategory.HOST, self.home(id), *duration)

    def all_reduce(self, leaf: AllReduce) -> InstructionPrice:
        bucket, nbytes = Bucket.named(leaf.bucket), self.executable.plan.sizes[leaf.bucket]
        duration = self.collective(Collective.ALL_REDUCE, nbytes, bucket.dtype.itemsize, bucket.group, bucket.ipu)
        return InstructionPrice(CostCategory.COLLECTIVE, bucket.ipu, *duration)

    def between_replicas(self, leaf: ReplicaCollective) -> InstructionPrice:
        tensor = self.executable.graph.tensor(leaf.op.inputs[0])
        group = group_of(leaf.op, self.machine.replicas)
        kind, ipu = _kind_of(leaf.op), leaf.op.place.ipu
        duration = self.collective(kind, tensor.nbytes, tensor.dtype.itemsize, group, ipu, is_short=True)
        return InstructionPrice(CostCategory.COLLECTIVE, ipu, *duration)

    def shard_collectives(self, leaf: ShardCollectives) -> InstructionPrice:
        """The price of one collective of several tensors; a gathered tensor counts the bytes of its shard."""
        tensors = [self.executable.graph.tensor(op.inputs[-1]) for op in leaf.members]
        first, nbytes = leaf.members[0], sum(tensor.nbytes for tensor in tensors)
        itemsize, domain, ipu = tensors[0].dtype.itemsize, shards_of(first).domain, first.place.ipu
        parts = [self.collective(_kind_of(first), nbytes, itemsize, domain, ipu)]
        between = first.attributes.get(CROSS_DOMAIN)
        if between is not None:
            parts.append(self.collective(Collective.ALL_REDUCE, nbytes // domain[1], itemsize, tuple(between), ipu))
        return InstructionPrice(CostCategory.COLLECTIVE, ipu, *map(sum, zip(*parts, strict=True)))

    def free(self, leaf: CountMicroBatch | DrawKey) -> InstructionPrice:
        """Price 0: these instructions set scalars in the control program."""
        return InstructionPrice(CostCategory.COMPUTE, 0, 0.0)

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a step."""
        return self.executable.step.batches * self.executable.step.accumulation

    def op_duration(self, op: Op) -> Duration:
        """The price of an op; views are free."""
        if op.outputs[0] in self.executable.plan.views:
            return Duration(0.0)
        node, machine = node_in(self.executable.graph, op), self.machine
        cycles = op_cycles(node, machine.generation, machine.compute_tiles, machine.rates)
        return Duration(*(part / machine.generation.clock for part in cycles))

    def home(self, id: str) -> int:
        """The IPU that holds a tensor."""
        placement = self.executable.plan.placements.get(id)
        return 0 if placement is None else ipu_of(placement.region)

    def host_sync(self) -> float:
        """Seconds of the sync before a transfer with the host: of one IPU, or of all IPUs of a replica."""
        return self.sync(1 if self.machine.sync.name == "SinglePipeline" else self.machine.ipus_per_replica)

    def sync(self, ipus: int) -> float:
        return sync_seconds(ipus, self.machine.generation.clock)

    def _collective(
        self,
        kind: Collective,
        nbytes: int,
        itemsize: int,
        group: tuple[int, int] | None,
        ipu: int,
        *,
        is_short: bool = False,
    ) -> Duration:
        """The duration by the method that GCL would choose, of tensors on one IPU of each replica.

        0 for a single replica; GCL's schedule for a part of the replicas has them spread over the IPUs of a replica.
        The share of the link rate is that of gradients, with syncs and the work of tiles; syncs of a short message
        take their nominal time.
        """
        machine = self.machine
        if machine.replicas == 1 or group == (1, 1):
            return Duration(0.0)
        fabric, elements = machine.fabric, -(-nbytes // itemsize)
        members = Group.all(fabric.replicas) if group is None else Group(fabric.replicas, *group)
        cost: ClosedPrice | Price
        if kind in _CLOSED and members == Group.all(fabric.replicas):
            on_ipus = [elements * (place == machine.places[ipu]) for place in range(machine.width)]
            cost = closed_price(kind, fabric, on_ipus, itemsize=itemsize, clock=machine.generation.clock)
        else:
            plan = schedule(kind, fabric, elements, itemsize=itemsize, group=members)
            cost = price(plan, machine.generation.clock)
        inside, across, rates = cost.inside, cost.across, machine.rates
        share = rates.links * rates.collectives
        moving = inside.transfer / share + across.transfer / (rates.gateway * rates.collectives)
        hops, sync, work = (getattr(cost.total, part) / (1 if is_short else share) for part in _LATENCIES)
        return Duration(moving + hops + sync + work, sync, moving + hops)


def _kind_of(op: Op) -> Collective:
    return next((collective for name, collective in _COLLECTIVES.items() if name in op.type), Collective.ALL_REDUCE)


#: Parts of the cost of a collective that do not depend on the rate of links.
_LATENCIES = ("hops", "sync", "compute")
#: Part of the name of an op between replicas, and its collective; all others are all-reduces.
_COLLECTIVES = {
    "AllGather": Collective.ALL_GATHER,
    "ReduceScatter": Collective.REDUCE_SCATTER,
    "AllToAll": Collective.ALL_TO_ALL,
    "Broadcast": Collective.BROADCAST,
}
#: Collectives over all replicas that a formula prices, however many replicas there are.
_CLOSED = (Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.ALL_GATHER)
#: How every instruction is priced.
PRICES: dict[type[Instruction], Callable[[Pricing, Any], InstructionPrice]] = {
    Compute: Pricing.compute,
    Accumulation: Pricing.accumulate,
    WeightUpdate: Pricing.update,
    IpuCopy: Pricing.copy,
    RemoteLoad: Pricing.remote,
    RemoteStore: Pricing.remote,
    HostLoad: Pricing.load,
    HostStore: Pricing.store,
    AllReduce: Pricing.all_reduce,
    ReplicaCollective: Pricing.between_replicas,
    ShardCollectives: Pricing.shard_collectives,
    CountMicroBatch: Pricing.free,
    DrawKey: Pricing.free,
}
