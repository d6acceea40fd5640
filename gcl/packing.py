"""packing: several tensors in one transfer, so that many small collectives cost as little as one large one.

all-reduce, broadcast    | a | b | c |                     one after the other
reduce-scatter           | a0 b0 c0 | a1 b1 c1 | ...       fragment i of every tensor, then fragment i + 1
all-gather               | a b c |                         every member's shards together
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from gcl.errors import ArgumentError

__all__ = ["all_gathered", "elementwise", "scattered"]

Collective = Callable[[np.ndarray], np.ndarray]
Empty = Callable[[int, np.dtype[np.generic]], np.ndarray]


def elementwise(
    tensors: list[np.ndarray], outs: list[np.ndarray] | None, empty: Empty, collective: Collective
) -> list[np.ndarray]:
    """Run ``collective``, which works in place, on all tensors [local, ...] as one."""
    dtype = _dtype(tensors)
    packed = empty(sum(_width(x) for x in tensors), dtype)
    for x, part in zip(tensors, _columns(packed, map(_width, tensors)), strict=True):
        part[...] = x.reshape(part.shape)
    result = collective(packed)
    parts = _columns(result, map(_width, tensors))
    return _delivered(parts, [x.shape for x in tensors], outs)


def scattered(
    tensors: list[np.ndarray], outs: list[np.ndarray] | None, size: int, empty: Empty, collective: Collective
) -> list[np.ndarray]:
    """Reduce-scatter all tensors [local, n] over groups of ``size``: [local, ceil(n / size)] each."""
    dtype = _dtype(tensors)
    widths = [-(-_width(x) // size) for x in tensors]
    packed = empty(size * sum(widths), dtype).reshape(len(tensors[0]), size, -1)
    packed[...] = 0
    for x, part in zip(tensors, _columns(packed, widths), strict=True):
        padded = np.zeros((len(x), size * part.shape[2]), x.dtype)
        padded[:, : _width(x)] = x.reshape(len(x), -1)
        part[...] = padded.reshape(part.shape)
    result = collective(packed.reshape(len(packed), -1))
    return _delivered(
        _columns(result, widths), [(len(x), width) for x, width in zip(tensors, widths, strict=True)], outs
    )


def all_gathered(
    tensors: list[np.ndarray], outs: list[np.ndarray] | None, size: int, empty: Empty, collective: Collective
) -> list[np.ndarray]:
    """All-gather all tensors [local, ...] over groups of ``size``: [local, size, ...] each."""
    dtype = _dtype(tensors)
    packed = empty(sum(_width(x) for x in tensors), dtype)
    for x, part in zip(tensors, _columns(packed, map(_width, tensors)), strict=True):
        part[...] = x.reshape(part.shape)
    result = collective(packed)
    return _delivered(_columns(result, map(_width, tensors)), [(len(x), size, *x.shape[1:]) for x in tensors], outs)


def _width(x: np.ndarray) -> int:
    return x.size // len(x)


def _dtype(tensors: list[np.ndarray]) -> np.dtype[np.generic]:
    for x in tensors:
        if not isinstance(x, np.ndarray) or x.ndim < 1:
            raise ArgumentError(f"a list with {x!r} was given; a tensor is a numpy array [local replicas, ...]")
    found = {x.dtype for x in tensors}
    if len(found) != 1:
        raise ArgumentError(
            f"a list of tensors of {', '.join(sorted(map(str, found))) or 'no dtype'} was given; "
            "tensors that travel together share one dtype"
        )
    return found.pop()


def _columns(packed: np.ndarray, widths: Iterator[int] | list[int]) -> list[np.ndarray]:
    """Views of ``packed`` [..., sum of widths], one per width."""
    ends = np.cumsum(list(widths))
    return np.split(packed, ends[:-1], axis=-1)


def _delivered(
    parts: list[np.ndarray], shapes: list[tuple[int, ...]], outs: list[np.ndarray] | None
) -> list[np.ndarray]:
    """The parts in their shapes, in ``outs`` if given."""
    results = [np.ascontiguousarray(part).reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
    if outs is None:
        return results
    if [out.shape for out in outs] != shapes:
        raise ArgumentError(
            f"outs have shapes {[list(out.shape) for out in outs]}; these tensors need {[list(s) for s in shapes]}"
        )
    for out, result in zip(outs, results, strict=True):
        out[...] = result
    return outs
