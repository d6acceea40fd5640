"""Gradient capture: gradients inside a pipeline reach an outfeed, for each mini-batch or combined."""

from typing import Any

import numpy as np
import pytest

COUNT, REPEAT = 4, 2


def captured(tf: Any, ipu: Any, make: Any, **options: Any) -> Any:
    """The gradients of the hidden layer of a pipeline, whose loss is the sum of three times it."""
    from tensorflow.python.ipu.ops import grad_util_ops as utils

    context = make(utils)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(np.ones((2, 4), np.float32)).repeat())
    outfeed, gradients = (ipu.ipu_outfeed_queue.IPUOutfeedQueue() for _ in range(2))

    def first(x: Any) -> Any:
        w = tf.get_variable("w", initializer=np.ones((4, 3), np.float32))
        with context:
            return utils.capture_upstream_gradients(tf.matmul(x, w), tag="hidden")

    def optimizer(loss: Any) -> Any:
        return ipu.pipelining_ops.OptimizerFunctionOutput(
            tf.train.GradientDescentOptimizer(0.1), loss, gradient_capture_context=context,
            captured_gradient_outfeed=gradients,
        )  # fmt: skip

    def program() -> Any:
        return ipu.pipelining_ops.pipeline(
            [first, lambda h: tf.reduce_sum(h * 3.0)], COUNT, repeat_count=REPEAT, infeed_queue=infeed,
            outfeed_queue=outfeed, optimizer_function=optimizer, **options,
        )  # fmt: skip

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(program)
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), infeed.initializer])
        session.run(operation)
        return session.run(gradients.dequeue())["hidden"]


@pytest.mark.parametrize(
    ("options", "enqueued", "value"),
    [({}, REPEAT, 3.0 * COUNT), ({"reduction_method": "mean"}, REPEAT, 3.0),
     ({"gradient_accumulation_for_captured_grads": False}, COUNT * REPEAT, 3.0)],
)  # fmt: skip
def test_captured_gradients_are_combined_like_those_of_weights(
    tf: Any, ipu: Any, configure: Any, options: dict[str, Any], enqueued: int, value: float
) -> None:
    configure(2)
    gradients = captured(tf, ipu, lambda utils: utils.GradientCaptureContext(), **options)
    np.testing.assert_array_equal(gradients, np.full((enqueued, 2, 3), value, np.float32))


def test_an_optimizer_enqueues_the_gradients_of_each_update(tf: Any, ipu: Any, configure: Any) -> None:
    """The gradient of ``sum(x @ w)`` is the sum of the rows of x, over all micro-batches of an update."""
    configure(2)
    data = np.random.default_rng(0).normal(size=(COUNT * REPEAT, 2, 4)).astype(np.float32)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(data))
    losses, gradients = (ipu.ipu_outfeed_queue.IPUOutfeedQueue() for _ in range(2))

    class Watched(tf.train.GradientDescentOptimizer):  # type: ignore[misc]
        def apply_gradients(self, pairs: Any, *arguments: Any, **named: Any) -> Any:
            with tf.control_dependencies([gradients.enqueue({"w": pairs[0][0], "one": 1.0})]):
                same = [(tf.identity(gradient), variable) for gradient, variable in pairs]
                return super().apply_gradients(same, *arguments, **named)

    def first(x: Any) -> Any:
        return tf.matmul(x, tf.get_variable("w", initializer=np.ones((4, 3), np.float32)))

    def program() -> Any:
        return ipu.pipelining_ops.pipeline(
            [first, tf.reduce_sum], COUNT, repeat_count=REPEAT, infeed_queue=infeed, outfeed_queue=losses,
            optimizer_function=lambda loss: ipu.pipelining_ops.OptimizerFunctionOutput(Watched(0.1), loss),
        )  # fmt: skip

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(program)
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), infeed.initializer])
        session.run(operation)
        outputs = session.run(gradients.dequeue())
    expected = data.reshape(REPEAT, COUNT * 2, 4).sum(1)
    np.testing.assert_allclose(outputs["w"], np.repeat(expected[:, :, None], 3, 2), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(outputs["one"], [1.0] * REPEAT)


def test_mistakes_are_named(tf: Any, ipu: Any) -> None:
    from tensorflow.python.ipu.ops import grad_util_ops as utils

    with pytest.raises(ValueError, match="outside of a GradientCaptureContext or a GradientCaptureTape"):
        utils.capture_upstream_gradients(tf.zeros(2))
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with pytest.raises(ValueError, match="captured_gradient_outfeed needs"):
        ipu.pipelining_ops.OptimizerFunctionOutput(
            tf.train.GradientDescentOptimizer(0.1), tf.zeros([]), captured_gradient_outfeed=queue
        )
