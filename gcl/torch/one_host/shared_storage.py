"""Shared storage: the memory of a PyTorch tensor, replaced by shared memory at the same address.

    before    storage -> private memory
    after     storage -> shared memory without a name <- the segment of its rank, as every rank maps it

All views of the storage follow, such as gradients that are views of DDP's buckets: a collective copies nothing.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
import torch

from gcl.core.operators import Operator
from gcl.core.request import Request
from gcl.torch.one_host.offers import Offers, Pieces
from gcl.torch.one_host.restrictions import shared_memory_left, warn_of_small_shared_memory
from gcl.torch.tensors import REDUCED, array_of
from gcl.transport.memory.segment import array_at, map_over
from gcl.transport.paths.memory_path import MemoryPath

_PAGE = 4096
_WORD, _BYTE = np.dtype(np.int64), np.dtype(np.uint8)
_NOWHERE = -1


class _Claim(NamedTuple):
    """The description of a rank's storage for the others."""

    process: int
    descriptor: int  # file descriptor of the memory; _NOWHERE if the others cannot map it
    offset: int  # in the segment of the rank
    size: int


class _Region(NamedTuple):
    """The place at which this process has mapped the storage of a rank."""

    address: int
    nbytes: int


class _Place(NamedTuple):
    """A storage, referenced so that its address is not reused, and the array over it."""

    storage: torch.UntypedStorage
    array: np.ndarray
    regions: list[_Region]  # of every rank


class SharedStorages:
    """The tensors of this rank that the others can address, by a number that is equal on all ranks."""

    def __init__(self, path: MemoryPath, offers: Offers) -> None:
        self._path, self._offers = path, offers
        self._arenas = [memory.ctypes.data for memory in path.memories]
        self._places: dict[int, _Place] = {}

    def array(self, number: int, tensor: torch.Tensor) -> np.ndarray:
        """The elements of contiguous ``tensor`` as an array [1, n], in memory that all ranks address if possible.

        Collective over all ranks, which must also change the storage under a ``number`` together.
        """
        storage = tensor.untyped_storage()
        place = self._places.get(number)
        if place is None or place.storage.data_ptr() != storage.data_ptr():
            place = self._share(number, tensor, place)
        nbytes = tensor.numel() * tensor.dtype.itemsize
        if not place.regions:
            return array_of(tensor)
        if place.array.nbytes != nbytes:
            start = place.regions[self._path.rank].address + tensor.storage_offset() * tensor.dtype.itemsize
            place = place._replace(array=array_at(start, (1, tensor.numel()), REDUCED[tensor.dtype]))
            self._places[number] = place
        return place.array

    def _share(self, number: int, tensor: torch.Tensor, old: _Place | None) -> _Place:
        storage = tensor.untyped_storage()
        size = -(-storage.nbytes() // _PAGE) * _PAGE
        descriptor, offset = self._moved(storage, size)
        regions: list[_Region] = []

        def work(pieces: Pieces) -> None:
            rows = np.zeros((self._path.ranks, len(_Claim._fields)), _WORD)
            for rank, row in enumerate(rows):
                pieces.copy(rank, 0, row.view(_BYTE))
            claims = [_Claim(*row) for row in rows.tolist()]
            if all(claim.descriptor != _NOWHERE for claim in claims):
                regions[:] = self._mapped(claims)

        claim = np.array(_Claim(os.getpid(), descriptor, offset, size), _WORD)
        request = Request(None, Operator.ADD, _BYTE, 0, detail=f"shared storage {number} of {size} bytes")
        self._offers.exchange(request, [claim.view(_BYTE)], work)
        if old is not None:
            for address, nbytes in old.regions:
                map_over(address, nbytes, -1)
        place = _Place(storage, np.empty(0), regions)
        self._places[number] = place
        return place

    def _moved(self, storage: torch.UntypedStorage, size: int) -> tuple[int, int]:
        """Move ``storage``: the file descriptor of its memory and its offset in the segment, or twice _NOWHERE."""
        if storage.nbytes() == 0:
            return _NOWHERE, _NOWHERE
        wanted = 2 * self._path.ranks * size
        if (shared_memory_left() or 0) < wanted:
            if self._path.rank == 0:
                warn_of_small_shared_memory(wanted)
            return _NOWHERE, _NOWHERE
        offset = self._path.segment.reserved(size)
        if offset < 0:
            return _NOWHERE, _NOWHERE
        try:
            descriptor, _ = storage._share_fd_cpu_()
        except RuntimeError:
            return _NOWHERE, _NOWHERE
        return int(descriptor), offset

    def _mapped(self, claims: list[_Claim]) -> list[_Region]:
        """Map the storages of all ranks into their segments."""
        regions = []
        for rank, claim in enumerate(claims):
            opened = os.open(f"/proc/{claim.process}/fd/{claim.descriptor}", os.O_RDWR | os.O_CLOEXEC)
            try:
                address = self._arenas[rank] + claim.offset
                if not map_over(address, claim.size, opened):
                    raise OSError(f"{claim.size} bytes of rank {rank} could not be mapped")
            finally:
                os.close(opened)
            regions.append(_Region(address, claim.size))
        return regions
