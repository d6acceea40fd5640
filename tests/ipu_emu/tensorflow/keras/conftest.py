"""Keras: eager TensorFlow 2, a strategy, and comparisons with plain Keras on the CPU."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def tf2(tensorflow: Any) -> Iterator[Any]:
    """TensorFlow 2, with an unconfigured system."""
    from ipu_emu.tensorflow.run import configured_system

    yield tensorflow.v2
    configured_system.configure(configured_system.ConfiguredSystem())
    tensorflow.v2.keras.backend.clear_session()


@pytest.fixture
def strategy(tf2: Any, ipu: Any) -> Any:
    return ipu.ipu_strategy.IPUStrategy()


@contextmanager
def op_by_op(tf2: Any) -> Iterator[None]:
    """Run eagerly: tracing functions takes longer than the few steps of a test."""
    tf2.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf2.config.run_functions_eagerly(False)


@pytest.fixture
def both(tf2: Any, strategy: Any) -> Callable[..., tuple[Any, Any]]:
    """Call a function on its own, then in the scope of the strategy, from the same seed; return both results.

    The first call runs op by op, unless ``graphs``.
    """

    def call(function: Callable[[], Any], *, graphs: bool = False) -> tuple[Any, Any]:
        tf2.keras.utils.set_random_seed(3)
        with nullcontext() if graphs else op_by_op(tf2):
            plain = function()
        tf2.keras.utils.set_random_seed(3)
        with strategy.scope():
            return plain, function()

    return call


def images(batches: int = 5, batch: int = 8, classes: int = 5) -> tuple[Any, Any]:
    """Images and their classes, in batches of which the last is smaller."""
    random, count = np.random.default_rng(0), batches * batch - 3
    return random.normal(size=(count, 6, 6, 3)).astype(np.float32), random.integers(0, classes, count)


def assert_close(actual: Any, expected: Any, tolerance: float = 1e-6) -> None:
    """Compare results of ``fit``, ``predict``, ..., in any structure."""
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        actual, expected = list(actual.values()), list(expected.values())
    assert len(actual) == len(expected)
    for result, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(result, other, rtol=tolerance, atol=tolerance)
