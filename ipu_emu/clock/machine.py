"""Machine: all that the price of an instruction depends on: the system, the replicas on it, and what is assumed."""

from __future__ import annotations

from dataclasses import dataclass

from gcl.fabric import Fabric
from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import Generation, System
from ipu_emu.hardware.sync import PATTERNS, SyncPattern

__all__ = ["Machine"]


@dataclass(frozen=True)
class Machine:
    """``replicas`` in all, of ``ipus_per_replica`` IPUs each; raise EmulatorError where they do not fit.

    ``io_tiles`` of each IPU exchange data with the host while the others compute.

    ``amp_efficiency`` is the part of their peak that matrix units reach, 1 unless measured otherwise. ``host`` is
    each IPU's share of its machine's 100 GbE, ``streaming`` of its gateway's link, in bytes per second.
    """

    system: System
    replicas: int = 1
    ipus_per_replica: int = 1
    amp_efficiency: float = 1.0
    host: float = 3.125e9
    streaming: float = 16e9
    sync: SyncPattern = PATTERNS["Full"]
    io_tiles: int = 0

    def __post_init__(self) -> None:
        needed = self.replicas * self.ipus_per_replica
        if self.replicas < 1 or self.ipus_per_replica < 1 or needed > self.system.ipus:
            raise EmulatorError(
                f"{self.replicas} replicas of {self.ipus_per_replica} IPUs were asked for; {self.system.name} has "
                f"{self.system.ipus} IPUs; use fewer replicas or a larger system"
            )
        if not 0 <= self.io_tiles < self.generation.tiles:
            raise EmulatorError(
                f"{self.io_tiles} I/O tiles were asked for; an IPU has {self.generation.tiles} tiles, and some of "
                "them have to compute; use fewer"
            )
        if not 0 < self.amp_efficiency <= 1:
            raise EmulatorError(f"an efficiency of {self.amp_efficiency} was given; use more than 0 and at most 1")

    @property
    def generation(self) -> Generation:
        return self.system.generation

    @property
    def compute_tiles(self) -> int:
        """Tiles of an IPU that compute."""
        return self.generation.tiles - self.io_tiles

    @property
    def fabric(self) -> Fabric:
        """The links between the replicas."""
        ipus = self.replicas * self.ipus_per_replica
        return Fabric(self.replicas, self.ipus_per_replica, -(-ipus // self.system.domain_size))

    @property
    def slots_are_barriers(self) -> bool:
        """Whether all IPUs of a pipeline wait for each other after each slot, as one meets the host."""
        return self.sync.name != "SinglePipeline"
