"""Host collectives: reduction, gather and broadcast of host values between the instances of a job.

They are meant for losses, metrics and parts of results. Values are combined in instance order, so that every instance
gets the same bits. Use gcl for large tensors and frequent calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from popdist_py.errors import BackendError
from popdist_py.popdist_core import host_backend

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

_OPERATORS = {
    "sum": "add",
    "add": "add",
    "mean": "add",
    "mul": "multiply",
    "min": "minimum",
    "max": "maximum",
}


def allReduce(value: ArrayLike, op: str = "sum") -> Any:
    """Combine ``value`` over all instances and return the result, which is bitwise the same on all of them.

    ``value`` is an array or a number. ``op`` is sum (also: add), mean, min, max or mul. All instances must make the
    call with the same ``op``, shape and dtype. Values are combined in instance order; float16 is combined in float32
    and rounded once. Returns an array of the shape and dtype of ``value`` (a mean of integers: float64), or a NumPy
    scalar if ``value`` is a number. Raises BackendError before ``init``, for an unknown ``op`` or a dtype that is not
    numeric, if the instances make different calls, and after half an hour of waiting.
    """
    import numpy as np

    if not isinstance(op, str) or op not in _OPERATORS:
        raise BackendError(f"unknown operator {op!r}; use one of {', '.join(sorted(_OPERATORS))}")
    mine = np.asarray(value)
    if mine.dtype.kind not in "biufc":
        raise BackendError(f"allReduce cannot reduce dtype {mine.dtype}; give numbers")
    parts = _gathered(mine, f"allReduce({op})")
    sums = parts.astype(np.float32 if mine.dtype == np.float16 else mine.dtype.newbyteorder("="))
    result = getattr(np, _OPERATORS[op]).reduce(sums, axis=0, dtype=sums.dtype)
    if op == "mean":
        result = result / len(parts)
    floating = np.issubdtype(mine.dtype, np.inexact)
    return result.astype(mine.dtype) if floating else result


def allGather(value: ArrayLike) -> np.ndarray:
    """Gather ``value`` from all instances and return an array [instances, *shape], in instance order.

    ``value`` is an array or a number: numeric, bool, text, bytes or dates. All instances must make the call with the
    same shape and dtype. Raises BackendError before ``init``, for any other dtype, if the instances make different
    calls, and after half an hour of waiting.
    """
    import numpy as np

    mine = np.asarray(value)
    if mine.dtype.kind not in "biufcmMSU":
        raise BackendError(f"allGather cannot gather dtype {mine.dtype}; give numbers or text")
    return _gathered(mine, "allGather")


def broadcast(value: Any, root: int = 0) -> Any:
    """Return the ``value`` of instance ``root`` on every instance; ``value`` is ignored on the others.

    ``value`` is an array, or plain data: numbers, text, bytes, None, and lists and dicts of these. All instances must
    make the call with the same ``root``; within ``execute_on_instances``, it counts among the selected instances.
    Raises BackendError before ``init``, for a ``root`` that does not exist, for a value of another type, if the
    instances make different calls, and after half an hour of waiting.
    """
    import msgpack
    import numpy as np

    if not isinstance(root, int) or not 0 <= root < host_backend().size:
        raise BackendError(f"root {root!r} is not an instance; use 0 to {host_backend().size - 1}")
    data = b""
    if host_backend().rank == root:
        if isinstance(value, (np.ndarray, np.generic)):
            data = msgpack.packb((value.dtype.str, list(value.shape), value.tobytes()))
        else:
            data = _packed(value)
    content = host_backend().broadcast(data, root, f"broadcast(root {root})")
    dtype, shape, content = msgpack.unpackb(content, strict_map_key=False)
    if dtype is None:
        return content
    return np.frombuffer(content, dtype).reshape(shape).copy()


def _gathered(mine: np.ndarray, what: str) -> np.ndarray:
    import numpy as np

    parts = host_backend().all_gather(mine.tobytes(), f"{what} with {mine.dtype.name} {list(mine.shape)}")
    return np.stack([np.frombuffer(part, mine.dtype).reshape(mine.shape) for part in parts])


def _packed(value: Any) -> bytes:
    import msgpack

    try:
        data: bytes = msgpack.packb((None, None, value))
    except (TypeError, ValueError, OverflowError):
        raise BackendError(
            f"broadcast cannot send a {type(value).__name__}; give arrays, numbers, text, lists or dicts"
        ) from None
    return data
