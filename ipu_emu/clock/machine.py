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

    def __post_init__(self) -> None:
        needed = self.replicas * self.ipus_per_replica
        if self.replicas < 1 or self.ipus_per_replica < 1 or needed > self.system.ipus:
            raise EmulatorError(
                f"{self.replicas} replicas of {self.ipus_per_replica} IPUs were asked for; {self.system.name} has "
                f"{self.system.ipus} IPUs; use fewer replicas or a larger system"
            )
        if not 0 < self.amp_efficiency <= 1:
            raise EmulatorError(f"an efficiency of {self.amp_efficiency} was given; use more than 0 and at most 1")

    @property
    def generation(self) -> Generation:
        return self.system.generation

    @property
    def fabric(self) -> Fabric:
        """The links between the replicas."""
        ipus = self.replicas * self.ipus_per_replica
        return Fabric(self.replicas, self.ipus_per_replica, -(-ipus // self.system.domain_size))

    @property
    def slots_are_barriers(self) -> bool:
        """Whether all IPUs of a pipeline wait for each other after each slot, as one meets the host."""
        return self.sync.name != "SinglePipeline"
