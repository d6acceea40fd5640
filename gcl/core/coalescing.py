"""Coalescing: several tensors packed into one transfer, so that many small tensors cost as much as one large one.

all-reduce, broadcast    | a | b | c |                     one after the other
reduce-scatter           | a0 b0 c0 | a1 b1 c1 | ...       fragment i of every tensor, then fragment i + 1
all-gather               | a b c |                         the shards of each member, one after the other
all-to-all               | a0 b0 c0 | a1 b1 c1 | ...       what goes to member i, then to member i + 1
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gcl.errors import ArgumentError

#: A collective on the packed tensor; the text describes the packing, which must be equal on all ranks.
Transfer = Callable[[np.ndarray, str], np.ndarray]
Empty = Callable[[int, np.dtype[np.generic]], np.ndarray]


def checked(
    tensors: list[np.ndarray],
    outs: list[np.ndarray] | None,
    check: Callable[[np.ndarray], None],
    shape: Callable[[np.ndarray], tuple[int, ...]],
) -> None:
    """Raise ArgumentError unless all ``tensors`` pass ``check`` and ``outs`` have the ``shape`` of each result."""
    for x in tensors:
        check(np.ascontiguousarray(x) if isinstance(x, np.ndarray) and x.ndim else x)
    dtypes = {x.dtype for x in tensors}
    if len(dtypes) != 1:
        raise ArgumentError(
            f"the tensors of the list are of {', '.join(sorted(map(str, dtypes))) or 'no dtype'}; "
            "give at least one tensor, all of the same dtype"
        )
    if outs is None:
        return
    if not isinstance(outs, list | tuple) or not all(isinstance(out, np.ndarray) for out in outs):
        raise ArgumentError(
            f"x is a list of tensors, but out is {_kind(outs)}; give a list of the same number of arrays"
        )
    needed, shapes = [shape(x) for x in tensors], [out.shape for out in outs]
    if shapes != needed:
        raise ArgumentError(
            f"outs have shapes {[list(s) for s in shapes]}; these tensors need {[list(s) for s in needed]}"
        )
    for out in outs:
        if out.dtype not in dtypes or not out.flags.writeable:
            access = "" if out.flags.writeable else " and read-only"
            raise ArgumentError(f"out is of {out.dtype}{access}; it must be of {dtypes.pop()} and writable")


def same_shapes(
    tensors: list[np.ndarray], outs: list[np.ndarray] | None, empty: Empty, collective: Transfer, size: int = 1
) -> list[np.ndarray]:
    """Run ``collective``, whose results have the shapes of its inputs, on all tensors [local, ...] as one.

    ``size`` above 1: it exchanges slices of tensors [local, size, ...].
    """
    return _delivered(collective(*_packed(tensors, empty, size)), [x.shape for x in tensors], outs)


def scattered(
    tensors: list[np.ndarray],
    outs: list[np.ndarray] | None,
    widths: list[int],
    size: int,
    empty: Empty,
    collective: Transfer,
) -> list[np.ndarray]:
    """Reduce-scatter all tensors [local, n] over groups of ``size``: to [local, width] each."""
    packed = empty(size * sum(widths), tensors[0].dtype).reshape(len(tensors[0]), size, -1)
    packed[...] = 0
    for x, part in zip(tensors, _columns(packed, widths), strict=True):
        padded = np.zeros((len(x), size * part.shape[2]), x.dtype)
        padded[:, : _width(x)] = x.reshape(len(x), -1)
        part[...] = padded.reshape(part.shape)
    result = collective(packed.reshape(len(packed), -1), _division(tensors))
    return _delivered(result, [(len(x), width) for x, width in zip(tensors, widths, strict=True)], outs)


def one_by_one(
    tensors: list[np.ndarray], outs: list[np.ndarray] | None, collective: Callable[[np.ndarray], np.ndarray]
) -> list[np.ndarray]:
    """Run ``collective`` on each tensor separately, where they cannot be packed."""
    results = [collective(np.ascontiguousarray(x)) for x in tensors]
    return results if outs is None else _stored(results, outs)


def all_gathered(
    tensors: list[np.ndarray], outs: list[np.ndarray] | None, size: int, empty: Empty, collective: Transfer
) -> list[np.ndarray]:
    """All-gather all tensors [local, ...] over groups of ``size``: [local, size, ...] each."""
    shapes = [(len(x), size, *x.shape[1:]) for x in tensors]
    return _delivered(collective(*_packed(tensors, empty)), shapes, outs)


def _packed(tensors: list[np.ndarray], empty: Empty, size: int = 1) -> tuple[np.ndarray, str]:
    """All tensors packed into one, for ``size`` > 1 separately for each member, and a description of the packing."""
    widths = [_width(x) // size for x in tensors]
    packed = empty(size * sum(widths), tensors[0].dtype)
    if size > 1:
        packed = packed.reshape(len(packed), size, -1)
    for x, part in zip(tensors, _columns(packed, widths), strict=True):
        part[...] = x.reshape(part.shape)
    return packed, _division(tensors)


def _division(tensors: list[np.ndarray]) -> str:
    return "list " + " ".join(str(list(x.shape[1:])) for x in tensors)


def _width(x: np.ndarray) -> int:
    return x.size // len(x)


def _kind(outs: object) -> str:
    return f"a list with {type(outs[0]).__name__}" if isinstance(outs, list | tuple) and outs else type(outs).__name__


def _columns(packed: np.ndarray, widths: list[int]) -> list[np.ndarray]:
    """Views of ``packed`` [..., sum of widths], one per width."""
    return np.split(packed, np.cumsum(widths)[:-1], axis=-1)


def _delivered(result: np.ndarray, shapes: list[tuple[int, ...]], outs: list[np.ndarray] | None) -> list[np.ndarray]:
    """Cut the last axis of ``result`` into tensors of ``shapes``; copy them to ``outs`` if given."""
    widths = [int(np.prod(shape[result.ndim - 1 :])) for shape in shapes]
    parts = zip(_columns(result, widths), shapes, strict=True)
    results = [np.ascontiguousarray(part).reshape(shape) for part, shape in parts]
    return results if outs is None else _stored(results, outs)


def _stored(results: list[np.ndarray], outs: list[np.ndarray]) -> list[np.ndarray]:
    for out, result in zip(outs, results, strict=True):
        out[...] = result
    return outs
