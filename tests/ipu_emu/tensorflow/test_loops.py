"""Loops: repeat and while_loop, gradient accumulation, and the queues around them."""

from typing import Any

import numpy as np
import pytest


def test_a_loop_hands_values_on(tf: Any, ipu: Any, run: Any) -> None:
    (x, y) = run(
        lambda a, b: ipu.loops.repeat(5, lambda v, w: (v + w, w * 2.0), [a, b]),
        np.array([1, 2], np.float32), np.array(1, np.float32),
    )  # fmt: skip
    np.testing.assert_array_equal(x, [32, 33])
    assert y == 32


def test_a_while_loop_ends_by_its_condition(tf: Any, ipu: Any, run: Any) -> None:
    def program(a: Any) -> Any:
        return ipu.loops.while_loop(lambda v: v < 10.0, lambda v: v * 2.0, [a])

    assert run(program, np.array(1, np.float32)) == [16]
    assert run(program, np.array(11, np.float32)) == [11]


def test_integers_beyond_32_bits_cause_a_warning(run: Any) -> None:
    with pytest.warns(UserWarning, match="int64 values beyond the range of int32 have lost their upper bits"):
        assert run(lambda a: a + 1, np.array(2**40, np.int64)) == [1]
    with pytest.warns(UserWarning, match="int64 values beyond the range of int32 have lost their upper bits"):
        assert run(lambda a: a + 2**40, np.array(7, np.int64)) == [7]


def trained(tf: Any, ipu: Any, iterations: int, runs: int, wrap: Any = lambda opt: opt) -> tuple[Any, Any]:
    """Losses and weights of a loop with momentum."""
    data = np.random.default_rng(0).normal(size=(16, 2, 3)).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(data).repeat())
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def body(x: Any) -> Any:
            w = tf.get_variable("w", initializer=np.ones((3, 2), np.float32))
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
            return outfeed.enqueue(loss), wrap(tf.train.MomentumOptimizer(0.1, 0.9)).minimize(loss)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            operation = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(iterations, body, infeed_queue=infeed))
        dequeued = outfeed.dequeue()
        session.run([tf.global_variables_initializer(), infeed.initializer])
        losses = []
        for _ in range(runs):
            session.run(operation)
            losses.append(session.run(dequeued))
        return np.concatenate(losses), session.run(tf.global_variables())


def test_one_long_loop_has_the_bits_of_many_short_runs(tf: Any, ipu: Any) -> None:
    (losses, weights), (more, others) = trained(tf, ipu, 16, 1), trained(tf, ipu, 1, 16)
    np.testing.assert_array_equal(losses, more)
    for weight, other in zip(weights, others, strict=True):
        np.testing.assert_array_equal(weight, other)


def test_the_mean_over_replicas_equals_that_over_mini_batches(tf: Any, ipu: Any, configure: Any) -> None:
    def wrap(count: int) -> Any:
        opts = ipu.optimizers
        return lambda opt: opts.GradientAccumulationOptimizerV2(
            opts.CrossReplicaOptimizer(opt), count, reduction_method="MEAN"
        )

    configure(1)
    losses, weights = trained(tf, ipu, 16, 1, wrap(8))
    configure(4)
    more, others = trained(tf, ipu, 4, 1, wrap(2))
    assert more.shape == (4, 4)
    np.testing.assert_allclose(losses, more.reshape(-1), rtol=1e-6)
    for weight, other in zip(weights, others, strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-6)


def test_iterations_must_be_a_multiple_of_the_mini_batches(tf: Any, ipu: Any) -> None:
    with pytest.raises(ValueError, match="5 number of mini batches inside a loop with 16 iterations"):
        trained(tf, ipu, 16, 1, lambda opt: ipu.optimizers.GradientAccumulationOptimizerV2(opt, 5))


def test_a_body_must_return_tensors_before_ops_of_the_types_of_its_inputs(tf: Any, ipu: Any, run: Any) -> None:
    number = np.array(1, np.float32)
    with pytest.raises(ValueError, match="zero or more Tensor values followed by zero or more Operations"):
        run(lambda a: ipu.loops.repeat(2, lambda v: (tf.no_op(), v), [a]), number)
    with pytest.raises(TypeError, match="one tensor of the same type for each input"):
        run(lambda a: ipu.loops.repeat(2, lambda v: tf.cast(v, tf.int32), [a]), number)


def test_nested_elements_and_tensors_of_the_host(tf: Any, ipu: Any) -> None:
    """The elements of the data have parts of their own; a loop starts from a tensor made outside of the program."""
    rows = np.arange(6, dtype=np.float32)
    dataset = tf.data.Dataset.from_tensor_slices(((rows, {"twice": 2 * rows}), 3 * rows))
    infeed, start = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), tf.constant(100.0)

    def body(total: Any, pair: Any, three: Any) -> Any:
        return total + pair[0] + 10.0 * pair[1]["twice"] + 100.0 * three

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(6, body, [start], infeed))
    with tf.Session() as session:
        session.run(infeed.initializer)
        assert session.run(operation) == [100 + 15 * (1 + 20 + 300)]


def test_the_scope_of_a_device_may_be_inside_the_program(tf: Any, ipu: Any) -> None:
    def program(x: Any) -> Any:
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            return x * 2.0

    holder = tf.placeholder(tf.float32, [2])
    operation = ipu.ipu_compiler.compile(program, [holder])
    with tf.Session() as session:
        np.testing.assert_array_equal(session.run(operation, {holder: [1, 2]})[0], [2, 4])
    with pytest.raises(Exception, match="must be called in the scope of an IPU"):
        ipu.ipu_compiler.compile(lambda x: x, [holder])


