"""Training runs: one model trained by a loop of plain TensorFlow on the CPU, and by a pipeline on IPUs."""

from dataclasses import dataclass
from typing import Any

import numpy as np

#: The batches for training a model.
REPEAT = 2

#: Losses, and the values of variables by name.
Result = tuple[Any, dict[str, Any]]


def optimizers(tf: Any, dtype: Any) -> dict[str, Any]:
    """The function that creates each optimizer.

    Squares of small gradients are 0 in float16, and so is the epsilon of Adam: TensorFlow then divides by 0, and with
    1e-7 the last bit of a gradient changes the weight. So epsilon is large enough for float16.
    """
    import tf_keras

    keras = tf.keras.optimizers.legacy
    epsilon = {"epsilon": 1e-3} if dtype == np.float16 else {}
    return {
        "descent": lambda: tf.train.GradientDescentOptimizer(0.1),
        "momentum": lambda: tf.train.MomentumOptimizer(0.05, 0.9),
        "adam": lambda: tf.train.AdamOptimizer(0.02, **epsilon),
        "keras-sgd": lambda: keras.SGD(0.05, momentum=0.5),
        "keras-rmsprop": lambda: keras.RMSprop(0.01, **epsilon),
        "keras-adamw": lambda: tf_keras.optimizers.AdamW(0.01, weight_decay=0.02, **epsilon),
    }


@dataclass(frozen=True)
class Model:
    """Stages of dense layers, the last with a loss; with ``shares`` that begins with the layer of the first.

    Initial values and data are those of ``dtype``, whatever type they are computed in. A batch has ``count``
    mini-batches.
    """

    stages: int
    dtype: Any = np.float32
    count: int = 12
    shares: bool = False

    def functions(self, tf: Any, computed: Any = None) -> list[Any]:
        """The functions of the stages; variables have the type ``computed``."""

        def weights(name: str, rows: int, columns: int) -> Any:
            values = np.random.default_rng(len(name) + ord(name[-1])).normal(0, 0.5, (rows, columns))
            initial = values.astype(self.dtype).astype(computed or self.dtype)
            with tf.variable_scope(name, use_resource=True, reuse=tf.AUTO_REUSE):
                return tf.get_variable("w", initializer=initial, use_resource=True)

        def hidden(number: int) -> Any:
            return lambda x, y: (tf.tanh(tf.matmul(x, weights(f"stage{number}", 6, 6))), y)

        def last(x: Any, y: Any) -> Any:
            x = tf.tanh(tf.matmul(x, weights("stage0", 6, 6))) if self.shares else x
            return tf.reduce_mean(tf.square(tf.matmul(x, weights("last", 6, 2)) - y))

        return [*(hidden(number) for number in range(self.stages - 1)), last]

    def data(self) -> tuple[Any, Any]:
        random = np.random.default_rng(7)
        xs, ys = (random.normal(size=(self.count * REPEAT, 4, columns)) for columns in (6, 2))
        return xs.astype(self.dtype), ys.astype(self.dtype)


def on_cpu(tf: Any, model: Model, optimizer: str, reduction: str, computed: Any = None) -> Result:
    """The results of a plain loop: gradients of the mini-batches of a batch are combined, then applied."""
    dtype = computed or model.dtype
    with tf.Graph().as_default():
        xs, ys = (values.astype(dtype) for values in model.data())
        x, y = tf.placeholder(dtype, xs.shape[1:]), tf.placeholder(dtype, ys.shape[1:])
        values: Any = (x, y)
        for function in model.functions(tf, dtype):
            values = function(*values)
        variables = tf.trainable_variables()
        gradients = tf.gradients(values, variables)
        holders = [tf.placeholder(dtype, variable.shape) for variable in variables]
        apply = _eager if optimizer == "keras-adamw" else _in_graph
        update = apply(tf, optimizers(tf, model.dtype)[optimizer], holders, variables)
        losses = []
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for batch in range(REPEAT):
                total = [np.zeros(variable.shape, dtype) for variable in variables]
                for number in range(model.count):
                    place = batch * model.count + number
                    loss, batch_gradients = session.run((values, gradients), {x: xs[place], y: ys[place]})
                    losses.append(loss)
                    both = zip(total, batch_gradients, strict=True)
                    total = [_combined(reduction, old, new, number, model.count) for old, new in both]
                update(session, total)
            return np.array(losses), {variable.op.name: session.run(variable) for variable in variables}


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
        values = [session.run(source) for source in variables]
        with context.eager_mode():
            opts[:] = opts or [make()]
            own[:] = own or [tf.Variable(value) for value in values]
            opts[0].apply_gradients([(tf.constant(g), target) for g, target in zip(total, own, strict=True)])
            new = [target.numpy() for target in own]
        for variable, value in zip(variables, new, strict=True):
            variable.load(value, session)

    return update


