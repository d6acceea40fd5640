"""Network: the interfaces of this host, and those that lead to other hosts (IPv4, Linux)."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network, NetmaskValueError

from poprun_py.errors import UsageError

LOOPBACK = "127.0.0.1"

_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B


@dataclass(frozen=True)
class Interface:
    """A network interface with an IPv4 address."""

    name: str
    address: str
    network: str  # such as 10.0.0.0/24


def interfaces() -> list[Interface]:
    """Return the interfaces of this host that have an address, in the kernel's order.

    Supervisors call this as they start: importing psutil, which knows the same, would take far longer.
    """
    known = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                address, mask = (
                    socket.inet_ntoa(fcntl.ioctl(probe.fileno(), what, request)[20:24])
                    for what in (_SIOCGIFADDR, _SIOCGIFNETMASK)
                )
            except OSError:  # it has none
                continue
            known.append(Interface(name, address, str(IPv4Network(f"{address}/{mask}", strict=False))))
    return known


def interface_in(network: str, among: Iterable[Interface]) -> Interface | None:
    """Return the interface whose address is in ``network``; None if there is none."""
    subnet = IPv4Network(network)
    return next((interface for interface in among if IPv4Address(interface.address) in subnet), None)


def subnet_named(requested: str, among: Iterable[Interface]) -> Interface:
    """Return the interface that --host-subnet names, or the one in that subnet; raise UsageError.

    Other hosts use the ``network`` of the result, since the names of their interfaces may differ.
    """
    known = list(among)
    for interface in known:
        if interface.name == requested:
            return interface
    try:
        network = str(IPv4Network(requested, strict=False))
    except (AddressValueError, NetmaskValueError, ValueError):
        network = ""
    match = interface_in(network, known) if network else None
    if match is None:
        have = ", ".join(f"{interface.name} ({interface.network})" for interface in known) or "none"
        raise UsageError(
            [f"--host-subnet {requested}: this host has no such interface or subnet; use one of: {have}"]
        )
    return Interface(match.name, match.address, network)


def addresses_towards(hosts: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses at which ``hosts`` can reach this host: of the interfaces that lead to them, each once.

    If no name resolves here (ssh may know it nevertheless), all addresses of this host.
    """
    addresses: list[str] = []
    for host in hosts:
        address = _address_towards(host)
        if address and address not in addresses:
            addresses.append(address)
    if addresses and set(addresses) != {LOOPBACK}:
        return tuple(address for address in addresses if address != LOOPBACK)
    outside = [interface.address for interface in interfaces() if not interface.address.startswith("127.")]
    return tuple(outside) or (LOOPBACK,)


def _address_towards(host: str) -> str | None:
    """The source address of a packet to ``host``; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])
