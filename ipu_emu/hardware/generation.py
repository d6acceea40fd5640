"""Generation: the properties of a type of IPU: tiles, clock, memory, rates of compute and exchange.

Sources: data sheets of the C2 card, the IPU-M2000 and the Bow-2000. Rates are per IPU.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Generation:
    """``clock`` in Hz, ``tile_memory`` and ``streaming_memory`` in bytes, FLOPs per cycle of a tile's AMP unit.

    ``pods`` begins the names of its Pods; None: there are none.
    """

    name: str
    version: str
    tiles: int
    clock: float
    tile_memory: int
    half_flops: int
    float_flops: int
    streaming_memory: int
    load_bytes: int = 16
    exchange_bytes: int = 4
    workers: int = 6
    links: int = 10
    pods: str | None = None

    @property
    def sram(self) -> int:
        """Bytes of memory on an IPU."""
        return self.tiles * self.tile_memory

    def peak(self, itemsize: int) -> float:
        """Return FLOP/s of matrix products of elements of ``itemsize`` bytes."""
        return self.tiles * self.clock * (self.half_flops if itemsize <= 2 else self.float_flops)

    @property
    def exchange(self) -> float:
        """Bytes per second of the exchange between all tiles."""
        return self.tiles * self.clock * self.exchange_bytes


#: Streaming Memory: 256 GB per machine at most, shared by four IPUs.
_KIB, _STREAMING = 1024, 64 * 10**9

GC2 = Generation("GC2", "ipu1", 1216, 1.6e9, 256 * _KIB, 64, 16, 0)
GC200 = Generation("GC200", "ipu2", 1472, 1.33e9, 624 * _KIB, 128, 32, _STREAMING, pods="")
BOW = Generation("Bow", "ipu21", 1472, 1.85e9, 624 * _KIB, 128, 32, _STREAMING, pods="Bow ")

#: Generations by Poplar's names.
GENERATIONS = {generation.version: generation for generation in (GC2, GC200, BOW)}
