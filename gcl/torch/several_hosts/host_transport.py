"""HostTransport: the transport of bytes between the ranks of a group on several hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from gcl.torch.work import GclWork

#: The peer that caused an error, where the transport does not say which.
ELSEWHERE = "a rank of another host"


class Messages(Protocol):
    """The messages of a group."""

    def send(self, data: np.ndarray, target: int, tag: int) -> GclWork:
        """Start sending ``data``."""

    def receive(self, out: np.ndarray, source: int | None, tag: int, then: Callable[[], None]) -> GclWork:
        """Start receiving into ``out``, from any rank if ``source`` is None; at the end call ``then``."""


class HostTransport(Messages, Protocol):
    """Collectives and messages of arrays of bytes.

    ``what`` names the call in errors, ``timeout`` bounds every wait.
    """

    name: str
    timeout: float

    def all_gather(self, x: np.ndarray, outs: Sequence[np.ndarray], what: str) -> None:
        """Copy ``x`` of rank i to ``outs[i]``."""

    def broadcast(self, x: np.ndarray, root: int, what: str) -> None:
        """Copy ``x`` of rank ``root`` to that of all ranks."""

    def all_to_all(self, parts: Sequence[np.ndarray], outs: Sequence[np.ndarray], what: str) -> None:
        """Copy ``parts[j]`` of rank i to ``outs[i]`` of rank j."""

    def gather(self, x: np.ndarray, outs: Sequence[np.ndarray], root: int, what: str) -> None:
        """Copy ``x`` of rank i to ``outs[i]`` of rank ``root``; the others give no ``outs``."""

    def scatter(self, parts: Sequence[np.ndarray], out: np.ndarray, root: int, what: str) -> None:
        """Copy ``parts[i]`` of rank ``root`` to ``out`` of rank i; the others give no ``parts``."""

    def barrier(self) -> None:
        """Wait for all ranks."""

    def monitored_barrier(self, seconds: float, *, all_ranks: bool) -> None:
        """Wait for all ranks; rank 0 names the first, or all, that do not come."""
