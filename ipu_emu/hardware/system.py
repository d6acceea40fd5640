"""System: the emulated machine: how many IPUs, of which generation, with how many tiles.

Source: Graphcore data sheets; see docs for the figures of each generation.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["POD16", "System"]


@dataclass(frozen=True)
class System:
    """IPUs that programs can be given; device ids below ``ipus`` are single IPUs, then come pairs, fours, ..."""

    name: str
    ipus: int
    tiles_per_ipu: int
    version: str

    def device_ids(self, size: int) -> range:
        """Ids of the devices of ``size`` IPUs (a power of two); empty if the system is too small."""
        start, width = 0, 1
        while width < size:
            start += self.ipus // width
            width *= 2
        return range(start, start + self.ipus // size)

    def ipus_of(self, device_id: int) -> tuple[int, ...] | None:
        """The IPUs that make up a device, or None where there is no such device."""
        size = 1
        while size <= self.ipus:
            ids = self.device_ids(size)
            if device_id in ids:
                first = (device_id - ids.start) * size
                return tuple(range(first, first + size))
            size *= 2
        return None


#: Four IPU-M2000 of four GC200 each.
POD16 = System("Pod16", 16, 1472, "ipu2")
