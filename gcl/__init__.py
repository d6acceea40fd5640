"""gcl: collectives that really move and reduce tensors between replicas, within and between processes."""

from gcl.communicator import Communicator
from gcl.connect import connect, connect_threads
from gcl.errors import (
    ArgumentError,
    CollectiveMismatch,
    CollectiveTimeout,
    GclError,
    PeerLost,
    TransportError,
)
from gcl.groups import Group
from gcl.operators import Operator

__all__ = [
    "ArgumentError",
    "CollectiveMismatch",
    "CollectiveTimeout",
    "Communicator",
    "GclError",
    "Group",
    "Operator",
    "PeerLost",
    "TransportError",
    "connect",
    "connect_threads",
]
