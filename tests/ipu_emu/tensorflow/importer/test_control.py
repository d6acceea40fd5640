"""Rules of control flow: functions, branches, loops and lists, compared with TensorFlow on the CPU."""

from typing import Any

import numpy as np
import pytest


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_branch_may_change_variables(tf: Any, run: Any, sign: float) -> None:
    def program(x: Any) -> Any:
        v = tf.get_variable("v", initializer=np.float32(3), use_resource=True)

        def up() -> Any:
            with tf.control_dependencies([v.assign_add(2.0)]):
                return x * 10.0

        branch = tf.cond(tf.reduce_sum(x) > 0, up, lambda: x - 1.0)
        with tf.control_dependencies([branch]):
            return branch, v.read_value()

    result, value = run(program, np.array([sign, 2 * sign], np.float32))
    np.testing.assert_array_equal(result, [10, 20] if sign > 0 else [-2, -3])
    assert value == (5 if sign > 0 else 3)


@pytest.mark.parametrize("index", [0, 1, 2, 7])
def test_a_case_selects_a_branch_by_number(tf: Any, run: Any, index: int) -> None:
    def program(number: Any) -> Any:
        return tf.switch_case(number, [lambda: tf.constant(1.0), lambda: tf.constant(2.0), lambda: tf.constant(3.0)])

    assert run(program, np.array(index, np.int32))[0] == min(index, 2) + 1


def test_loops_and_lists_of_a_recurrent_network_with_gradients(tf: Any, ipu: Any, run: Any) -> None:
    random = np.random.default_rng(0)
    x, w = random.normal(size=(2, 5, 3)).astype(np.float32), random.normal(size=(7, 16)).astype(np.float32)

    def program(values: Any, weights: Any) -> Any:
        def step(state: Any, now: Any) -> Any:
            h, c = state
            i, f, o, g = tf.split(tf.matmul(tf.concat([now, h], 1), weights), 4, 1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            return tf.sigmoid(o) * tf.tanh(c), c

        zeros = tf.zeros([2, 4])
        h, _ = tf.scan(step, tf.transpose(values, [1, 0, 2]), initializer=(zeros, zeros))
        loss = tf.reduce_sum(h * h)
        return [h, *tf.gradients(loss, [values, weights])]

    actual = run(program, x, w)
    with tf.Graph().as_default(), tf.Session() as session:
        expected = session.run(program(tf.constant(x), tf.constant(w)))
    for result, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(result, other, rtol=1e-4, atol=1e-5)


def test_a_loop_may_have_a_length_that_is_computed(tf: Any, run: Any) -> None:
    def program(x: Any, count: Any) -> Any:
        scale = tf.get_variable("scale", initializer=np.float32(2), use_resource=True)
        number, y = tf.while_loop(lambda i, v: i < count, lambda i, v: (i + 1, v * scale + x), [0, x])
        return number, y, tf.while_loop(lambda v: tf.reduce_max(v) > 1.0, lambda v: v / 2.0, [y])

    x = np.array([1, 3], np.float32)
    for count, expected in ((0, [1, 3]), (3, [15, 45])):
        with tf.Graph().as_default():
            number, y, z = run(program, x, np.array(count, np.int32))
        assert number == count
        np.testing.assert_array_equal(y, np.array(expected, np.float32))
        assert 0.5 < z.max() <= 1.0


def test_a_gradient_through_a_loop_whose_length_is_computed_is_refused_by_name(
    tf: Any, tensorflow: Any, run: Any
) -> None:
    def program(x: Any) -> Any:
        y = tf.while_loop(lambda v: tf.reduce_sum(v) < 5.0, lambda v: v * 2.0, [x])
        return tf.gradients(y, x)

    with pytest.raises(tensorflow.v2.errors.UnimplementedError, match="known when the program is compiled"):
        run(program, np.ones(2, np.float32))


@pytest.mark.parametrize("what", ["cannot change variables", "cannot draw random numbers"])
def test_unsupported_uses_of_a_loop_of_computed_length_are_refused(
    tf: Any, tensorflow: Any, run: Any, what: str
) -> None:
    def program(x: Any) -> Any:
        v = tf.get_variable("v", initializer=np.float32(0), use_resource=True)

        def body(y: Any) -> Any:
            if "random" in what:
                return y * 2.0 + tf.random.uniform([2])
            with tf.control_dependencies([v.assign_add(1.0)]):
                return y * 2.0

        return tf.while_loop(lambda y: tf.reduce_sum(y) < 5.0, body, [x])

    with pytest.raises(tensorflow.v2.errors.UnimplementedError, match=what):
        run(program, np.ones(2, np.float32))


def test_an_op_without_a_rule_is_named_with_its_scope_and_line(tf: Any, tensorflow: Any, run: Any) -> None:
    def program(x: Any) -> Any:
        with tf.name_scope("mine"):
            return tf.unique(x)[0]

    pattern = r"Unique at .*mine/Unique, .*test_control.py:\d+: the emulated IPU has no such op"
    with pytest.raises(tensorflow.v2.errors.UnimplementedError, match=pattern):
        run(program, np.array([1, 1, 2], np.float32))