def test_the_end_of_the_data_is_out_of_range(tf: Any, tensorflow: Any, ipu: Any) -> None:
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(np.ones(3, np.float32)))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(6, outfeed.enqueue, infeed_queue=infeed))
    with tf.Session() as session:
        session.run(infeed.initializer)
        with pytest.raises(tensorflow.v2.errors.OutOfRangeError, match="no more elements"):
            session.run(operation)


def test_structures_and_the_last_element(tf: Any, ipu: Any, configure: Any) -> None:
    configure(2)
    dataset = tf.data.Dataset.range(20).map(lambda v: {"a": tf.cast(v, tf.float32), "b": v})
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset, "infeed")
    queues = [ipu.ipu_outfeed_queue.IPUOutfeedQueue(mode) for mode in ("all", "get_last")]

    def body(a: Any, b: Any) -> Any:
        return [queues[0].enqueue({"x": a, "y": b}), queues[1].enqueue((a, b))]

    with tf.device("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(3, body, infeed_queue=infeed))
    dequeued = [queue.dequeue() for queue in queues]
    with tf.Session() as session:
        session.run(infeed.initializer)
        session.run(operation)
        every, last = session.run(dequeued)
    np.testing.assert_array_equal(every["x"], [[0, 1], [2, 3], [4, 5]])
    assert every["y"].dtype == np.int64
    np.testing.assert_array_equal(last[0], [4, 5])


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda q, d: q(d.batch(2)), ValueError, "is not fully defined. If using tf.Dataset.batch, set `drop_rem"),
        (lambda q, d: q(d, prefetch_depth=-1), ValueError, "prefetch_depth must be greater than zero"),
        (lambda q, d: q(d, prefetch_depth="a"), ValueError, "prefetch_depth must be a whole number, not 'a'"),
        (lambda q, d: q(d, prefetch_depth=256), ValueError, "prefetch_depth must be less than 256"),
        (lambda q, d: q(d, -1), ValueError, "Device ordinal must be >= 0"),
        (lambda q, d: q(d, 1.5), ValueError, "Device ordinal must be an integer"),
        (lambda q, d: [(queue := q(d)).initializer, queue.initializer], ValueError, "can only be called once"),
        (lambda q, d: q(d).get_next(), ValueError, "obsolete"),
        (lambda q, d: q([1, 2]), TypeError, "takes a tf.data.Dataset"),
    ],
)
def test_mistakes_with_infeeds(tf: Any, ipu: Any, make: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        make(ipu.ipu_infeed_queue.IPUInfeedQueue, tf.data.Dataset.range(4))


def test_mistakes_with_outfeeds(tf: Any, ipu: Any, run: Any) -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue
    with pytest.raises(ValueError, match="Outfeed buffer depth cannot be less than 1"):
        queue(buffer_depth=0)
    with pytest.raises(ValueError, match="Trying to dequeue an outfeed which has not been enqueued"):
        queue().dequeue()
    twice = queue()
    with pytest.raises(ValueError, match="An outfeed can only be enqueued once"):
        run(lambda a: [twice.enqueue(a), twice.enqueue(a)], np.array(1, np.float32))


def test_shards_run_on_their_ipus(tf: Any, ipu: Any, configure: Any) -> None:
    configure(4)
    holders = [tf.placeholder(np.float32, [2]) for _ in range(3)]

    def program(a: Any, b: Any, c: Any) -> Any:
        outputs = []
        for number, pair in enumerate(((a, b), (a, c), (b, c))):
            with ipu.scopes.ipu_shard(number):
                outputs.append(pair[0] + pair[1])
        with ipu.scopes.ipu_shard(3):
            return outputs[0] + outputs[1] + outputs[2]

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(program, holders)
    with tf.Session() as session:
        values = dict(zip(holders, [[1.0, 1.0], [0.0, 1.0], [1.0, 5.0]], strict=True))
        np.testing.assert_array_equal(session.run(operation, values), [[4, 14]])


def test_a_program_must_be_placed_on_an_ipu(tf: Any, ipu: Any) -> None:
    with pytest.raises(Exception, match="in the scope of an IPU"):
        ipu.ipu_compiler.compile(lambda: None)


def test_training_resumes_from_a_saver_with_the_same_bits(tf: Any, ipu: Any, tmp_path: Any) -> None:
    def build() -> Any:
        def body(x: Any) -> Any:
            w = tf.get_variable("w", initializer=np.ones((3, 2), np.float32))
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1.0))
            return loss, tf.train.AdamOptimizer(0.1).minimize(loss)

        holder = tf.placeholder(np.float32, [2, 3])
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            operation = ipu.ipu_compiler.compile(body, [holder])
        return lambda session, x: session.run(operation, {holder: x})

    data = np.random.default_rng(3).normal(size=(6, 2, 3)).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        step = build()
        session.run(tf.global_variables_initializer())
        losses = []
        for number, x in enumerate(data):
            losses.append(step(session, x)[0])
            if number == 2:
                tf.train.Saver().save(session, str(tmp_path / "model"))
        weights = session.run(tf.global_variables())
    with tf.Graph().as_default(), tf.Session() as session:
        step = build()
        tf.train.Saver().restore(session, str(tmp_path / "model"))
        assert [step(session, x)[0] for x in data[3:]] == losses[3:]
        for weight, other in zip(session.run(tf.global_variables()), weights, strict=True):
            np.testing.assert_array_equal(weight, other)