def _combined(reduction: str, old: Any, new: Any, number: int, count: int) -> Any:
    if reduction == "SUM":
        return old + new
    if reduction == "MEAN":
        return old + new / count
    return old * (number / (number + 1)) + new / (number + 1)


def on_ipu(
    tf: Any,
    ipu: Any,
    model: Model,
    optimizer: str = "descent",
    *,
    replicas: int = 1,
    clips: bool = False,
    alike: bool = False,
    **options: Any,
) -> Result:
    """The results of a pipeline.

    It may limit the global norm of its gradients, and reduce them over replicas, which may get the same data.
    """
    with tf.Graph().as_default():
        data = model.data()
        elements = tuple(np.repeat(array, replicas, axis=0) for array in data) if alike else data
        dataset = tf.data.Dataset.from_tensor_slices(elements).repeat()
        infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def optimizer_function(loss: Any) -> Any:
            wrapped = optimizers(tf, model.dtype)[optimizer]()
            wrapped = _clipping(tf, wrapped) if clips else wrapped
            wrapped = ipu.optimizers.CrossReplicaOptimizer(wrapped) if replicas > 1 else wrapped
            return ipu.pipelining_ops.OptimizerFunctionOutput(wrapped, loss)

        def program() -> Any:
            return ipu.pipelining_ops.pipeline(
                model.functions(tf),
                gradient_accumulation_count=model.count,
                repeat_count=REPEAT,
                infeed_queue=infeed,
                outfeed_queue=outfeed,
                optimizer_function=optimizer_function,
                **options,
            )

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            operation = ipu.ipu_compiler.compile(program, [])
        dequeued = outfeed.dequeue()
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(infeed.initializer)
            session.run(operation)
            losses = session.run(dequeued)
            session.run(infeed.deleter)
            return losses[0], {variable.op.name: session.run(variable) for variable in tf.trainable_variables()}


def in_a_loop(tf: Any, ipu: Any, model: Model, optimizer: str, reduction: str) -> Result:
    """The results of a loop that accumulates gradients, with the stages as shards."""
    with tf.Graph().as_default():
        dataset = tf.data.Dataset.from_tensor_slices(model.data()).repeat()
        infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        accumulating = ipu.optimizers.GradientAccumulationOptimizerV2

        def body(x: Any, y: Any) -> Any:
            values: Any = (x, y)
            for number, function in enumerate(model.functions(tf)):
                with ipu.scopes.ipu_shard(number):
                    values = function(*values)
            inner = optimizers(tf, model.dtype)[optimizer]()
            update = accumulating(inner, model.count, reduction_method=reduction).minimize(values)
            return outfeed.enqueue(values), update

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            operation = ipu.ipu_compiler.compile(
                lambda: ipu.loops.repeat(REPEAT * model.count, body, infeed_queue=infeed), []
            )
        dequeued, stop = outfeed.dequeue(), infeed.deleter
        with tf.Session() as session:
            session.run([tf.global_variables_initializer(), infeed.initializer])
            session.run(operation)
            losses = session.run(dequeued)
            session.run(stop)
            return losses, {variable.op.name: session.run(variable) for variable in tf.trainable_variables()}


def _clipping(tf: Any, optimizer: Any) -> Any:
    """``optimizer`` with a limit of the global norm of all gradients."""
    apply = optimizer.apply_gradients

    def limited(pairs: Any, *arguments: Any, **named: Any) -> Any:
        gradients, variables = zip(*pairs, strict=True)
        clipped, _ = tf.clip_by_global_norm(gradients, 0.1)
        return apply(list(zip(clipped, variables, strict=True)), *arguments, **named)

    optimizer.apply_gradients = limited
    return optimizer


def assert_close(actual: Result, expected: Result, tolerance: float) -> None:
    """Compare each loss relative to its size, each variable relative to its largest element."""
    np.testing.assert_allclose(actual[0], expected[0], rtol=tolerance, atol=0)
    assert actual[1].keys() == expected[1].keys()
    for name, value in expected[1].items():
        assert np.isfinite(value).all(), name
        size = float(np.abs(value).max())
        np.testing.assert_allclose(actual[1][name], value, rtol=0, atol=tolerance * size, err_msg=name)


def assert_same(actual: Result, expected: Result) -> None:
    """Bit for bit."""
    np.testing.assert_array_equal(actual[0], expected[0])
    assert actual[1].keys() == expected[1].keys()
    for name, value in expected[1].items():
        np.testing.assert_array_equal(actual[1][name], value, err_msg=name)
