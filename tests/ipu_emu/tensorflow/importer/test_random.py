"""Rules of random numbers: their distributions, and different numbers on each replica."""

from typing import Any

import numpy as np
import pytest

COUNT = 40_000


@pytest.mark.parametrize(
    ("name", "mean", "deviation", "low", "high"),
    [("uniform", 0.5, 12**-0.5, 0, 1), ("normal", 0, 1, -8, 8), ("truncated", 0, 0.8796, -2.0001, 2.0001),
     ("integers", 3.5, 1.708, 1, 6)],
)  # fmt: skip
def test_distributions(tf: Any, run: Any, name: str, mean: float, deviation: float, low: float, high: float) -> None:
    makers = {
        "uniform": lambda: tf.random.uniform([COUNT]),
        "normal": lambda: tf.random.normal([COUNT]),
        "truncated": lambda: tf.random.truncated_normal([COUNT]),
        "integers": lambda: tf.random.uniform([COUNT], 1, 7, tf.int32),
    }
    (numbers,) = run(makers[name])
    assert numbers.mean() == pytest.approx(mean, abs=0.03)
    assert numbers.std() == pytest.approx(deviation, abs=0.03)
    assert low <= numbers.min() <= low + 0.5 or name in ("normal", "truncated")
    assert low <= numbers.min()
    assert numbers.max() <= high


def test_multinomial_follows_the_logits(tf: Any, run: Any) -> None:
    logits = np.log(np.array([[0.1, 0.2, 0.7]], np.float32))
    (draws,) = run(lambda x: tf.random.categorical(x, 5000), logits)
    np.testing.assert_allclose(np.bincount(draws[0], minlength=3) / 5000, [0.1, 0.2, 0.7], atol=0.03)


def test_replicas_iterations_and_runs_draw_different_numbers_and_seeds_repeat_them(
    tf: Any, ipu: Any, configure: Any
) -> None:
    configure(2)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def program() -> Any:
        return ipu.loops.repeat(3, lambda: outfeed.enqueue(tf.random.uniform([4])))

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(program)
    seed, dequeued = ipu.utils.reset_ipu_seed(5), outfeed.dequeue()
    draws = []
    with tf.Session() as session:
        for number in range(3):
            if number != 1:
                session.run(seed)
            session.run(operation)
            draws.append(session.run(dequeued))
    assert len(np.unique(np.stack(draws[:2]))) == 2 * 3 * 2 * 4
    np.testing.assert_array_equal(draws[0], draws[2])
