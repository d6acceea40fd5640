"""gcl: collectives that really move and reduce tensors between replicas, within and between processes."""

from gcl.communicator import Communicator
from gcl.connect import connect, connect_threads
from gcl.cost import Cost, Price, price
from gcl.errors import (
    ArgumentError,
    CollectiveMismatch,
    CollectiveTimeout,
    GclError,
    PeerLost,
    TransportError,
)
from gcl.fabric import Fabric, LinkConfiguration, Topology
from gcl.groups import CommGroup, CommGroupType, Group
from gcl.handle import Handle
from gcl.layout import BalancedReorder, HostRearrangement, PlainPadding, graph_shard
from gcl.literal import LiteralCommunicator
from gcl.methods.method import Method
from gcl.names import (
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
from gcl.operators import Operator
from gcl.options import Options
from gcl.program import Collective, StepProgram
from gcl.schedule import Schedule, interpret, schedule
from gcl.within_replica import all_gather_within_replica, all_reduce_within_replica, reduce_scatter_within_replica

__all__ = [
    "MIN_IO_TILES",
    "ArgumentError",
    "BalancedReorder",
    "Collective",
    "CollectiveMismatch",
    "CollectiveTimeout",
    "CommGroup",
    "CommGroupType",
    "Communicator",
    "Cost",
    "Fabric",
    "GclError",
    "Group",
    "Handle",
    "HostRearrangement",
    "LinkConfiguration",
    "LiteralCommunicator",
    "Method",
    "Operator",
    "Options",
    "PeerLost",
    "PlainPadding",
    "Price",
    "Schedule",
    "StepProgram",
    "Topology",
    "TransportError",
    "allGather",
    "allGatherCrossReplica",
    "allGatherToDestinationCrossReplica",
    "allGatherWithinReplica",
    "allReduce",
    "allReduceCrossReplica",
    "allReduceInPlace",
    "allReduceInPlaceCrossReplica",
    "allReduceToDestination",
    "allReduceToDestinationCrossReplica",
    "allReduceWithinReplica",
    "allToAll",
    "allToAllCrossReplica",
    "all_gather_within_replica",
    "all_reduce_within_replica",
    "broadcastCrossReplica",
    "connect",
    "connect_threads",
    "getMinIoTiles",
    "getNumXBsUsed",
    "graph_shard",
    "interpret",
    "perIPUTiles",
    "price",
    "reduceScatter",
    "reduceScatterCrossReplica",
    "reduceScatterToDestinationCrossReplica",
    "reduceScatterWithinReplica",
    "reduce_scatter_within_replica",
    "schedule",
]
