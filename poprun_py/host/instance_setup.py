"""Instance setup: sets CPUs, memory, threads and network interface of an instance on its host."""

from __future__ import annotations

from typing import NamedTuple

from poprun_py.numa.binding import bind
from poprun_py.numa.placement import Placement, place
from poprun_py.numa.topology import discover_local
from poprun_py.wire.messages import Start

#: Variables that name the network interface to use: of UCX and libfabric (MPICH), and of gloo (PyTorch).
NETWORK_VARIABLES = ("UCX_NET_DEVICES", "FI_TCP_IFACE", "GLOO_SOCKET_IFNAME")


class InstanceSetup(NamedTuple):
    """Where the instance runs, what to add to its environment, and a warning about what could not be set."""

    placement: Placement
    environment: dict[str, str]
    warning: str = ""


def set_up_instance(order: Start) -> InstanceSetup:
    """Bind this process, and so everything that it starts; return what else the instance needs."""
    placement = place(discover_local(), order.placement, index=order.local_index, count=order.local_count)
    environment = dict.fromkeys(order.threads, str(placement.threads))
    warnings = [bind(placement)]
    if order.network:
        from poprun_py.site.network import interface_in, interfaces  # rarely needed

        interface = interface_in(order.network, interfaces())
        if interface:
            unset = [name for name in NETWORK_VARIABLES if name not in order.environment]
            environment |= dict.fromkeys(unset, interface.name)
        else:
            warnings.append(f"there is no interface in {order.network} (--host-subnet); the MPI chooses one")
    return InstanceSetup(placement, environment, "; ".join(filter(None, warnings)))
