"""Monitored barrier: a barrier in which rank 0 reports the ranks that did not arrive."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Protocol

import numpy as np
from torch.distributed import DistBackendError

from gcl.torch.work import GclWork

#: The first tag that programs cannot use: PyTorch's tags are 32-bit numbers.
RESERVED = 1 << 40
_HELLO, _GO = RESERVED, RESERVED + 1


class Messages(Protocol):
    """Protocol of sends and receives."""

    def send(self, data: np.ndarray, target: int, tag: int) -> GclWork: ...

    def receive(self, out: np.ndarray, source: int | None, tag: int, then: Callable[[], None]) -> GclWork: ...

    def withdraw(self, work: GclWork) -> None: ...


def monitored_barrier(messages: Messages, rank: int, ranks: int, seconds: float, *, all_ranks: bool) -> None:
    """Wait for all ranks at most ``seconds``; raise DistBackendError naming the first that did not come.

    ``all_ranks``: name all missing ranks.
    """
    if rank == 0:
        _lead(messages, ranks, seconds, all_ranks=all_ranks)
        return
    deadline = monotonic() + seconds
    try:
        messages.send(_message(), 0, _HELLO).wait()
        answer = messages.receive(_message(), 0, _GO, lambda: None)
    except RuntimeError as error:
        raise _not_answered(rank) from error
    if not _came(answer, deadline):
        messages.withdraw(answer)
        raise _not_answered(rank)


def _lead(messages: Messages, ranks: int, seconds: float, *, all_ranks: bool) -> None:
    deadline = monotonic() + seconds
    hellos = [messages.receive(_message(), rank, _HELLO, lambda: None) for rank in range(1, ranks)]
    missing: list[int] = []
    for rank, hello in enumerate(hellos, 1):
        if missing and not all_ranks:
            break
        if seconds <= 0:
            raise DistBackendError(
                "Rank 0 timed out in monitoredBarrier before it could look at any rank; raise timeout"
            )
        if not _came(hello, deadline):
            missing.append(rank)
    for hello in hellos:
        messages.withdraw(hello)
    if missing:
        names = f"Rank{'s' if all_ranks else ''} {', '.join(map(str, missing))}"
        raise DistBackendError(
            f"{names} failed to pass monitoredBarrier in {seconds * 1000:g} ms; check what they are doing, "
            "or pass a longer timeout"
        )
    for rank in range(1, ranks):
        messages.send(_message(), rank, _GO).wait()


def _came(work: GclWork, deadline: float) -> bool:
    try:
        return work.waits_at_most(max(1e-3, deadline - monotonic())) and work.is_success()
    except RuntimeError:
        return False


def _not_answered(rank: int) -> DistBackendError:
    return DistBackendError(
        f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
        "rank 0. Please check rank 0 logs for faulty rank."
    )


def _message() -> np.ndarray:
    return np.zeros(1, np.uint8)
