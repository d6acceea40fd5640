"""Transfer rates: bytes per second between the IPUs of a replica, to its host, and to Streaming Memory.

host               the network of its IPU-Machine (100 GbE), shared by as many replicas as the machine holds
Streaming Memory   the link of each IPU to its gateway
IPU to IPU         the slowest link of the route on the ladder
"""

from __future__ import annotations

from gcl import LINK_BANDWIDTH, Fabric

#: Bytes per second of a machine's network, and of an IPU's link to the gateway of Streaming Memory.
NETWORK, GATEWAY_LINK = 12.5e9, 16e9
_IPUS_PER_MACHINE = 4


def host_rate(ipus: int) -> float:
    """Bytes per second between the host and a replica of ``ipus`` IPUs; the host serves one replica at a time."""
    return min(GATEWAY_LINK, NETWORK / max(1, _IPUS_PER_MACHINE // ipus))


def copy_rate(fabric: Fabric, source: int, target: int) -> float:
    """Bytes per second from the IPU at position ``source`` of a ladder to the one at ``target``."""
    return min(LINK_BANDWIDTH[hop.link] for hop in fabric.route(source, target))
