"""Store all-gather: byte strings that the ranks of a process group gather through PyTorch's Store."""

from __future__ import annotations

from datetime import timedelta

from torch.distributed import PrefixStore, Store

from gcl.errors import CollectiveTimeout

_MPI_JOB = "gcl/mpi job"


def say_mpi_job(store: Store) -> None:
    """Mark in ``store`` that all ranks that use it are in one job of MPI."""
    store.set(_MPI_JOB, b"1")


def in_mpi_job(store: Store) -> bool:
    """Whether all ranks that use ``store``, or the one below its prefixes, are in one job of MPI."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return bool(store.check([_MPI_JOB]))


class StoreAllGather:
    """All-gathers of ``ranks`` processes over ``store``, which waits at most ``timeout`` seconds.

    A rank numbers its calls in the store, so that a new group over the same store does not read old values.
    """

    def __init__(self, store: Store, rank: int, ranks: int, timeout: float) -> None:
        self._store, self._rank, self._ranks = store, rank, ranks
        self._timeout = timedelta(seconds=timeout)
        self._written: list[str] = []

    def all_gather(self, data: bytes) -> list[bytes]:
        """The byte string of each rank; raise CollectiveTimeout naming the ranks that do not come."""
        turn = self._store.add(f"gcl/turn/{self._rank}", 1)
        keys = [f"gcl/{turn}/{rank}" for rank in range(self._ranks)]
        self._store.set(keys[self._rank], data)
        try:
            self._store.wait(keys, self._timeout)
        except RuntimeError as error:
            missing = [str(rank) for rank, key in enumerate(keys) if not self._store.check([key])]
            if not missing:
                raise
            raise CollectiveTimeout(
                f"init_process_group waited {self._timeout.total_seconds():g} s for rank {', '.join(missing)}; every "
                "rank must call it: check what they are doing, or raise timeout"
            ) from error
        values = [self._store.get(key) for key in keys]
        for old in self._written:  # all ranks have read it: they have entered this call
            self._store.delete_key(old)
        self._written = [keys[self._rank]]
        return values
