"""System: the emulated machine: number and generation of its IPUs, their IPU-Link domains, and its devices.

IPU_EMU_SYSTEM names it (pod4, pod16, bow-pod64, 4xpod16, dss8440, ...). Without it a job of the launcher gets the
smallest Pod that holds all its replicas, but at least a Pod16; a program without the launcher gets a Pod16.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from gcl import Fabric, Topology
from ipu_emu.errors import EmulatorError
from ipu_emu.hardware.generation import BOW, GC2, GC200, GENERATIONS, Generation
from ipu_emu.hardware.position import IPUS_PER_MACHINE, Position
from popdist_py.environment import Environment
from popdist_py.messages.suggestion import did_you_mean

SYSTEM_VARIABLE = "IPU_EMU_SYSTEM"
_SMALLEST, _LARGEST, _LARGEST_DOMAIN = 4, 65536, 64
#: Names that error messages suggest.
_USUAL = ("pod4", "pod16", "pod64", "pod128", "pod256", "bow-pod16", "bow-pod64", "bow-pod128", "bow-pod256")
_GRID = re.compile(r"^(\d{1,2})x(\d{1,4})$", re.ASCII)
#: Generations by the beginning of the names of their Pods.
_PODS = {
    generation.pods.strip().lower(): generation for generation in GENERATIONS.values() if generation.pods is not None
}
_POD = re.compile(rf"(?:(\d{{1,4}})x)?({'|'.join(_PODS)})[-_ ]?(?:pod)?[-_ ]?(\d{{1,5}})", re.ASCII)


@dataclass(frozen=True)
class System:
    """An emulated system; device ids below ``ipus`` are single IPUs, the next ones pairs, then groups of four, ...

    IPUs are numbered upwards, domain after domain; ``domain_size`` of them are joined by IPU-Links alone.
    """

    name: str
    ipus: int
    generation: Generation
    domain_size: int
    most_hosts: int = 1

    @classmethod
    def pod(cls, ipus: int, generation: Generation = GC200, *, domains: int | None = None) -> System:
        """Return a Pod, or a cluster of ``domains`` Pods, with ``ipus`` IPUs in total."""
        count = domains or -(-ipus // _LARGEST_DOMAIN)
        prefix = generation.pods or ""
        name = f"{prefix}Pod{ipus}" if domains is None else f"{count} x {prefix}Pod{ipus // count}"
        return cls(name, ipus, generation, ipus // count, _most_hosts(ipus // count) * count)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> System:
        """Return the system that the environment selects; raise EmulatorError for an unknown one."""
        name = environ.get(SYSTEM_VARIABLE, "")
        if name:
            return cls.named(name)
        job = Environment.from_environ(environ)
        instances = -(-job.num_total_replicas // job.num_local_replicas)
        needed = instances * (1 << (job.num_local_replicas * job.num_ipus_per_replica - 1).bit_length())
        return cls.pod(max(POD16.ipus, 1 << (needed - 1).bit_length()))

    @classmethod
    def named(cls, name: str, option: str = f"{SYSTEM_VARIABLE}=") -> System:
        """Return the system ``name``, in any letter case: pod16, Bow-Pod64, 4xpod16, c2; errors name ``option``.

        16x4 is a grid of 16 IPUs in each of 4 domains, which is 4xpod16, or 4 x Pod16.
        """
        plain = _GRID.sub(r"\2xpod\1", re.sub(r" *x *", "x", name.strip().lower()))
        if plain in _OTHERS:
            return _OTHERS[plain]
        match = _POD.fullmatch(plain)
        domains, ipus = (int(match[1] or 1), int(match[3])) if match else (1, 0)
        total = domains * ipus
        fits = min(ipus, total) >= _SMALLEST and total <= _LARGEST and not total & (total - 1)
        if not match or not fits or (match[1] and ipus > _LARGEST_DOMAIN):
            raise EmulatorError(
                f"{option}{name}: there is no such system; use pod4, pod16, pod64, pod128, pod256 or a larger power "
                f"of two up to pod{_LARGEST}, bow-pod16, a cluster such as 4xpod16, or {', '.join(_OTHERS)}"
                f"{did_you_mean(plain, (*_USUAL, *_OTHERS))}"
            )
        return cls.pod(total, _PODS[match[2]], domains=domains if match[1] else None)

    @property
    def tiles_per_ipu(self) -> int:
        """Number of tiles of an IPU."""
        return self.generation.tiles

    @property
    def version(self) -> str:
        """Generation of the IPUs, such as ipu2."""
        return self.generation.version

    @property
    def machines(self) -> int:
        """Number of IPU-Machines, of four IPUs each also in systems without IPU-Machines."""
        return -(-self.ipus // IPUS_PER_MACHINE)

    @property
    def domains(self) -> int:
        """Number of IPU-Link domains."""
        return -(-self.ipus // self.domain_size)

    def fabric(self, replicas: int, width: int) -> Fabric:
        """The links between ``replicas`` of ``width`` IPUs, in domains of equal size, of which some may be unused.

        The top row of 64 IPUs is cabled to the bottom row, so replicas that fill such a domain are on a torus.
        """
        domains = -(-replicas * width // self.domain_size)
        row = domains * (2 if replicas > 1 and width == 1 else 1)  # a ladder has two rails
        total = -(-replicas // row) * row
        return Fabric(total, width, domains, topology=Topology.of_domain(total // domains * width))

    def position(self, ipu: int) -> Position:
        """The position of an IPU in the system."""
        return Position(ipu, self.domain_size)

    def device_ids(self, size: int) -> range:
        """Ids of the devices of ``size`` IPUs (a power of two); empty if the system is too small."""
        start, width = 0, 1
        while width < size:
            start += self.ipus // width
            width *= 2
        return range(start, start + self.ipus // size)

    def ipus_of(self, device_id: int) -> tuple[int, ...] | None:
        """Return the IPUs of a device, or None if there is no such device."""
        size = 1
        while size <= self.ipus:
            ids = self.device_ids(size)
            if device_id in ids:
                first = (device_id - ids.start) * size
                return tuple(range(first, first + size))
            size *= 2
        return None


def _most_hosts(ipus: int) -> int:
    """Return the largest number of hosts of a Pod: one for every four machines, and at least one."""
    return max(1, ipus // 16)


#: Four IPU-M2000 of four GC200 each.
POD16 = System.pod(16)

#: Systems other than Pods.
_OTHERS = {
    "c2": System("C2 card", 2, GC2, 2),
    "dss8440": System("DSS8440", 16, GC2, 16),
    "m2000": System("IPU-M2000", 4, GC200, 4),
    "bow-2000": System("Bow-2000", 4, BOW, 4),
}


class DeviceKind(Enum):
    """The type of a device."""

    IPU_MODEL = "IpuModel"
    CPU = "Cpu"
    IPU = "Ipu"
    OFFLINE = "OfflineIpu"
    SIM = "Sim"


class Connection(Enum):
    """When a program attaches to a device."""

    ALWAYS = "Always"
    ON_DEMAND = "OnDemand"
    NEVER = "Never"


@dataclass(frozen=True)
class Device:
    """The IPUs, emulated or only described, that a session runs on.

    ``ipus`` are those of the emulated system behind it, if there is one.
    """

    kind: DeviceKind
    id: int
    num_ipus: int
    tiles_per_ipu: int
    version: str
    connection: Connection = Connection.ALWAYS
    ipus: tuple[int, ...] = ()
