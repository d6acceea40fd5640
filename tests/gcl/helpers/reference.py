"""Reference: the expected result of every collective, in plain numpy; data is [replicas, n] of all replicas."""

from functools import cache
from zlib import crc32

import ml_dtypes
import numpy as np

from gcl import Group

COMBINE = {
    "add": np.add,
    "mean": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "square_add": np.add,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
}
OPERATORS = ("add", "mean", "mul", "min", "max")
_ARITHMETIC = (*OPERATORS, "square_add", "local")
#: Every dtype that can be reduced, and its operators.
OPERATORS_OF: dict[type, tuple[str, ...]] = {
    np.float32: _ARITHMETIC,
    np.float16: _ARITHMETIC,
    ml_dtypes.bfloat16: _ARITHMETIC,
    np.float64: _ARITHMETIC,
    np.int32: _ARITHMETIC,
    np.uint32: _ARITHMETIC,
    np.int8: _ARITHMETIC,
    np.uint8: _ARITHMETIC,
    np.bool_: ("logical_and", "logical_or", "min", "max", "local"),
}


def tree(rows: np.ndarray, op: str) -> np.ndarray:
    """Combine the rows in a balanced tree; MEAN divides the sum, of integers towards zero.

    Half types are summed in float32, integers in int64: rounded, or wrapped, once to their dtype.
    """
    wide = {"f": max(rows.dtype, np.dtype(np.float32)), "b": rows.dtype}.get(rows.dtype.kind, np.dtype(np.int64))
    if rows.dtype == ml_dtypes.bfloat16:
        wide = np.dtype(np.float32)
    x = [row.astype(wide) ** 2 if op == "square_add" else row.astype(wide) for row in rows]
    stride = 1
    while stride < len(x):
        for i in range(0, len(x) - stride, 2 * stride):
            x[i] = COMBINE[op](x[i], x[i + stride])
        stride *= 2
    total = x[0] / wide.type(len(x)) if op == "mean" else x[0]
    return total.astype(wide).astype(rows.dtype)


def all_reduce(data: np.ndarray, op: str, group: Group) -> np.ndarray:
    out = data.copy()
    if op == "local":
        return out
    for members in group.all_members():
        out[members] = tree(data[members], op)
    return out


def reduce_scatter(data: np.ndarray, op: str, group: Group) -> np.ndarray:
    return scattered(all_reduce(data, op, group), group)


def scattered(total: np.ndarray, group: Group) -> np.ndarray:
    """Every replica's fragment of its own row of ``total``."""
    fragment = -(-total.shape[1] // group.size)
    padded = np.zeros((len(total), group.size * fragment), total.dtype)
    padded[:, : total.shape[1]] = total
    return np.stack([row.reshape(group.size, fragment)[group.index(r)] for r, row in enumerate(padded)])


def all_gather(data: np.ndarray, group: Group) -> np.ndarray:
    return np.stack([data[group.members(group.of(replica))] for replica in range(len(data))])


def broadcast(data: np.ndarray, root: int, group: Group) -> np.ndarray:
    return np.stack([data[group.members(group.of(replica))[root]] for replica in range(len(data))])


def all_to_all(data: np.ndarray, group: Group) -> np.ndarray:
    """``data`` [replicas, group size, n]."""
    rows = [data[group.members(group.of(replica)), group.index(replica)] for replica in range(len(data))]
    return np.stack(rows)


@cache
def _numbers() -> np.ndarray:
    """Random numbers from which ``draw`` takes a slice, which is faster than drawing new ones."""
    return np.random.default_rng(0).standard_normal(1 << 18)


def draw(replicas: int, n: int, dtype: type, seed: int = 0) -> np.ndarray:
    """Contributions of all replicas: numbers whose sums depend on the order in which they are added."""
    numbers, count = _numbers(), replicas * n
    if count <= numbers.size:
        first = crc32(f"{seed} {replicas} {n}".encode()) % (numbers.size - count + 1)
        drawn = numbers[first : first + count].reshape(replicas, n)
    else:
        drawn = np.random.default_rng([seed, replicas, n]).standard_normal((replicas, n))
    if np.dtype(dtype).kind in "iu":
        drawn = np.rint(drawn * 40).astype(np.int64)  # products of int8 and negative uint32 wrap
    return (drawn > 0 if dtype is np.bool_ else drawn).astype(dtype)


def same_bits(actual: np.ndarray, expected: np.ndarray) -> bool:
    """Equal shape, dtype and bits; any NaN equals any NaN."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return False
    bits = f"u{actual.dtype.itemsize}"
    different = np.ascontiguousarray(actual).view(bits) != np.ascontiguousarray(expected).view(bits)
    if not different.any():
        return True
    return bool(np.all(np.isnan(actual[different]) & np.isnan(expected[different])))
