"""Instructions of host I/O: loads and stores of the host, and when they happen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from ipu_emu.program.instructions.instruction import Instruction, Leaf, leaves


class Overlap(Enum):
    """When the host transfers a tensor: just in time, or during the compute of the adjacent micro-batch.

    Two batches of three micro-batches; L loads, C computes, S stores, U updates the weights:

        NONE     compute      C0       C1       C2    U     C3       C4       C5    U
                 I/O       L0    S0 L1    S1 L2    S2    L3    S3 L4    S4 L5    S5

        INNER    compute      C0  C1  C2       U     C3  C4  C5       U
                 I/O       L0 L1  L2      S2      L3 L4  L5      S5
                                  S0  S1                 S3  S4

        LOOPS    compute      C0  C1  C2  U  C3  C4  C5  U
                 I/O       L0 L1  L2  L3     L4  L5         S5
                                  S0  S1     S2  S3  S4

    A tensor that is transferred during compute is double-buffered: one buffer is in use while the other is filled or
    read. Tensors that stay between micro-batches, such as weights, have one buffer and are stored just in time.

    STAGED inputs are loaded into Streaming Memory several micro-batches ahead; the IPU loads them from there.
    """

    NONE = ""
    INNER = " (during the adjacent micro-batch of the batch)"
    LOOPS = " (during the adjacent micro-batch)"
    STAGED = " (ahead, into Streaming Memory)"


@dataclass(frozen=True)
class HostLoad(Leaf):
    """Load the next chunk of ``tensor`` from the host for each replica, or with ``broadcast`` one chunk for all.

    With an overlap it may be loaded up to ``ahead`` micro-batches before it is used.
    """

    is_host_io: ClassVar[bool] = True

    tensor: str
    broadcast: bool = False
    overlap: Overlap = Overlap.NONE
    ahead: int = 1

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.tensor,)

    @property
    def spare_places(self) -> int:
        """Buffers that the tensor needs in addition to the one in use, if it is loaded during compute."""
        return self.ahead

    def __str__(self) -> str:
        far = f", up to {self.ahead} micro-batches" if self.ahead > 1 else ""
        return f"HostLoad {self.tensor}{' (one for all replicas)' if self.broadcast else ''}{self.overlap.value}{far}"


@dataclass(frozen=True)
class HostStore(Leaf):
    """Store ``tensor`` of each replica on the host, as ``anchor``.

    With ``every`` = n only in every n-th micro-batch of the step; with ``every`` = 0 only in the last one.
    """

    is_host_io: ClassVar[bool] = True

    tensor: str
    anchor: str
    every: int = 1
    overlap: Overlap = Overlap.NONE

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.tensor,)

    @property
    def spare_places(self) -> int:
        """Buffers that the tensor needs in addition to the one in use, if it is stored during compute."""
        return 1

    def __str__(self) -> str:
        when = {0: " (last micro-batch)", 1: ""}.get(self.every, f" (every {self.every} micro-batches)")
        return f"HostStore {self.anchor}{when}{self.overlap.value}"


def host_transfers(program: Iterable[Instruction]) -> Iterator[HostLoad | HostStore]:
    """The instructions of host I/O, in program order."""
    for leaf in leaves(program):
        if isinstance(leaf, HostLoad | HostStore):
            yield leaf
