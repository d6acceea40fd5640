"""ModelledMachine: the system, the replicas on it, and the assumed rates, on which modelled times depend."""

from __future__ import annotations

from dataclasses import dataclass

from gcl import Fabric
from gcl.drawing.units import counted
from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import Generation, SelectionOrder, System, shard_order
from ipu_emu.hardware.rates import NOMINAL, Rates, host_rate
from ipu_emu.hardware.sync_groups import PATTERNS, SyncConfiguration, groups

#: The most IPUs that a replica may have.
WIDEST = 16


@dataclass(frozen=True)
class ModelledMachine:
    """``replicas`` of ``ipus_per_replica`` IPUs each; raise EmulatorError if they do not fit on the system.

    ``io_tiles`` of each IPU transfer data with the host while the others compute. ``order`` gives the positions of
    the IPUs of a replica on the ladder.

    ``rates`` are the fractions of nominal rates that are reached. ``host`` is the rate between a replica and its
    host in bytes per second, 0 for that of ``transfer_rates``.
    """

    system: System
    replicas: int = 1
    ipus_per_replica: int = 1
    rates: Rates = NOMINAL
    host: float = 0.0
    sync: SyncConfiguration = PATTERNS["Full"]
    io_tiles: int = 0
    order: SelectionOrder = SelectionOrder.ZIGZAG

    def __post_init__(self) -> None:
        if self.replicas < 1 or self.ipus_per_replica < 1 or self.replicas * self.width > self.system.ipus:
            taken = "" if self.width == self.ipus_per_replica else f" (which take {self.width})"
            raise EmulatorError(
                f"{counted(self.replicas, 'replica')} of {counted(self.ipus_per_replica, 'IPU')}{taken} requested; "
                f"{self.system.name} has {self.system.ipus} IPUs; use fewer replicas or a larger system"
            )
        if not 0 <= self.io_tiles < self.generation.tiles:
            raise EmulatorError(
                f"{counted(self.io_tiles, 'I/O tile')} requested; an IPU has {self.generation.tiles} tiles, and some "
                "of them must compute; use fewer"
            )
        if self.width > WIDEST:
            raise EmulatorError(f"{self.ipus_per_replica} IPUs per replica requested; use at most {WIDEST}")

    @property
    def host_rate(self) -> float:
        """Bytes per second between a replica and its host."""
        return self.host or host_rate(self.width)

    @property
    def generation(self) -> Generation:
        """The generation of the IPUs."""
        return self.system.generation

    @property
    def compute_tiles(self) -> int:
        """Tiles of an IPU that compute."""
        return self.generation.tiles - self.io_tiles

    @property
    def width(self) -> int:
        """The IPUs that a replica occupies: a power of two."""
        return 1 << (self.ipus_per_replica - 1).bit_length()

    @property
    def fabric(self) -> Fabric:
        """The links between the replicas."""
        return self.system.fabric(self.replicas, self.width)

    def waiting(self, ipus: int) -> tuple[tuple[int, ...], ...]:
        """The groups of ``ipus`` in a pipeline that wait for each other when the host serves one of them."""
        kind = {"gs1": self.sync.gs1, "gs2": self.sync.gs2}[self.sync.host]
        places = self.places
        sync_groups = groups(kind, range(len(places)), len(places))
        return tuple(tuple(ipu for ipu in range(ipus) if places[ipu] in group) for group in sync_groups)

    @property
    def places(self) -> tuple[int, ...]:
        """The position on the ladder of each IPU of a replica."""
        return shard_order(self.order, self.width)
