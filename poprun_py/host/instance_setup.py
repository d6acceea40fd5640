"""Surroundings: what a supervisor arranges for its instance on its own host: CPUs, memory, threads, the network."""

from __future__ import annotations

from typing import NamedTuple

from poprun_py.numa.binding import bind
from poprun_py.numa.placement import Placement, place
from poprun_py.numa.topology import discover_here
from poprun_py.wire.messages import Start

__all__ = ["NETWORK_VARIABLES", "Surroundings", "arrange"]

#: Where libraries look for the name of the interface to use: MPICH's UCX and libfabric, and gloo (PyTorch).
NETWORK_VARIABLES = ("UCX_NET_DEVICES", "FI_TCP_IFACE", "GLOO_SOCKET_IFNAME")


class Surroundings(NamedTuple):
    """Where the instance runs, what to add to its environment, and what could not be arranged."""

    placement: Placement
    environment: dict[str, str]
    warning: str = ""


def arrange(order: Start) -> Surroundings:
    """Bind this process, and so all that it starts."""
    placement = place(discover_here(), order.placement, index=order.local_index, count=order.local_count)
    environment = dict.fromkeys(order.threads, str(placement.threads))
    warnings = [bind(placement)]
    if order.network:
        from poprun_py.site.network import interface_in, interfaces  # rarely needed

        interface = interface_in(order.network, interfaces())
        if interface:
            wanted = [name for name in NETWORK_VARIABLES if name not in order.environment]
            environment |= dict.fromkeys(wanted, interface.name)
        else:
            warnings.append(f"there is no interface in {order.network} (--host-subnet); the MPI chooses one")
    return Surroundings(placement, environment, "; ".join(filter(None, warnings)))
