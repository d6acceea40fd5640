"""Packed varints: the numbers of a packed field of a protobuf message, decoded by numpy in pieces.

A parsed message takes 4 bytes per number, and a Python object per number while they are read. FLOAT16 values of
``int32_data`` are read without that: the bits of one value in each number, or of two in PopART's packed form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["packed_halves"]

#: Bytes decoded at a time: the intermediate results stay in the L2 cache.
_PIECE = 1 << 16
#: The longest varint, and the bytes of one that hold the low 32 bits.
_LONGEST, _LOW = 10, 5


def packed_halves(data: memoryview, count: int) -> NDArray[np.float16] | None:
    """Return the ``count`` FLOAT16 values that ``data`` encodes; None if it encodes another number of values."""
    numbers = np.frombuffer(data, np.uint8)
    found = sum(np.count_nonzero(numbers[at : at + _PIECE] < 0x80) for at in range(0, numbers.size, _PIECE))
    if not numbers.size or numbers[-1] >= 0x80:
        return None
    if found == count:
        values: NDArray[Any] = np.empty(count, np.uint16)
    elif found == (count + 1) // 2:
        values = np.empty(found, np.uint32)
    else:
        return None
    _decode(numbers, values)
    return values.view(np.float16)[:count]


def _decode(numbers: NDArray[np.uint8], values: NDArray[Any]) -> None:
    """Set ``values`` to the low bits of the varints in ``numbers``."""
    at = made = 0
    while at < numbers.size:
        piece = numbers[at : at + _PIECE]
        ends = np.flatnonzero(piece < 0x80)
        if not ends.size:
            raise ValueError("a varint without an end")
        piece = piece[: ends[-1] + 1]
        one = _piece_of(piece, ends)
        values[made : made + one.size] = one
        at, made = at + piece.size, made + one.size


def _piece_of(piece: NDArray[np.uint8], ends: NDArray[np.intp]) -> NDArray[Any]:
    """Return the low 32 bits of the varints of a piece, which end at ``ends``."""
    if ends.size == piece.size:
        return piece
    lengths = np.diff(ends, prepend=-1)
    if lengths.max() > _LONGEST:
        raise ValueError("a varint without an end")
    starts = ends - lengths + 1
    made = (piece[starts] & np.uint8(0x7F)).astype(np.uint32)
    for place in range(1, min(int(lengths.max()), _LOW)):
        (longer,) = np.nonzero(lengths > place)
        bits = (piece[starts[longer] + place] & np.uint8(0x7F)).astype(np.uint32)
        made[longer] |= bits << np.uint32(7 * place)
    return made
