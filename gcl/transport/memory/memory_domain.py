"""Memory domain: ranks whose memory this rank can address: threads of one process, or processes of one host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np

from gcl.transport.memory.segment import Segment
from gcl.transport.rendezvous.process_liveness import Process
from gcl.transport.rendezvous.rendezvous import LINE

#: Bytes in the control block for the description of each rank's call.
TEXT_BYTES = 2048


def control_bytes(ranks: int) -> int:
    """Size of the control block: a line and a text for each rank."""
    return ranks * (LINE + TEXT_BYTES)


def core_cache_bytes() -> int:
    """Size of the second-level cache of the first core; 0 if Linux does not report it in KiB."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return 0
    number, unit = text[:-1], text[-1:]
    return int(number) << 10 if unit == "K" and number.isdecimal() else 0


@dataclass(frozen=True)
class MemoryDomain:
    """The resources with which one rank runs collectives over shared memory.

    control          uint8, the control block, shared by all ranks
    memories         uint8, every rank's segment as this rank sees it
    arenas           their addresses
    alive(rank)      whether that rank can still arrive
    close()          release what the domain holds
    cores            number of cores that the ranks may use
    uses_process_vm  whether the kernel may copy between them
    smallest         bytes of the smallest segment of all ranks
    core_cache       bytes of the second-level cache of a core, the least of all ranks; 0 if not known
    processes        the process of each rank, if each is one
    communicators    what the communicators of this process publish while they wait (``deadlock_detector``); None if
                     the ranks are threads
    """

    rank: int
    control: np.ndarray
    memories: list[np.ndarray]
    arenas: list[int]
    segment: Segment
    alive: Callable[[int], bool]
    close: Callable[[], None]
    name: str
    cores: int
    uses_process_vm: bool
    smallest: int
    core_cache: int
    processes: tuple[Process, ...] = ()
    communicators: WeakSet[Any] | None = None

    @property
    def ranks(self) -> int:
        return len(self.arenas)

    def write_text(self, text: str) -> None:
        """Publish ``text``, such as the call that this rank made."""
        data = text.encode()[: TEXT_BYTES - 1]
        area = self._text(self.rank)
        area[: len(data)] = np.frombuffer(data, np.uint8)
        area[len(data) :] = 0

    def read_text(self, rank: int) -> str:
        """The text that ``rank`` published."""
        return bytes(self._text(rank)).rstrip(b"\0").decode(errors="replace")

    def _text(self, rank: int) -> np.ndarray:
        start = self.ranks * LINE + rank * TEXT_BYTES
        return self.control[start : start + TEXT_BYTES]
