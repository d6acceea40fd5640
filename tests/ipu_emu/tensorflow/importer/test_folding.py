"""Folding: what a program computes from constants has the bits that the device computes from inputs."""

from typing import Any

import numpy as np
import pytest

NUMBERS = np.arange(1, 64, dtype=np.float32).reshape(7, 9) / 32


def functions(tf: Any, x: Any) -> list[Any]:
    names = [
        "cos",
        "erfc",
        "exp",
        "expm1",
        "log",
        "log1p",
        "rsqrt",
        "sigmoid",
        "sin",
        "sinh",
        "softplus",
        "sqrt",
        "tan",
    ]
    results = [getattr(tf.math, name)(x) for name in names]
    results += [tf.pow(x, 1.7), 10000.0 ** (-x / 8.0), tf.matmul(x, x, transpose_b=True), tf.atan2(x - 1.0, x)]
    results += [tf.reduce_sum(x, 0), tf.reduce_mean(x), tf.reduce_logsumexp(x, 1), tf.cumsum(x, 1)]
    return [*results, tf.nn.softmax(x), tf.nn.log_softmax(x), tf.nn.selu(x), tf.nn.gelu(x), tf.math.reduce_std(x, 0)]


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_functions_of_constants_have_the_bits_of_inputs(tensorflow: Any, tf: Any, run: Any, kind: Any) -> None:
    numbers = NUMBERS.astype(kind)
    results = run(lambda x: [*functions(tensorflow.v2, x), *functions(tensorflow.v2, tf.constant(numbers))], numbers)
    half = len(results) // 2
    different = [n for n in range(half) if results[n].tobytes() != results[n + half].tobytes()]
    assert different == []


def test_constants_in_double_precision_keep_it(tensorflow: Any, tf: Any, run: Any) -> None:
    numbers = NUMBERS.astype(np.float64)
    exact = [np.sin(numbers), numbers**1.7, np.exp(numbers), numbers.sum(0), numbers @ numbers.T]

    def tails(x: Any) -> list[Any]:
        """What float32 does not hold of each result."""
        y = tf.constant(numbers)
        results = [tf.sin(y), tf.pow(y, 1.7), tf.exp(y), tf.reduce_sum(y, 0), tf.matmul(y, y, transpose_b=True)]
        return [tf.cast(a - b.astype(np.float32), tf.float32) + x for a, b in zip(results, exact, strict=True)]

    for tail, value in zip(run(tails, np.zeros((), np.float32)), exact, strict=True):
        np.testing.assert_allclose(tail, value - value.astype(np.float32), rtol=1e-6, atol=1e-13)
