"""Modules of ops, such as collectives, normalisation and recurrent layers, compared with TensorFlow or numpy."""

from typing import Any

import numpy as np
import pytest

RANDOM = np.random.default_rng(5)


def enqueued(tf: Any, ipu: Any, configure: Any, replicas: int, function: Any) -> Any:
    """The elements that each replica enqueues: ``function`` of the replica's number as a float."""
    configure(replicas)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def body() -> Any:
        return outfeed.enqueue(function(tf.cast(ipu.replication_ops.replication_index(), tf.float32)))

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(1, body))
    dequeued = outfeed.dequeue()
    with tf.Session() as session:
        session.run(operation)
        return session.run(dequeued)


def test_collectives_between_replicas(tf: Any, ipu: Any, configure: Any) -> None:
    def function(i: Any) -> Any:
        row = i * 10.0 + tf.range(4, dtype=tf.float32)
        return {
            "sum": ipu.cross_replica_ops.cross_replica_sum(i),
            "pairs": ipu.cross_replica_ops.cross_replica_mean(i, 2),
            "factor": ipu.replication_ops.replication_factor(),
            "gather": ipu.all_to_all_op.all_gather(i, 4),
            "scatter": ipu.reduce_scatter_op.reduce_scatter(row, 4),
            "all": ipu.all_to_all_op.all_to_all(row, 0, 0, 4),
        }

    by_name = {name: value[0] for name, value in enqueued(tf, ipu, configure, 4, function).items()}
    np.testing.assert_array_equal(by_name["sum"], [6] * 4)
    np.testing.assert_array_equal(by_name["pairs"], [0.5, 0.5, 2.5, 2.5])
    np.testing.assert_array_equal(by_name["factor"], [4] * 4)
    np.testing.assert_array_equal(by_name["gather"], [[0, 1, 2, 3]] * 4)
    np.testing.assert_array_equal(by_name["scatter"], 60 + 4 * np.arange(4)[:, None])
    np.testing.assert_array_equal(by_name["all"], np.arange(4)[:, None] + 10 * np.arange(4))


def test_gradients_of_sums_and_means_over_replicas(tf: Any, ipu: Any, configure: Any) -> None:
    ops = ipu.cross_replica_ops

    def function(i: Any) -> Any:
        results = ops.cross_replica_sum(i * i) * i, ops.cross_replica_mean(i * i) * i
        return [tf.gradients(result, i)[0] for result in results]

    by_sum, by_mean = (value[0] for value in enqueued(tf, ipu, configure, 2, function))
    # d/di of the replica's own factor, plus 2 i times the sum (or mean) of the factors of all replicas
    np.testing.assert_allclose(by_sum, [1 + 0, 1 + 2])
    np.testing.assert_allclose(by_mean, [0.5 + 0, 0.5 + 1])


def test_a_group_of_replicas_shares_the_statistics_of_batch_normalisation(tf: Any, ipu: Any, configure: Any) -> None:
    images = RANDOM.normal(size=(4, 2, 3, 3, 2)).astype(np.float32)
    upstream = RANDOM.normal(size=images.shape).astype(np.float32)

    def normalised(x: Any, weights: Any) -> Any:
        y = tf.nn.fused_batch_norm(x, np.array([1, 2], np.float32), np.array([0, 1], np.float32))[0]
        return y, tf.gradients(tf.reduce_sum(y * weights), x)[0]

    configure(4, norms__experimental__distributed_batch_norm_replica_group_size=2)
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    dataset = tf.data.Dataset.from_tensor_slices((images, upstream)).repeat()
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        operation = ipu.ipu_compiler.compile(
            lambda: ipu.loops.repeat(1, lambda x, w: outfeed.enqueue(normalised(x, w)), infeed_queue=infeed)
        )
    dequeued = outfeed.dequeue()
    with tf.Session() as session:
        session.run(infeed.initializer)
        session.run(operation)
        arrays = [value[0] for value in session.run(dequeued)]
        for pair in (slice(0, 2), slice(2, 4)):
            x, weights = (array[pair].reshape(4, 3, 3, 2) for array in (images, upstream))
            expected = session.run(normalised(tf.constant(x), tf.constant(weights)))
            for actual, other in zip(arrays, expected, strict=True):
                np.testing.assert_allclose(actual[pair].reshape(4, 3, 3, 2), other, rtol=1e-4, atol=2e-5)


def test_groups_must_divide_the_replicas(tf: Any, tensorflow: Any, ipu: Any, configure: Any, run: Any) -> None:
    configure(4, norms__experimental__distributed_batch_norm_replica_group_size=3)
    with pytest.raises(tensorflow.v2.errors.FailedPreconditionError, match="must be divisible by distributed_batch"):
        run(lambda x: x * 2.0, np.ones(2, np.float32))


