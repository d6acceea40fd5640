"""Pipelines against a loop of plain TensorFlow on the CPU: the same losses and variables, however they are run."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from ipu_emu.tensorflow.face import face

GROUPED, INTERLEAVED, SEQUENTIAL = "Grouped", "Interleaved", "Sequential"
COUNT, REPEAT = 12, 2


def optimizers(tf: Any) -> dict[str, Any]:
    import tf_keras

    keras = tf.keras.optimizers.legacy
    return {
        "descent": lambda: tf.train.GradientDescentOptimizer(0.1),
        "momentum": lambda: tf.train.MomentumOptimizer(0.05, 0.9),
        "adam": lambda: tf.train.AdamOptimizer(0.02),
        "keras-sgd": lambda: keras.SGD(0.05, momentum=0.5),
        "keras-rmsprop": lambda: keras.RMSprop(0.01),
        "keras-adamw": lambda: tf_keras.optimizers.AdamW(0.01, weight_decay=0.02),
    }


def network(tf: Any, stages: int, dtype: Any) -> list[Any]:
    """Stages of dense layers; the last computes a loss. Variables have fixed initial values."""

    def weights(number: int, rows: int, columns: int) -> Any:
        values = np.random.default_rng(number).normal(0, 0.5, (rows, columns)).astype(dtype)
        return tf.get_variable(f"w{number}", initializer=values, use_resource=True)

    def hidden(number: int) -> Any:
        def stage(x: Any, y: Any) -> Any:
            with tf.variable_scope(f"stage{number}", use_resource=True, reuse=tf.AUTO_REUSE):
                return tf.tanh(tf.matmul(x, weights(number, 6, 6))), y

        return stage

    def last(x: Any, y: Any) -> Any:
        with tf.variable_scope("last", use_resource=True, reuse=tf.AUTO_REUSE):
            return tf.reduce_mean(tf.square(tf.matmul(x, weights(stages, 6, 2)) - y))

    return [*(hidden(number) for number in range(stages - 1)), last]


def data(dtype: Any) -> tuple[Any, Any]:
    random = np.random.default_rng(7)
    xs, ys = (random.normal(size=(COUNT * REPEAT, 4, columns)) for columns in (6, 2))
    return xs.astype(dtype), ys.astype(dtype)


def on_cpu(tf: Any, stages: int, optimizer: str, dtype: Any, reduction: str) -> tuple[Any, dict[str, Any]]:
    """Losses and variables of a plain loop: gradients of COUNT mini-batches, combined, then applied."""
    functions, (xs, ys) = network(tf, stages, dtype), data(dtype)
    with tf.Graph().as_default():
        x, y = tf.placeholder(dtype, xs.shape[1:]), tf.placeholder(dtype, ys.shape[1:])
        values: Any = (x, y)
        for function in functions:
            values = function(*values)
        variables = tf.trainable_variables()
        gradients = tf.gradients(values, variables)
        holders = [tf.placeholder(dtype, one.shape) for one in variables]
        apply = _eager if optimizer == "keras-adamw" else _in_graph
        update = apply(tf, optimizers(tf)[optimizer], holders, variables)
        losses = []
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for batch in range(REPEAT):
                total = [np.zeros(one.shape, dtype) for one in variables]
                for number in range(COUNT):
                    place = batch * COUNT + number
                    loss, found = session.run((values, gradients), {x: xs[place], y: ys[place]})
                    losses.append(loss)
                    total = [combined(reduction, old, new, number) for old, new in zip(total, found, strict=True)]
                update(session, total)
            return np.array(losses), {one.op.name: session.run(one) for one in variables}


def _in_graph(tf: Any, make: Any, holders: list[Any], variables: list[Any]) -> Any:
    """An update by ops of the graph."""
    update = make().apply_gradients(list(zip(holders, variables, strict=True)))
    return lambda session, total: session.run(update, dict(zip(holders, total, strict=True)))


def _eager(tf: Any, make: Any, holders: list[Any], variables: list[Any]) -> Any:
    """An update by an optimizer that works only eagerly; the new values are loaded."""
    from tensorflow.python.eager import context

    own: list[Any] = []
    opts: list[Any] = []

    def update(session: Any, total: list[Any]) -> None:
        values = [session.run(one) for one in variables]
        with context.eager_mode():
            opts[:] = opts or [make()]
            own[:] = own or [tf.Variable(value) for value in values]
            opts[0].apply_gradients([(tf.constant(g), one) for g, one in zip(total, own, strict=True)])
            new = [one.numpy() for one in own]
        for variable, value in zip(variables, new, strict=True):
            variable.load(value, session)

    return update


def combined(reduction: str, old: Any, new: Any, number: int) -> Any:
    if reduction == "SUM":
        return old + new
    if reduction == "MEAN":
        return old + new / COUNT
    return old * (number / (number + 1)) + new / (number + 1)


def on_ipu(
    tf: Any,
    ipu: Any,
    stages: int,
    optimizer: str = "descent",
    dtype: Any = np.float32,
    *,
    replicated: bool = False,
    clips: bool = False,
    **options: Any,
) -> tuple[Any, dict[str, Any]]:
    """Losses and variables of a pipeline; it may reduce its gradients over replicas, and limit their global norm."""
    with tf.Graph().as_default():
        dataset = tf.data.Dataset.from_tensor_slices(data(dtype)).repeat()
        infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def optimizer_function(loss: Any) -> Any:
            made = clipping(tf, optimizers(tf)[optimizer]()) if clips else optimizers(tf)[optimizer]()
            made = ipu.optimizers.CrossReplicaOptimizer(made) if replicated else made
            return ipu.pipelining_ops.OptimizerFunctionOutput(made, loss)

        def program() -> Any:
            return ipu.pipelining_ops.pipeline(
                network(tf, stages, dtype),
                gradient_accumulation_count=COUNT,
                repeat_count=REPEAT,
                infeed_queue=infeed,
                outfeed_queue=outfeed,
                optimizer_function=optimizer_function,
                **options,
            )

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            made = ipu.ipu_compiler.compile(program, [])
        dequeued = outfeed.dequeue()
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(infeed.initializer)
            session.run(made)
            losses = session.run(dequeued)
            return losses[0], {one.op.name: session.run(one) for one in tf.trainable_variables()}


def clipping(tf: Any, optimizer: Any) -> Any:
    """``optimizer``, which limits the norm of all gradients together."""
    apply = optimizer.apply_gradients

    def limited(pairs: Any, *arguments: Any, **named: Any) -> Any:
        gradients, variables = zip(*pairs, strict=True)
        clipped, _ = tf.clip_by_global_norm(gradients, 0.1)
        return apply(list(zip(clipped, variables, strict=True)), *arguments, **named)

    optimizer.apply_gradients = limited
    return optimizer


def assert_close(found: Any, expected: Any, tolerance: float) -> None:
    np.testing.assert_allclose(found[0], expected[0], rtol=tolerance, atol=tolerance)
    assert found[1].keys() == expected[1].keys()
    for name, value in expected[1].items():
        np.testing.assert_allclose(found[1][name], value, rtol=tolerance, atol=tolerance, err_msg=name)


def assert_same(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found[0], expected[0])
    for name, value in expected[1].items():
        np.testing.assert_array_equal(found[1][name], value, err_msg=name)


@pytest.mark.parametrize(
    ("optimizer", "reduction"),
    [("descent", "SUM"), ("momentum", "MEAN"), ("adam", "RUNNING_MEAN"), ("keras-sgd", "MEAN"),
     ("keras-rmsprop", "SUM"), ("keras-adamw", "RUNNING_MEAN")],
)  # fmt: skip
def test_training_equals_a_loop_of_plain_tensorflow(
    tf: Any, ipu: Any, configure: Any, optimizer: str, reduction: str
) -> None:
    expected = on_cpu(tf, 2, optimizer, np.float32, reduction)
    configure(2)
    found = on_ipu(tf, ipu, 2, optimizer, reduction_method=reduction)
    assert len(found[0]) == COUNT * REPEAT
    assert_close(found, expected, 2e-6)


def test_half_precision(tf: Any, ipu: Any, configure: Any) -> None:
    expected = on_cpu(tf, 2, "descent", np.float16, "MEAN")
    configure(2)
    assert_close(on_ipu(tf, ipu, 2, "descent", np.float16, reduction_method="mean"), expected, 2e-3)


def test_all_schedules_and_switches_have_the_same_bits(tf: Any, ipu: Any, configure: Any) -> None:
    ops = ipu.pipelining_ops
    configure(4)
    first = on_ipu(tf, ipu, 3, "momentum")
    switches: list[dict[str, Any]] = [
        {"pipeline_schedule": ops.PipelineSchedule.Interleaved},
        {"pipeline_schedule": ops.PipelineSchedule.Sequential},
        {"device_mapping": [0, 1, 0]},
        {"offload_weight_update_variables": True},
        {"offload_activations": True, "offload_gradient_accumulation_buffers": True},
        {"pipeline_schedule": ops.PipelineSchedule.Sequential, "device_mapping": [0, 0, 0]},
    ]
    for options in switches:
        configure(max(options.get("device_mapping", [3])) + 1)
        assert_same(on_ipu(tf, ipu, 3, "momentum", **options), first)
    configure(4, allow_recompute=True)
    for schedule in (ops.PipelineSchedule.Grouped, ops.PipelineSchedule.Sequential):
        assert_same(on_ipu(tf, ipu, 3, "momentum", pipeline_schedule=schedule), first)


@pytest.mark.parametrize(("optimizer", "clips"), [("momentum", True), ("adam", False), ("keras-rmsprop", False)])
def test_states_that_replicas_divide_have_the_same_bits_and_take_less_memory(
    tf: Any, ipu: Any, configure: Any, optimizer: str, clips: bool
) -> None:
    """Two replicas of two IPUs; gradients that are clipped are reduced as a whole."""

    def train(divided: bool) -> tuple[Any, int]:
        configure(4, optimizations__minimum_remote_tensor_size=0)
        options = {"offload_weight_update_variables": True, "replicated_optimizer_state_sharding": divided}
        found = on_ipu(tf, ipu, 2, optimizer, replicated=True, clips=clips, **options)
        (program,) = face().programs[list(face().programs)[-1]]
        sections = next(iter(program._loaded.values()))
        return found, sum(one.engine.streaming_nbytes_of(0) for one in sections)

    (found, most), (divided, least) = train(False), train(True)
    assert_same(divided, found)
    assert least < most


def test_inference_returns_outputs_in_the_order_of_the_data(tf: Any, ipu: Any, configure: Any) -> None:
    configure(2)
    dataset = tf.data.Dataset.range(8).map(lambda one: tf.cast([one], tf.float32)).repeat()
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset, "in"), ipu.ipu_outfeed_queue.IPUOutfeedQueue("out")

    def program() -> Any:
        return ipu.pipelining_ops.pipeline(
            [lambda x: x + 1.0, lambda x: x * 10.0],
            gradient_accumulation_count=4, repeat_count=2, infeed_queue=infeed, outfeed_queue=outfeed,
        )  # fmt: skip

    with tf.device("/device:IPU:0"):
        made = ipu.ipu_compiler.compile(program)
    with tf.Session() as session:
        session.run(infeed.initializer)
        session.run(made)
        np.testing.assert_array_equal(session.run(outfeed.dequeue()), 10.0 * np.arange(1, 9)[:, None])


@pytest.mark.full
@pytest.mark.parametrize(
    ("optimizer", "reduction", "stages"),
    list(product(("descent", "momentum", "adam", "keras-sgd", "keras-rmsprop", "keras-adamw"),
                 ("SUM", "MEAN", "RUNNING_MEAN"), (2, 3))),
)  # fmt: skip
def test_every_optimizer_with_every_reduction(
    tf: Any, ipu: Any, configure: Any, optimizer: str, reduction: str, stages: int
) -> None:
    expected = on_cpu(tf, stages, optimizer, np.float32, reduction)
    configure(4)
    assert_close(on_ipu(tf, ipu, stages, optimizer, reduction_method=reduction), expected, 1e-5)
