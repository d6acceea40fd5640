"""Reductions along axes: valid and invalid axes, and sums over the axes of a broadcast."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.ops.core.image_kernels import are_images, image_spread, image_sum
from ipu_emu.ops.reduction.axis_reductions import sum_to
from tests.ipu_emu.helpers.sessions import infer, train


@pytest.mark.parametrize("turned", [False, True])
def test_sums_do_not_depend_on_how_they_are_stored(turned: bool) -> None:
    x = np.arange(64, dtype=np.float32).reshape(2, 8, 4)
    y = np.empty((4, 8), np.float32).T if turned else np.empty((8, 4), np.float32)
    bound: Any = SimpleNamespace(input=lambda _: x, outputs=(y,))
    sum_to(bound)()
    np.testing.assert_array_equal(y, x[0] + x[1])


#: A reduction that reduces nothing is this function of each element, with this slope.
ELEMENTS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "reducel1": (np.abs, np.sign),
    "reducel2": (np.abs, np.sign),
    "reducesumsquare": (np.square, lambda x: 2 * x),
    "reducelogsum": (np.log, lambda x: 1 / x),
    "reducelogsumexp": (lambda x: x, np.ones_like),
    "reducesum": (lambda x: x, np.ones_like),
    "reducemean": (lambda x: x, np.ones_like),
    "reducemax": (lambda x: x, np.ones_like),
    "reducemin": (lambda x: x, np.ones_like),
    "reduceprod": (lambda x: x, np.ones_like),
}
X = np.array([[0.5, 2.0, 3.0], [1.5, 0.25, 4.0]], np.float32)


def reduced(name: str, x: np.ndarray, axes: Any, keepdims: int) -> tuple[popart.Builder, str, str]:
    """(builder, id of the input, id of the result)"""
    builder = popart.Builder()
    id = builder.addInitializedInputTensor(x)
    if name == "reducemedian":
        return builder, id, builder.aiGraphcore.reducemedian([id], axes, keepdims)[0]
    return builder, id, getattr(builder.aiOnnx, name)([id], axes, keepdims)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [[], (), range(0)], ids=["list", "tuple", "range"])
@pytest.mark.parametrize("name", ELEMENTS)
def test_without_axes_nothing_is_reduced(name: str, axes: Any, keepdims: int) -> None:
    builder, id, y = reduced(name, X, axes, keepdims)
    gradient = popart.reservedGradientPrefix() + id
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    session = train(builder, popart.DataFlow(1, [y, gradient]), loss, popart.ConstSGD(0.1))
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({}, anchors))
    function, slope = ELEMENTS[name]
    np.testing.assert_allclose(anchors[y], function(X), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(anchors[gradient], slope(X), rtol=1e-5)


def test_a_median_without_axes_is_each_element() -> None:
    builder, _, y = reduced("reducemedian", X, [], 0)
    np.testing.assert_array_equal(infer(builder, popart.DataFlow(1, [y]), {})[y], X)


@pytest.mark.parametrize("axes", [None, [-1, 0], range(2), np.array([1, 0])], ids=["none", "list", "range", "array"])
def test_axes_may_be_any_sequence(axes: Any) -> None:
    builder, _, y = reduced("reducesum", X, axes, 0)
    assert infer(builder, popart.DataFlow(1, [y]), {})[y] == X.sum()


@pytest.mark.parametrize("name", [*ELEMENTS, "reducemedian"])
@pytest.mark.parametrize(
    ("x", "axes", "text"),
    [
        (X, [2], r"Axis 2 is out of acceptable range \[-2, 1\]"),
        (X, [0, -3], r"Axis -3 is out of acceptable range \[-2, 1\]"),
        (np.array(1, np.float32), [0], "Reduce input rank must be greater than 0, invalid Reduce"),
    ],
    ids=["above", "below", "scalar"],
)
def test_axes_out_of_range_are_refused_in_the_session(name: str, x: Any, axes: list[int], text: str) -> None:
    builder, _, y = reduced(name, x, axes, 1)
    with pytest.raises(popart.popart_exception, match=f"^{text}"):
        infer(builder, popart.DataFlow(1, [y]), {})


@pytest.mark.parametrize("axes", [1, "01"])
def test_axes_that_are_no_list_are_refused(axes: Any) -> None:
    with pytest.raises(popart.popart_exception, match=r"axes is .*; it must be a list"):
        reduced("reducesum", X, axes, 1)


@pytest.mark.parametrize("sizes", [(8, 5, 3, 3), (5, 7, 4, 2), (4, 3, 1, 1), (33, 4, 2, 2)], ids=str)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["by sample", "by channel"])
def test_images_with_the_batch_innermost_are_summed(sizes: tuple[int, ...], order: tuple[int, int]) -> None:
    n, c, h, w = sizes
    x = np.random.default_rng(0).standard_normal((c, h, w, n)).astype(np.float32).transpose(3, 0, 1, 2)
    y = np.zeros([(n, c)[axis] for axis in order], np.float32).transpose(order)[:, :, None, None]
    assert are_images(x)
    image_sum(x, y)()
    exact = x.astype(np.float64).sum((2, 3), keepdims=True)
    np.testing.assert_allclose(y, exact, rtol=1e-5, atol=1e-6)
    if h > 1:
        bound: Any = SimpleNamespace(input=lambda _: x, outputs=(np.zeros_like(y),))
        sum_to(bound)()
        np.testing.assert_array_equal(bound.outputs[0], y)  # by the same products


@pytest.mark.parametrize("sizes", [(8, 5, 3, 3), (4, 3, 1, 1), (32, 4, 2, 4), (16, 2, 5, 7)], ids=str)
def test_numbers_are_spread_over_images_and_multiply_others(sizes: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)

    def images(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32).transpose(3, 0, 1, 2)

    n, c, h, w = sizes
    numbers, factor, y = images(c, 1, 1, n), images(c, h, w, n), images(c, h, w, n)
    special = [np.float32(value) for value in (-0.0, 0.0, np.inf, -np.inf, 1e-45, 3.4e38)]
    numbers.transpose(1, 2, 3, 0).reshape(-1)[:6] = special
    for call, exact in (
        (image_spread(numbers, y), np.broadcast_to(numbers, y.shape)),
        (image_spread(numbers, y, factor), numbers * factor),
    ):
        assert call is not None
        call()
        np.testing.assert_array_equal(np.ascontiguousarray(y).view(np.int32), exact.copy("C").view(np.int32))


def test_arrays_that_are_not_spread_by_the_kernel() -> None:
    y = np.zeros((3, 2, 2, 8), np.float32).transpose(3, 0, 1, 2)
    numbers = np.zeros((3, 1, 1, 8), np.float32).transpose(3, 0, 1, 2)
    assert image_spread(numbers[..., 0], y) is None
    assert image_spread(numbers[:, :1], y) is None
    assert image_spread(numbers, np.ascontiguousarray(y)) is None
    assert image_spread(numbers[:6].copy(), y[:6].copy()) is None
