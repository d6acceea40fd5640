"""Spline convolution: compared with de Boor's recursion, and with sums written out."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ipu_emu import popart
from tests.ipu_emu.helpers.sessions import infer


def piece(k: int, degree: int, x: float) -> float:
    """The B-spline of ``degree`` on the knots k, k + 1, ..., by the recursion of Cox and de Boor."""
    if degree == 0:
        return float(k <= x < k + 1)
    return ((x - k) * piece(k, degree - 1, x) + (k + degree + 1 - x) * piece(k + 1, degree - 1, x)) / degree


def by_hand(place: np.ndarray, sizes: list[int], opened: list[int], degree: int) -> dict[int, float]:
    """The factor of each row of the kernel at one place."""
    rows: dict[int, float] = {}
    at = [v * (size - degree * o) for v, size, o in zip(place, sizes, opened, strict=True)]
    for pieces in product(range(degree + 1), repeat=len(sizes)):
        row, stride, factor = 0, 1, 1.0
        for x, size, j in zip(at, sizes, pieces, strict=True):
            row += (int(x) + j) % size * stride
            stride *= size
            factor *= piece(int(x) + j - degree, degree, x)
        rows[row] = rows.get(row, 0) + factor
    return rows


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("opened", [[1, 1], [0, 1], [0, 0]])
def test_a_convolution_with_splines(degree: int, opened: list[int]) -> None:
    random, sizes = np.random.default_rng(degree), [5, 4]
    places = np.concatenate([random.random((6, 2)), [[0.0, 0.5]]]).astype(np.float32)
    x = random.standard_normal((7, 3)).astype(np.float32)
    kernel = random.standard_normal((20, 3, 2)).astype(np.float32)
    builder = popart.Builder()
    at = builder.addInputTensor(popart.TensorInfo(places))
    constants = [builder.aiOnnx.constant(np.array(v, t)) for v, t in ((sizes, np.int32), (opened, np.uint8))]
    basis = builder.aiGraphcore.splinebasis([at, *constants], degree)
    operands = [builder.addInputTensor(popart.TensorInfo(value)) for value in (x, kernel)]
    y = builder.aiGraphcore.splineweighting([*operands, *basis])
    outputs = infer(builder, popart.DataFlow(1, [*basis, y]), {at: places, operands[0]: x, operands[1]: kernel})
    factors, rows = (outputs[id] for id in basis)
    assert factors.shape == rows.shape == (7, (degree + 1) ** 2)
    assert rows.dtype == np.int32
    for e in range(7):
        wanted = by_hand(places[e], sizes, opened, degree)
        basis_row = np.bincount(rows[e], factors[e], 20)
        np.testing.assert_allclose(basis_row, [wanted.get(row, 0) for row in range(20)], atol=1e-5)
        total = sum(factor * x[e] @ kernel[row] for row, factor in wanted.items())
        np.testing.assert_allclose(outputs[y][e], total, atol=1e-4)


def test_other_degrees_are_refused() -> None:
    builder = popart.Builder()
    at = builder.addInputTensor(popart.TensorInfo("FLOAT", [3, 1]))
    constants = [builder.aiOnnx.constant(np.array([4], np.int32)) for _ in range(2)]
    factors, _ = builder.aiGraphcore.splinebasis([at, *constants], 4)
    with pytest.raises(popart.popart_exception, match=r"degree 4.*1, 2, 3"):
        infer(builder, popart.DataFlow(1, [factors]), {at: np.zeros((3, 1), np.float32)})
