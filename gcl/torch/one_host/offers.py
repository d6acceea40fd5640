"""Offers: memory that every rank of a host makes available to the others, which copy what they need from it.

    meet     every rank has listed its pieces: where they are, and how long
    work     each rank copies, or reduces, what it needs of the pieces of all ranks
    meet     all ranks have finished reading

Small pieces are copied into the shared segment first; of large ones the kernel copies straight out of the memory of
the other process (process_vm_readv), where the system permits that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from gcl.core.request import Request
from gcl.errors import CollectiveMismatch, PeerLost
from gcl.kernels.copies import copy_bytes, start_of
from gcl.transport.memory.process_vm import transfer
from gcl.transport.memory.relayed_copies import Received, Sent, relay_layout, relay_words
from gcl.transport.memory.segment import array_at
from gcl.transport.paths.memory_path import MemoryPath

#: Pieces of at least this many bytes are not copied into the segment.
DIRECT_BYTES = 1 << 19
_WORD = np.dtype(np.int64)
_PAGE = 4096


class _Head(NamedTuple):
    """The first row of the list of a rank."""

    process: int
    pieces: int
    unused: int = 0


class _Piece(NamedTuple):
    """Each other row of the list: where a piece is."""

    offset: int  # in the segment of its rank; -1: only at ``address`` in its process
    address: int
    nbytes: int


_WORDS = len(_Piece._fields)


class Pieces:
    """The pieces that all ranks offer in one call."""

    def __init__(self, lists: list[np.ndarray], arenas: Sequence[int], process: int, request: Request) -> None:
        self._lists, self._arenas, self._process, self._request = lists, arenas, process, request
        self._vectors = np.empty(4, np.int64)

    def copy(self, rank: int, piece: int, out: np.ndarray) -> None:
        """Copy the bytes of a piece into the bytes ``out``, which must be as many."""
        nbytes = self._row(rank, piece).nbytes
        if out.nbytes != nbytes:
            raise CollectiveMismatch(
                f"{self._request}: rank {rank} of the group sends {nbytes} bytes where {out.nbytes} are expected; "
                "pass tensors of equal size on both sides"
            )
        if nbytes:
            here = start_of(out)
            there = self.near(rank, piece, out)
            if there != here:
                copy_bytes(here, there, nbytes)

    def near(self, rank: int, piece: int, room: np.ndarray, start: int = 0) -> int:
        """The address in this process of the bytes of a piece from ``start`` on, as many as ``room`` has.

        If this process cannot address them, they are copied into ``room``.
        """
        row = self._row(rank, piece)
        if row.offset >= 0:
            return self._arenas[rank] + row.offset + start
        process = _head(self._lists[rank][0]).process
        if process == self._process:
            return row.address + start
        here = start_of(room)
        if transfer(process, here, row.address + start, room.nbytes, False, self._vectors) != room.nbytes:
            gone = f"{self._request} could not reach the memory of rank {rank}, which has ended or closed it"
            raise PeerLost(gone, gone, "a rank of this host")
        return here

    def _row(self, rank: int, piece: int) -> _Piece:
        return _Piece(*self._lists[rank][1 + piece].tolist())


class Wanted(NamedTuple):
    """The part that a rank wants of a piece of another rank, which has ``pieces`` pieces, or of its ``source``."""

    rank: int
    piece: int
    pieces: int
    out: np.ndarray
    source: np.ndarray | None = None


class Offers:
    """Exchanges of pieces over ``path``, whose ranks have their segments at ``arenas``."""

    def __init__(self, path: MemoryPath, process: int) -> None:
        self._path, self._process = path, process
        self._arenas = [memory.ctypes.data for memory in path.memories]
        self._streams: np.ndarray | None = None
        self._room = path.segment.empty((1, 16 * _WORDS), _WORD)

    def exchange(self, request: Request, pieces: Sequence[np.ndarray], work: Callable[[Pieces], None]) -> None:
        """Offer ``pieces`` (bytes) and do ``work`` on those of all ranks."""
        listed = self._listing(len(pieces) + 1)
        staged = [self._staged(piece) for piece in pieces]
        segment = self._path.segment
        listed[0] = _Head(self._process, len(pieces))
        for row, (piece, near) in enumerate(zip(pieces, staged, strict=True), 1):
            offset = segment.offset_of(near)
            listed[row] = _Piece(-1 if offset is None else offset, start_of(piece), piece.nbytes)
        self._path.exchange(
            request,
            self._room,
            lambda addresses: work(Pieces(list(map(_list_at, addresses)), self._arenas, self._process, request)),
        )

    def stream(
        self, request: Request, pieces: Sequence[np.ndarray | None], wanted: Sequence[Wanted], itemsize: int = 0
    ) -> None:
        """Copy the ``wanted`` parts of the ``pieces`` (bytes) of all ranks; pieces in the segment directly.

        Other pieces are copied in chunks that stay in a cache. All pieces are equal in size, and all ranks that send
        any have equally many; None is a piece that nobody else wants. ``itemsize``: combine the wanted parts, by the
        operator of ``request``, in the first ``out``.
        """
        nbytes = max([piece.size for piece in pieces if piece is not None] + [want.out.size for want in wanted])
        slots = max([len(pieces)] + [want.pieces for want in wanted])
        layout = relay_layout(slots, in_turns=self._path.takes_turns)
        head = -(-slots * _WORD.itemsize // _PAGE) * _PAGE
        area = self._area(head + layout.nbytes)
        offsets = self._offsets(pieces, wanted)
        area[0, : len(pieces) * _WORD.itemsize].view(_WORD)[:] = offsets
        pairs = enumerate(zip(pieces, offsets, strict=True))
        sent = [Sent(slot, start_of(piece)) for slot, (piece, at) in pairs if piece is not None and at < 0]

        def received(want: Wanted, area: int) -> Received:
            out, me = start_of(want.out), self._path.rank
            if want.source is not None:
                return Received(me, start_of(want.source), -1, out)
            offset = int(array_at(area, (want.pieces,), _WORD)[want.piece])
            if offset >= 0:
                return Received(me, self._arenas[want.rank] + offset, -1, out)
            return Received(want.rank, area + head, want.piece, out)

        def words(addresses: list[int]) -> np.ndarray:
            receives = [received(want, addresses[want.rank]) for want in wanted]
            return relay_words(start_of(area) + head, layout, nbytes, sent, receives, itemsize)

        self._path.relay(request, area, words)

    def _offsets(self, pieces: Sequence[np.ndarray | None], wanted: Sequence[Wanted]) -> list[int]:
        """The offset of each of ``pieces`` in the segment; -1 outside it, or if this rank writes to the piece."""
        filled = [want.out for want in wanted if want.source is None or start_of(want.out) != start_of(want.source)]
        is_written = _is_written(filled)
        offsets = []
        for piece in pieces:
            offset = None if piece is None else self._path.segment.offset_of(piece)
            offsets.append(-1 if piece is None or offset is None or is_written(piece) else offset)
        return offsets

    def _area(self, nbytes: int) -> np.ndarray:
        if self._streams is None or self._streams.size < nbytes:
            self._streams = self._path.segment.empty((1, nbytes), np.dtype(np.uint8))
        return self._streams

    def _listing(self, rows: int) -> np.ndarray:
        if self._room.size < rows * _WORDS:
            self._room = self._path.segment.empty((1, 2 * rows * _WORDS), _WORD)
        return self._room[0, : rows * _WORDS].reshape(rows, _WORDS)

    def _staged(self, piece: np.ndarray) -> np.ndarray:
        """``piece``, or a copy of it in the segment."""
        near = piece
        if not (self._path.uses_process_vm and piece.nbytes >= DIRECT_BYTES):
            near = self._path.near(piece)
        if near is not piece and piece.nbytes:
            copy_bytes(near.ctypes.data, start_of(piece), piece.nbytes)
        return near


def apart(pieces: Sequence[np.ndarray], outs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """``pieces``, copied if they overlap one of ``outs``, which is written while other ranks read the pieces."""
    is_written = _is_written(outs)
    return [piece.copy() if is_written(piece) else piece for piece in pieces]


def _is_written(outs: Sequence[np.ndarray]) -> Callable[[np.ndarray], bool]:
    """Whether a piece overlaps one of ``outs``, which do not overlap each other."""
    spans = sorted((start := start_of(out), start + out.nbytes) for out in outs if out.nbytes)

    def is_written(piece: np.ndarray) -> bool:
        start = start_of(piece)
        at = bisect_left(spans, (start + piece.nbytes,)) - 1
        return piece.nbytes > 0 and at >= 0 and spans[at][1] > start

    return is_written


def _list_at(address: int) -> np.ndarray:
    head = _head(array_at(address, (_WORDS,), _WORD))
    return array_at(address, (1 + head.pieces, _WORDS), _WORD)


def _head(row: np.ndarray) -> _Head:
    return _Head(*row.tolist())
