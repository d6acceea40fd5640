"""Reference: what every collective must give, written as plainly as numpy allows; data is [replicas, n] of all."""

import numpy as np

from gcl import Group

COMBINE = {"add": np.add, "mean": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
OPERATORS = tuple(COMBINE)


def tree(rows: np.ndarray, op: str) -> np.ndarray:
    """Combine the rows in a balanced tree: in float32, rounded once to their dtype; MEAN divides the sum."""
    x = [row.astype(np.float32) for row in rows]
    stride = 1
    while stride < len(x):
        for i in range(0, len(x) - stride, 2 * stride):
            x[i] = COMBINE[op](x[i], x[i + stride])
        stride *= 2
    total = x[0] / np.float32(len(x)) if op == "mean" else x[0]
    return total.astype(rows.dtype)


def all_reduce(data: np.ndarray, op: str, group: Group) -> np.ndarray:
    out = np.empty_like(data)
    for members in group.all_members():
        out[members] = tree(data[members], op)
    return out


def reduce_scatter(data: np.ndarray, op: str, group: Group) -> np.ndarray:
    fragment = -(-data.shape[1] // group.size)
    padded = np.zeros((len(data), group.size * fragment), data.dtype)
    padded[:, : data.shape[1]] = all_reduce(data, op, group)
    return np.stack([row.reshape(group.size, fragment)[group.index(r)] for r, row in enumerate(padded)])


def all_gather(data: np.ndarray, group: Group) -> np.ndarray:
    return np.stack([data[group.members(group.of(replica))] for replica in range(len(data))])


def broadcast(data: np.ndarray, root: int, group: Group) -> np.ndarray:
    return np.stack([data[group.members(group.of(replica))[root]] for replica in range(len(data))])


def draw(replicas: int, n: int, dtype: type, seed: int = 0) -> np.ndarray:
    """Contributions of all replicas: numbers whose sums depend on the order in which they are added."""
    return np.random.default_rng([seed, replicas, n]).standard_normal((replicas, n)).astype(dtype)


def same_bits(found: np.ndarray, expected: np.ndarray) -> bool:
    """Equal shape, dtype and bits; any NaN equals any NaN."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    bits = f"u{found.dtype.itemsize}"
    different = np.ascontiguousarray(found).view(bits) != np.ascontiguousarray(expected).view(bits)
    return bool(np.all(np.isnan(found[different]) & np.isnan(expected[different])))