@pytest.mark.parametrize("kind", ["group_norm", "layer_norm", "instance_norm"])
def test_normalisation(tf: Any, ipu: Any, run: Any, kind: str) -> None:
    x = RANDOM.normal(size=(2, 3, 3, 4)).astype(np.float32)
    (actual,) = run(lambda values: getattr(ipu.normalization_ops, kind)(values, epsilon=1e-5), x)
    groups = {"group_norm": 2, "layer_norm": 1, "instance_norm": 4}[kind]
    wide = x.reshape(2, 3, 3, 4 // groups, groups)
    mean, variance = (function(wide, axis=(1, 2, 3), keepdims=True) for function in (np.mean, np.var))
    np.testing.assert_allclose(
        actual, ((wide - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape), rtol=1e-4, atol=1e-5
    )


def test_activations_and_look_ups(tf: Any, tensorflow: Any, ipu: Any, run: Any) -> None:
    x, ids = RANDOM.normal(size=(4, 3)).astype(np.float32), np.array([2, 0], np.int32)

    @ipu.functional_ops.outlined_function
    def twice(values: Any) -> Any:
        return values * 2.0

    def program(values: Any, chosen: Any) -> Any:
        nn = ipu.nn_ops
        return (
            nn.gelu(values), nn.gelu_erf(values), nn.hard_sigmoid(values), nn.swish(values), nn.softmax(values),
            ipu.embedding_ops.embedding_lookup(values, chosen, serialization_factor=2), twice(values)
        )  # fmt: skip

    actual = run(program, x, ids)
    with tf.Session() as session:
        nn = tensorflow.v2.nn
        expected = session.run(
            [nn.gelu(x, approximate=True), nn.gelu(x), np.clip(0.2 * x + 0.5, 0, 1) + tf.zeros(()),
             x * tf.sigmoid(x), nn.softmax(x)]
        )  # fmt: skip
    for result, other in zip(actual, [*expected, x[ids], 2 * x], strict=True):
        np.testing.assert_allclose(result, other, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="must divide the number of rows"):
        run(lambda values: ipu.embedding_ops.embedding_lookup(values, [0], serialization_factor=3), x)


def test_dropout_keeps_a_share_and_the_mean(tf: Any, ipu: Any, run: Any) -> None:
    (dropped,) = run(lambda x: ipu.rand_ops.dropout(x, rate=0.25), np.ones((100, 100), np.float32))
    assert set(np.unique(dropped)) == {0, np.float32(1 / 0.75)}
    assert dropped.mean() == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("kind", ["PopnnLSTM", "PopnnGRU"])
def test_recurrent_layers(tf: Any, ipu: Any, run: Any, kind: str) -> None:
    x = RANDOM.normal(size=(3, 2, 4)).astype(np.float32)
    gates = {"PopnnLSTM": 4, "PopnnGRU": 3}[kind]
    kernel = RANDOM.normal(size=(9, gates * 5)).astype(np.float32)

    def program(values: Any) -> Any:
        layer = getattr(ipu.rnn_ops, kind)(5, weights_initializer=tf.constant_initializer(kernel))
        return layer(values)[0]

    (states,) = run(program, x)
    h, c = np.zeros((2, 5), np.float32), np.zeros((2, 5), np.float32)
    for step in range(3):
        joined = np.concatenate([x[step], h], 1)
        if kind == "PopnnLSTM":
            i, g, f, o = np.split(joined @ kernel, 4, 1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        else:
            r, u, w = np.split(kernel, 3, 1)
            new = np.tanh(np.concatenate([x[step], sigmoid(joined @ r) * h], 1) @ w)
            h = sigmoid(joined @ u) * h + (1 - sigmoid(joined @ u)) * new
        np.testing.assert_allclose(states[step], h, rtol=1e-4, atol=1e-5)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def test_collectives_between_the_shards_of_a_replica(tf: Any, ipu: Any, configure: Any, run: Any) -> None:
    configure(2)
    within = ipu.within_replica_ops
    operands = [np.arange(3, dtype=np.float32), np.full(3, 2, np.float32)]

    def all_of_them(*shards: Any) -> Any:
        return [
            *within.all_gather(shards),
            *within.all_reduce(shards, "COLLECTIVE_OP_SQUARE_ADD"),
            *within.reduce_scatter(shards, "COLLECTIVE_OP_MUL"),
        ]

    results = run(all_of_them, *operands)
    wanted = [[0, 1, 2, 2, 2, 2]] * 2 + [[4, 5, 8]] * 2 + [[0, 2], [4, 0]]
    for result, other in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(result, np.array(other, np.float32))
    with pytest.raises(ValueError, match="'COLLECTIVE_OP_MEAN' is not an operator"):
        run(lambda *shards: within.all_reduce(shards, "COLLECTIVE_OP_MEAN"), *operands)


def test_images_are_normalised_and_get_a_fourth_channel(tf: Any, ipu: Any, run: Any) -> None:
    image = np.random.default_rng(0).integers(0, 256, (2, 2, 2, 3)).astype(np.uint8)
    offsets, scales = np.float32([0.4, 0.5, 0.6]), np.float32([2, 3, 4])
    (actual,) = run(lambda x: ipu.image_ops.normalise_image(x, offsets, scales, 1 / 255), image)
    np.testing.assert_allclose(actual[..., :3], (image / 255 - offsets) * scales, rtol=1e-5, atol=1e-6)
    assert (actual[..., 3] == 0).all()


def test_sums_over_segments(tf: Any, ipu: Any, run: Any) -> None:
    (sums,) = run(
        lambda x: ipu.math_ops.segment_sum(x, [0, 0, 2, 2], 4), np.arange(8, dtype=np.float32).reshape(4, 2)
    )
    np.testing.assert_array_equal(sums, [[2, 4], [0, 0], [10, 12], [0, 0]])
