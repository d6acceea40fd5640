"""TF-IDF vectorizer: counts the n-grams of a pool in rows of integers.

pool of 2-grams (1 2) (2 5), row 1 2 5 1 2          found 2, 1
with up to one number skipped (1 _ 5) counts as (1 5)

Source: ONNX, TfIdfVectorizer. A single number is a 1-gram, which nothing can be skipped in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.graph.dtype import FLOAT
from ipu_emu.ops.core import Node, OpDef, OutputTypes, per_element
from ipu_emu.ops.core.kernel_helpers import allocating_kernel
from ipu_emu.ops.indexing.index_arrays import check_integer_indices

_Array = NDArray[Any]


def _shape(node: Node) -> OutputTypes:
    x = node.input(0)
    check_integer_indices(node, x)
    if x.rank not in (1, 2):
        raise node.fail(f"the input must be an integer vector or matrix, found {x}")
    if node.attribute("mode", "") not in ("TF", "IDF", "TFIDF"):
        raise node.fail(f"unknown mode {node.attribute('mode', '')!r}; use TF, IDF or TFIDF")
    if node.attribute("pool_strings", []):
        raise node.fail("pool_strings has texts, which devices do not have; number the texts, and give pool_int64s")
    indexes, weights = node.attribute("ngram_indexes", []), node.attribute("weights", [])
    if not indexes or len(indexes) != len(list(_pool(node))):
        raise node.fail(f"ngram_indexes has {len(indexes)} numbers; give one for each n-gram of pool_int64s")
    if min(indexes) < 0 or 0 < len(weights) <= max(indexes):
        raise node.fail("ngram_indexes must be non-negative, and weights must have one number for each output column")
    return [(FLOAT, (*x.shape[:-1], max(indexes) + 1))]


def _pool(node: Node) -> Iterator[tuple[int, ...]]:
    """The n-grams of the pool; ``ngram_counts`` has the positions at which those of each length begin."""
    numbers, starts = node.attribute("pool_int64s", []), list(node.attribute("ngram_counts", []))
    for length, (start, end) in enumerate(zip(starts, [*starts[1:], len(numbers)], strict=True), 1):
        for at in range(start, end - length + 1, length):
            yield tuple(numbers[at : at + length])


def _found(node: Node, row: _Array) -> Iterator[tuple[int, ...]]:
    for length in range(node.attribute("min_gram_length", 1), node.attribute("max_gram_length", 1) + 1):
        skips = node.attribute("max_skip_count", 0) if length > 1 else 0
        for step in range(1, skips + 2):
            reach = (length - 1) * step
            for start in range(len(row) - reach):
                yield tuple(row[start : start + reach + 1 : step].tolist())


def _count(node: Node, x: _Array) -> _Array:
    columns = dict(zip(_pool(node), node.attribute("ngram_indexes", []), strict=True))
    counts = np.zeros(node.outputs[0].shape, np.float32)
    for row, line in zip(np.atleast_2d(x), np.atleast_2d(counts), strict=True):
        for gram in _found(node, row):
            if gram in columns:
                line[columns[gram]] += 1
    return _weighted(node, counts)


def _weighted(node: Node, counts: _Array) -> _Array:
    """Multiply by the weights, one per output column, as ONNX's reference evaluator and onnxruntime do."""
    mode, columns = node.attribute("mode", "TF"), counts.shape[-1]
    if mode == "TF":
        return counts
    weights = np.array(node.attribute("weights", []) or [1.0] * columns, np.float32)
    return weights[:columns] * (counts if mode == "TFIDF" else counts > 0)


OPS = [OpDef("TfIdfVectorizer", (1, 1), _shape, allocating_kernel(_count), per_element(4))]
