"""Transposed products: no transposition is left, and values and gradients do not change."""

from __future__ import annotations

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.program.instructions import leaves
from tests.ipu_emu.helpers.sessions import train


@pytest.mark.parametrize("turned", ["a", "b", "both"])
@pytest.mark.parametrize("shape", [(6, 20), (3, 6, 20), (20,)], ids=str)
def test_products_and_gradients(turned: str, shape: tuple[int, ...]) -> None:
    if len(shape) == 1 and turned != "b":
        pytest.skip("a vector has no transpose")
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(s).astype(np.float32) for s in (shape, (20, 9)))
    builder = popart.Builder()
    last = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    operands = [np.swapaxes(a, -1, -2) if turned != "b" else a, b.T if turned != "a" else b]
    x, w = (builder.addInitializedInputTensor(np.ascontiguousarray(value)) for value in operands)
    o = builder.aiOnnx
    left = o.transpose([x], last) if turned != "b" else x
    right = o.transpose([w], []) if turned != "a" else w
    y = o.matmul([left, right])
    loss = o.reducesum([o.mul([y, y])])
    ids = [y, f"Gradient___{x}", f"Gradient___{w}"]
    session = train(builder, popart.DataFlow(1, ids), loss, popart.ConstSGD(0.5))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    types = [leaf.op.type for leaf in leaves(session.executable.program) if hasattr(leaf, "op")]
    assert "Transpose" not in types

    product = a.astype(np.float64) @ b
    columns = product.reshape(-1, 9)
    da, db = 2 * product @ b.T, 2 * a.reshape(-1, 20).T @ columns
    np.testing.assert_allclose(anchors[y], product, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        anchors[ids[1]], np.swapaxes(da, -1, -2) if turned != "b" else da, rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(anchors[ids[2]], db.T if turned != "a" else db, rtol=1e-4, atol=1e-4)
