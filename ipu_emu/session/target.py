"""Target: the IPUs that a program is compiled for, and which replicas of the job this process runs on them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ipu_emu.hardware import GENERATIONS, Connection, Device, DeviceKind, SelectionOrder, System

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """``ipus`` of ``device`` per replica; ``local`` replicas of this process from ``offset`` on, of ``total``.

    ``io_tiles`` of each IPU exchange data with the host while the others compute. ``order`` is that of the IPUs of a
    replica on the device.
    """

    device: Device
    ipus: int = 1
    local: int = 1
    offset: int = 0
    total: int = 1
    io_tiles: int = 0
    order: SelectionOrder = SelectionOrder.ZIGZAG

    @classmethod
    def in_system(
        cls,
        ipus: int,
        *,
        local: int,
        offset: int,
        total: int,
        io_tiles: int = 0,
        order: SelectionOrder = SelectionOrder.ZIGZAG,
        version: str = "",
    ) -> Target:
        """Return IPUs of the emulated system (IPU_EMU_SYSTEM), or offline ones of the generation ``version``."""
        generation = GENERATIONS[version] if version else System.from_environ(os.environ).generation
        kind, connection = (DeviceKind.OFFLINE, Connection.NEVER) if version else (DeviceKind.IPU, Connection.ALWAYS)
        device = Device(kind, 0, ipus * local, generation.tiles, generation.version, connection)
        return cls(device, ipus, local, offset, total, io_tiles, order)
