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
    made = [getattr(tf.math, name)(x) for name in names]
    made += [tf.pow(x, 1.7), 10000.0 ** (-x / 8.0), tf.matmul(x, x, transpose_b=True), tf.atan2(x - 1.0, x)]
    made += [tf.reduce_sum(x, 0), tf.reduce_mean(x), tf.reduce_logsumexp(x, 1), tf.cumsum(x, 1)]
    return [*made, tf.nn.softmax(x), tf.nn.log_softmax(x), tf.nn.selu(x), tf.nn.gelu(x), tf.math.reduce_std(x, 0)]


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_functions_of_constants_have_the_bits_of_inputs(tensorflow: Any, tf: Any, run: Any, kind: Any) -> None:
    given = NUMBERS.astype(kind)
    made = run(lambda x: [*functions(tensorflow.v2, x), *functions(tensorflow.v2, tf.constant(given))], given)
    half = len(made) // 2
    different = [n for n in range(half) if made[n].tobytes() != made[n + half].tobytes()]
    assert different == []


def test_constants_in_double_precision_keep_it(tensorflow: Any, tf: Any, run: Any) -> None:
    given = NUMBERS.astype(np.float64)
    exact = [np.sin(given), given**1.7, np.exp(given), given.sum(0), given @ given.T]

    def tails(x: Any) -> list[Any]:
        """What float32 does not hold of each result."""
        y = tf.constant(given)
        made = [tf.sin(y), tf.pow(y, 1.7), tf.exp(y), tf.reduce_sum(y, 0), tf.matmul(y, y, transpose_b=True)]
        return [tf.cast(a - b.astype(np.float32), tf.float32) + x for a, b in zip(made, exact, strict=True)]

    for tail, value in zip(run(tails, np.zeros((), np.float32)), exact, strict=True):
        np.testing.assert_allclose(tail, value - value.astype(np.float32), rtol=1e-6, atol=1e-13)
