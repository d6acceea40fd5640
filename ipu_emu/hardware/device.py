"""Device: the IPUs, emulated or only described, that a session runs on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Connection", "Device", "DeviceKind"]


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
    """``ipus`` are the IPUs of the emulated system behind it, if there is one."""

    kind: DeviceKind
    id: int
    num_ipus: int
    tiles_per_ipu: int
    version: str
    connection: Connection = Connection.ALWAYS
    ipus: tuple[int, ...] = ()
