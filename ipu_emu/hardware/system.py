"""System: the emulated machine: how many IPUs, of which generation, with how many tiles.

IPU_EMU_SYSTEM names it (pod4, pod16, pod64, ...). Without it a job of the launcher gets the smallest Pod that holds
all its replicas, but at least a Pod16, and a program alone a Pod16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ipu_emu.errors import EmulatorError
from popdist_py.environment import Environment

__all__ = ["POD16", "SYSTEM_VARIABLE", "System"]

SYSTEM_VARIABLE = "IPU_EMU_SYSTEM"
_SMALLEST, _LARGEST = 4, 65536


@dataclass(frozen=True)
class System:
    """IPUs that programs can be given; device ids below ``ipus`` are single IPUs, then come pairs, fours, ..."""

    name: str
    ipus: int
    tiles_per_ipu: int
    version: str

    @classmethod
    def pod(cls, ipus: int) -> System:
        """A Pod of GC200 IPUs."""
        return cls(f"Pod{ipus}", ipus, 1472, "ipu2")

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> System:
        """The system that the environment asks for; raise EmulatorError for one that there is not."""
        asked = environ.get(SYSTEM_VARIABLE, "")
        if asked:
            return cls.named(asked)
        job = Environment.from_environ(environ)
        needed = job.num_total_replicas * job.num_ipus_per_replica
        return cls.pod(max(POD16.ipus, 1 << (needed - 1).bit_length()))

    @classmethod
    def named(cls, name: str) -> System:
        """The Pod of that name, in any letter case: pod16, Pod-64, 128."""
        digits = name.lower().removeprefix("pod").lstrip("-_ ")
        ipus = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 6 else 0
        if not _SMALLEST <= ipus <= _LARGEST or ipus & (ipus - 1):
            raise EmulatorError(
                f"{SYSTEM_VARIABLE}={name}: there is no such system; use pod4, pod16, pod64, pod128, pod256 or a "
                f"larger power of two up to pod{_LARGEST}"
            )
        return cls.pod(ipus)

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
POD16 = System.pod(16)
