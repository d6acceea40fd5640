"""gcl: collectives that really move and reduce tensors between replicas, within and between processes."""

from gcl.communicator import Communicator
from gcl.connect import connect, connect_threads
from gcl.core.groups import CommGroup, CommGroupType, Group
from gcl.core.handle import Handle
from gcl.core.layout import BalancedReorder, HostRearrangement, PlainPadding, graph_shard
from gcl.core.operators import Operator
from gcl.core.request import Collective
from gcl.cost.closed_price import ClosedPrice, closed_price
from gcl.cost.program_cost import Cost, Price, price, sync_seconds
from gcl.errors import (
    ArgumentError,
    CollectiveMismatch,
    CollectiveTimeout,
    GclError,
    PeerLost,
    TransportError,
)
from gcl.fabric.fabric import LINK_BANDWIDTH, Fabric, LinkClass, LinkConfiguration, Topology
from gcl.graphcore_api import (
    MIN_IO_TILES,
    allGather,
    allGatherCrossReplica,
    allGatherToDestinationCrossReplica,
    allGatherWithinReplica,
    allReduce,
    allReduceCrossReplica,
    allReduceInPlace,
    allReduceInPlaceCrossReplica,
    allReduceToDestination,
    allReduceToDestinationCrossReplica,
    allReduceWithinReplica,
    allToAll,
    allToAllCrossReplica,
    broadcastCrossReplica,
    getMinIoTiles,
    getNumXBsUsed,
    perIPUTiles,
    reduceScatter,
    reduceScatterCrossReplica,
    reduceScatterToDestinationCrossReplica,
    reduceScatterWithinReplica,
)
from gcl.literal.literal_path import LiteralCommunicator
from gcl.reduce.within_replica import (
    all_gather_within_replica,
    all_reduce_within_replica,
    reduce_scatter_within_replica,
)
from gcl.scheduling.methods.method import Method
from gcl.scheduling.options import Options
from gcl.scheduling.program.step_program import StepProgram
from gcl.scheduling.schedule import Schedule, interpret, schedule

__all__ = [
    "LINK_BANDWIDTH", "MIN_IO_TILES", "ArgumentError", "BalancedReorder", "ClosedPrice", "Collective",
    "CollectiveMismatch", "CollectiveTimeout", "CommGroup", "CommGroupType", "Communicator", "Cost", "Fabric",
    "GclError", "Group", "Handle", "HostRearrangement", "LinkClass", "LinkConfiguration", "LiteralCommunicator",
    "Method", "Operator", "Options", "PeerLost", "PlainPadding", "Price", "Schedule", "StepProgram", "Topology",
    "TransportError", "allGather", "allGatherCrossReplica", "allGatherToDestinationCrossReplica",
    "allGatherWithinReplica", "allReduce", "allReduceCrossReplica", "allReduceInPlace",
    "allReduceInPlaceCrossReplica", "allReduceToDestination", "allReduceToDestinationCrossReplica",
    "allReduceWithinReplica", "allToAll", "allToAllCrossReplica", "all_gather_within_replica",
    "all_reduce_within_replica", "broadcastCrossReplica", "closed_price", "connect", "connect_threads",
    "getMinIoTiles", "getNumXBsUsed", "graph_shard", "interpret", "perIPUTiles", "price", "reduceScatter",
    "reduceScatterCrossReplica", "reduceScatterToDestinationCrossReplica", "reduceScatterWithinReplica",
    "reduce_scatter_within_replica", "schedule", "sync_seconds",
]  # fmt: skip
