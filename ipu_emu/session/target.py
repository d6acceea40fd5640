"""Target: the IPUs that a program is compiled for, and which replicas of the job this process runs on them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ipu_emu.hardware import GENERATIONS, Connection, Device, DeviceKind, System
from ipu_emu.hardware.host_processor import check_host_processor

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """``ipus`` of ``device`` per replica; ``local`` replicas of this process from ``offset`` on, of ``total``.

    ``io_tiles`` of each IPU exchange data with the host while the others compute.

    Raise UnsupportedError on a host whose processor cannot run kernels, before anything is compiled.
    """

    device: Device
    ipus: int = 1
    local: int = 1
    offset: int = 0
    total: int = 1
    io_tiles: int = 0

    def __post_init__(self) -> None:
        check_host_processor()

    @classmethod
    def in_system(
        cls, ipus: int, *, local: int, offset: int, total: int, io_tiles: int = 0, version: str = ""
    ) -> Target:
        """Return IPUs of the emulated system (IPU_EMU_SYSTEM), or offline ones of the generation ``version``."""
        generation = GENERATIONS[version] if version else System.from_environ(os.environ).generation
        kind, connection = (DeviceKind.OFFLINE, Connection.NEVER) if version else (DeviceKind.IPU, Connection.ALWAYS)
        device = Device(kind, 0, ipus * local, generation.tiles, generation.version, connection)
        return cls(device, ipus, local, offset, total, io_tiles)
