"""Bitwise comparison: every collective of a communicator against the same in one process, bit for bit."""

from __future__ import annotations

from collections.abc import Iterable

import ml_dtypes
import numpy as np

import gcl

__all__ = ["OPERATORS", "check_dtypes", "check_same"]

#: dtype -> the operators to try
OPERATORS = {
    "float32": ("add", "mean", "max", "square_add"),
    "float16": ("add", "mean", "min", "square_add"),
    "bfloat16": ("add", "mul"),
    "float64": ("add",),
    "int32": ("add", "mean"),
    "uint32": ("max",),
    "int8": ("add", "mul"),
    "uint8": ("min",),
    "bool": ("logical_and", "logical_or"),
}


def check_dtypes(
    communicator: gcl.Communicator, sizes: tuple[int, ...], dtypes: Iterable[str] = tuple(OPERATORS)
) -> None:
    """Every collective and dtype: float32 and float16 with all ``sizes``, others with 1000 elements."""
    (alone,) = gcl.connect_threads((communicator.global_replicas,), group=communicator.group, segment_bytes=1 << 28)
    with alone:
        for dtype in dtypes:
            for n in sizes if dtype in ("float32", "float16") else (1000,):
                check_same(communicator, alone, _drawn(communicator.global_replicas, n, dtype), OPERATORS[dtype])


def check_same(
    communicator: gcl.Communicator, alone: gcl.Communicator, data: np.ndarray, operators: tuple[str, ...]
) -> None:
    """Each collective on ``data`` [replicas, n], of which ``alone`` has all."""
    size = communicator.group.size
    mine = slice(communicator.global_offset, communicator.global_offset + communicator.local_replicas)
    near = communicator.empty(data.shape[1], data.dtype)
    near[...] = data[mine]
    root = data.shape[1] % size
    slices = np.ascontiguousarray(data[:, : data.shape[1] // size * size]).reshape(len(data), size, -1)

    def same(actual: np.ndarray, expected: np.ndarray, what: str) -> None:
        wanted = expected[mine]
        fits = actual.shape == wanted.shape and actual.tobytes() == wanted.tobytes()
        assert fits, f"{what} of {data.dtype} {data.shape} in {communicator.group} over {communicator.transport}"

    for op in operators:
        for x in (near, data[mine].copy()):
            same(communicator.all_reduce(x, op), alone.all_reduce(data, op), f"all_reduce {op}")
            same(communicator.reduce_scatter(x, op), alone.reduce_scatter(data, op), f"reduce_scatter {op}")
    for x in (near, data[mine].copy()):
        same(communicator.all_gather(x), alone.all_gather(data), "all_gather")
        same(communicator.broadcast(x, root), alone.broadcast(data, root), "broadcast")
    same(communicator.all_to_all(slices[mine].copy()), alone.all_to_all(slices), "all_to_all")
    same(near, data, "input")
    same(communicator.all_reduce(near, operators[0], out=near), alone.all_reduce(data, operators[0]), "in place")
    same(
        communicator.broadcast(near, root, out=near),
        alone.broadcast(alone.all_reduce(data, operators[0]), root),
        "own",
    )
    if communicator.group.count == 1:
        everyone = communicator.shared((size, data.shape[1]), data.dtype)
        communicator.all_gather(data[mine].copy(), out=everyone)
        assert everyone.tobytes() == data.tobytes(), f"all_gather into a shared tensor of {data.dtype} {data.shape}"
        communicator.barrier()


def _drawn(replicas: int, n: int, dtype: str) -> np.ndarray:
    """Contributions of all replicas, the same on all ranks."""
    random = np.random.default_rng([replicas, n])
    if dtype == "bool":
        return random.integers(0, 2, (replicas, n)).astype(bool)
    if "int" in dtype:
        low = 0 if dtype.startswith("u") else -100
        return random.integers(low, 100, (replicas, n)).astype(dtype)
    return (4 * random.standard_normal((replicas, n))).astype(_dtype(dtype))


def _dtype(name: str) -> np.dtype[np.generic]:
    """numpy's dtype, or that of ml_dtypes."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
