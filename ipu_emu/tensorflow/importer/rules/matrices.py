"""Rules of diagonals and bands of matrices."""

from __future__ import annotations

import numpy as np

from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.node import Rule, SourceNode


def _band(node: SourceNode) -> Value:
    rows, columns = node.shape(0)[-2:]
    lower, upper = node.integer(1), node.integer(2)
    i, j = np.ogrid[:rows, :columns]
    mask = ((lower < 0) | (i - j <= lower)) & ((upper < 0) | (j - i <= upper))
    x = node.x
    return node.constant(mask, np.bool_).op("Where", x, x.like(0))


def _diagonal(node: SourceNode) -> Value:
    x = node.x
    size = x.tensor.shape[-1]
    eye = node.constant(np.eye(size, dtype=bool), np.bool_)
    return eye.op("Where", x.shaped((*x.tensor.shape, 1)), x.like(0))


def _diagonal_part(node: SourceNode) -> Value:
    x = node.x
    rows, columns = x.tensor.shape[-2:]
    size = min(rows, columns)
    flat = x.shaped((*x.tensor.shape[:-2], rows * columns))
    return flat.op("Gather", node.constant(np.arange(size) * (columns + 1), np.int32), axis=x.tensor.rank - 2)


def _diagonal_of_matrix(node: SourceNode) -> Value:
    if len(node.shape(0)) != 2:
        raise node.refuse("it takes a matrix; use tf.linalg.diag_part")
    return _diagonal_part(node)


def _main_diagonal(node: SourceNode, index: int) -> None:
    """Raise UnsupportedError for any other diagonal than the main one."""
    if node.integers(index) not in ([0], [0, 0]):
        raise node.refuse("only the main diagonal is supported")


def _diagonal_v3(node: SourceNode) -> Value:
    """(diagonal, k, rows, columns, padding)"""
    _main_diagonal(node, 1)
    size = node.shape(0)[-1]
    if node.integer(2) not in (-1, size) or node.integer(3) not in (-1, size):
        raise node.refuse("the matrix must be square")
    return _diagonal(node)


def _diagonal_part_v3(node: SourceNode) -> Value:
    _main_diagonal(node, 1)
    return _diagonal_part(node)


def _set_diagonal(node: SourceNode) -> Value:
    """(matrix, diagonal, k)"""
    if len(node.inputs) > 2:
        _main_diagonal(node, 2)
    x, diagonal = node.x, node.y
    rows, columns = x.tensor.shape[-2:]
    size = min(rows, columns)
    eye = node.constant(np.eye(rows, columns, dtype=bool), np.bool_)
    if size < rows:
        pads = [0] * (2 * diagonal.tensor.rank)
        pads[-1] = rows - size
        diagonal = diagonal.op("Pad", pads=pads, mode="constant", value=0.0)
    return eye.op("Where", diagonal.shaped((*diagonal.tensor.shape, 1)), x)


RULES: dict[str, Rule] = {
    "Diag": _diagonal,
    "DiagPart": _diagonal_of_matrix,
    "MatrixBandPart": _band,
    "MatrixDiag": _diagonal,
    "MatrixDiagPart": _diagonal_part,
    "MatrixDiagPartV3": _diagonal_part_v3,
    "MatrixDiagV3": _diagonal_v3,
    "MatrixSetDiag": _set_diagonal,
    "MatrixSetDiagV3": _set_diagonal,
}
