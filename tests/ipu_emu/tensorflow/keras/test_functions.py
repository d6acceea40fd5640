"""strategy.run of a tf.function: its loop becomes that of the program, with TensorFlow's results on the host."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.ipu_emu.tensorflow.keras.conftest import assert_close

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(64, 8)).astype(np.float32), RANDOM.integers(0, 3, 64).astype(np.int32)


@pytest.fixture
def host_and_device(tf2: Any, strategy: Any) -> Callable[..., tuple[Any, Any]]:
    """The results of ``make(run)`` if ``run`` calls functions, and if it runs them on the device."""

    def call(make: Callable[..., Any]) -> tuple[Any, Any]:
        expected = make(lambda function, *args: function(*args))
        with strategy.scope():
            return make(lambda function, *args: strategy.run(function, args=args)), expected

    return call


def network(tf: Any) -> Any:
    tf.keras.utils.set_random_seed(1)
    return tf.keras.Sequential([tf.keras.layers.Dense(16, "relu", input_shape=(8,)), tf.keras.layers.Dense(3)])


def elements(tf: Any) -> Any:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(8, drop_remainder=True).repeat()


def step(tf: Any, model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    """A step of training: the loss."""
    with tf.GradientTape() as tape:
        losses = tf.keras.losses.sparse_categorical_crossentropy(y, model(x, training=True), from_logits=True)
        loss = tf.reduce_mean(losses)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


def test_a_loop_of_training_steps_is_compiled_once_for_each_count(
    tf2: Any, host_and_device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ipu_emu.tensorflow.run import program

    tf, loads, compile_section = tf2, [], program.compile_section

    def compiled(imported: Any, *arguments: Any, **options: Any) -> Any:
        loads.extend([imported.section.batches] * (imported.section.kind == "loop"))
        return compile_section(imported, *arguments, **options)

    monkeypatch.setattr(program, "compile_section", compiled)

    def make(run: Any) -> Any:
        @tf.function
        def train(count: Any, iterator: Any, model: Any, optimizer: Any) -> Any:
            loss, steps = 0.0, 0
            for _ in tf.range(count):
                loss = step(tf, model, optimizer, *next(iterator))
                steps += 1
            return {"loss": loss, "steps": steps}

        model, optimizer = network(tf), tf.keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)
        losses = []
        for count in (10, 10, 3, 10, 3):
            result = run(train, tf.constant(count), iter(elements(tf)), model, optimizer)
            losses += [result["loss"].numpy(), result["steps"].numpy()]
        return [*losses, *model.get_weights()]

    assert_close(*host_and_device(make))
    assert loads == [10, 3]


def test_nested_functions_inner_loops_and_metrics(tf2: Any, host_and_device: Any) -> None:
    tf = tf2

    def make(run: Any) -> Any:
        model, optimizer, mean = network(tf), tf.keras.optimizers.SGD(0.1), tf.keras.metrics.Mean()
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
        iterator, seen = iter(elements(tf)), tf.Variable(0, dtype=tf.int32)

        @tf.function
        def forward(x: Any) -> Any:
            for _ in tf.range(3):
                x = x + 0.1 * tf.tanh(x)
            return model(x)

        @tf.function
        def train(epochs: int) -> Any:
            for epoch in tf.range(epochs):
                for number in tf.range(4):
                    x, y = next(iterator)
                    with tf.GradientTape() as tape:
                        logits = forward(x)
                        rows = tf.keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True)
                        loss = tf.reduce_mean(rows) * tf.cast(epoch + 1, tf.float32)
                    gradients = tape.gradient(loss, model.trainable_variables)
                    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
                    mean.update_state(loss)
                    accuracy.update_state(y, logits)
                    seen.assign_add(number)
            return mean.result(), accuracy.result()

        results = [result.numpy() for result in run(train, 3)]
        return [*results, seen.numpy(), *model.get_weights()]

    assert_close(*host_and_device(make))


def test_a_condition_switches_between_training_and_validation(tf2: Any, host_and_device: Any) -> None:
    tf = tf2

    def make(run: Any) -> Any:
        model, optimizer = network(tf), tf.keras.optimizers.SGD(0.1, 0.9)
        optimizer.build(model.trainable_variables)

        @tf.function
        def loop(trains: Any, iterator: Any) -> Any:
            total = 0.0
            for number in tf.range(6):
                x, y = next(iterator)

                def validate() -> Any:
                    logits = model(x, training=False)  # noqa: B023
                    rows = tf.keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True)  # noqa: B023
                    return tf.reduce_mean(rows)

                loss = tf.cond(trains, lambda: step(tf, model, optimizer, x, y), validate)  # noqa: B023
                if number % 2 == 0:
                    total += loss
            return total

        iterator = iter(elements(tf))
        losses = [run(loop, tf.constant(trains), iterator).numpy() for trains in (True, False, True, False)]
        return [*losses, *model.get_weights()]

    assert_close(*host_and_device(make))


def test_loops_without_a_known_count_and_lists_of_tensors(tf2: Any, host_and_device: Any) -> None:
    tf = tf2

    def make(run: Any) -> Any:
        counter = tf.Variable(0.0)

        @tf.function
        def halve(x: Any, limit: Any) -> Any:
            steps = 0
            while tf.reduce_max(x) > limit:
                x, steps = x / 2, steps + 1
                counter.assign_add(tf.reduce_sum(x))
            return x, steps

        @tf.function
        def search(x: Any) -> Any:
            place = -1
            for number in tf.range(10):
                if x[number] > 5.0:
                    place = number
                    break
            return place

        @tf.function
        def squares(x: Any) -> Any:
            array = tf.TensorArray(tf.float32, 4)
            for number in tf.range(4):
                array = array.write(number, x * tf.cast(number, tf.float32))
            return array.stack()

        line = tf.range(10, dtype=tf.float32)
        values = [*run(halve, line, 0.1), *run(halve, line * 2, 0.1), run(search, line), run(search, line / 9)]
        return [value.numpy() for value in (*values, run(squares, line), counter)]

    assert_close(*host_and_device(make))


def test_an_outfeed_of_a_loop_is_read_in_the_order_of_the_steps(tf2: Any, ipu: Any, strategy: Any) -> None:
    tf, outfeed = tf2, ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @tf.function
    def loop(count: Any, start: Any) -> None:
        for number in tf.range(count):
            outfeed.enqueue({"number": number, "sum": tf.cast(number, tf.float32) + start})

    with strategy.scope():
        for count in (3, 2):
            assert strategy.run(loop, (tf.constant(count), np.float32(0.5))) is None
    rows = [(int(row["number"]), float(row["sum"])) for row in outfeed]
    assert rows == [(0, 0.5), (1, 1.5), (2, 2.5), (0, 0.5), (1, 1.5)]


def test_an_infeed_and_errors_of_loops(tf2: Any, ipu: Any, strategy: Any) -> None:
    tf = tf2
    iterator = ipu.ipu_infeed_queue.IPUIterator(dataset=tf.data.Dataset.range(10).map(lambda v: tf.cast(v, tf.int32)))

    @tf.function
    def total(count: Any) -> Any:
        added = 0
        for _ in tf.range(count):
            added += next(iterator)
        return added

    @tf.function
    def grows(x: Any) -> Any:
        for _ in tf.range(3):
            x = tf.concat([x, x], 0)
        return x

    with strategy.scope():
        assert strategy.run(total, [tf.constant(4)]).numpy() == 6
        assert strategy.run(total, [tf.constant(3)]).numpy() == 4 + 5 + 6
        with pytest.raises(tf.errors.OutOfRangeError, match="no more elements"):
            strategy.run(total, [tf.constant(4)])
        with pytest.raises(TypeError, match=r"'x'.*type or shape"):
            strategy.run(grows, [tf.zeros(2)])
        with pytest.raises(ValueError, match="does not support eager execution"):
            strategy.run(lambda: None)
        with pytest.raises(TypeError, match="float64 is not supported"):
            strategy.run(grows, [tf.zeros(2, tf.float64)])


def test_collectives_and_recurrences_in_branches(tf2: Any, ipu: Any, strategy: Any, configure: Any) -> None:
    tf, outfeed = tf2, ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    collectives = ipu.cross_replica_ops
    configure(4)

    @tf.function
    def loop(limit: Any) -> None:
        for number in tf.range(3):
            x = tf.cast(ipu.replication_ops.replication_index() + number, tf.float32)
            if limit > tf.cast(number, tf.float32):
                x = collectives.cross_replica_sum(x)
            outfeed.enqueue(x)

    with strategy.scope():
        strategy.run(loop, [tf.constant(1.5)])
        np.testing.assert_array_equal(outfeed.dequeue(), [[6] * 4, [10] * 4, [2, 3, 4, 5]])


def test_a_branch_enqueues_when_it_is_taken(tf2: Any, ipu: Any, strategy: Any, configure: Any) -> None:
    tf, queue = tf2, ipu.ipu_outfeed_queue.IPUOutfeedQueue
    every, last, some = queue(), queue("get_last"), queue()
    configure(2)

    @tf.function
    def loop(limit: Any) -> None:
        for number in tf.range(6):
            x = tf.cast(number, tf.float32)
            tf.cond(x > limit, lambda x=x: [every.enqueue(x)], lambda: [tf.no_op()])
            if x < 4.0:
                above = x > limit
                if above:
                    last.enqueue({"x": x, "three": 3.0})

    @tf.function
    def differs() -> None:
        if ipu.replication_ops.replication_index() > 0:
            some.enqueue(1.0)

    with strategy.scope():
        strategy.run(loop, [tf.constant(1.5)])
        np.testing.assert_array_equal(every.dequeue(), [[2, 2], [3, 3], [4, 4], [5, 5]])
        assert [value.numpy().tolist() for value in last.dequeue().values()] == [[3, 3], [3, 3]]
        strategy.run(loop, [tf.constant(7.0)])
        assert every.is_empty
        with pytest.raises(tf.errors.FailedPreconditionError, match="a branch that only some replicas take"):
            strategy.run(differs)


def test_a_generator_draws_on_the_device(tf2: Any, strategy: Any) -> None:
    """Numbers of a ``tf.random.Generator`` differ between its calls, between iterations and between runs."""
    with strategy.scope():
        generator = tf2.random.Generator.from_seed(3)

        @tf2.function
        def draw(count: Any) -> Any:
            normal, uniform, numbers = tf2.zeros([5000]), tf2.zeros([5000]), tf2.zeros([5000], tf2.int32)
            changes = 0
            for _ in tf2.range(count):
                drawn = generator.normal([5000])
                changes += tf2.reduce_sum(tf2.cast(tf2.not_equal(drawn, normal), tf2.int32))
                normal, uniform = drawn, generator.uniform([5000])
                numbers = generator.uniform([5000], 2, 5, tf2.int32)
            return normal, uniform, numbers, changes

        first, second = (strategy.run(draw, args=[tf2.constant(3)]) for _ in range(2))
    normal, uniform, numbers, changes = (tensor.numpy() for tensor in first)
    assert abs(normal.mean()) < 0.06
    assert abs(normal.std() - 1) < 0.06
    assert abs(uniform.mean() - 0.5) < 0.03
    assert np.unique(numbers).tolist() == [2, 3, 4]
    assert changes == 15_000
    assert (second[0].numpy() != normal).all()


def test_images_are_flipped_at_random(tf2: Any, strategy: Any) -> None:
    """Layers that augment images have their own generator."""
    x = np.arange(8 * 4 * 4, dtype=np.float32).reshape(8, 4, 4, 1)
    with strategy.scope():
        layers = tf2.keras.layers
        model = tf2.keras.Sequential([layers.RandomFlip("horizontal"), layers.GaussianNoise(0.1), layers.Flatten()])

        @tf2.function
        def flipped(x: Any) -> Any:
            return model.layers[0](x, training=True)

        images = strategy.run(flipped, args=[tf2.constant(x)]).numpy()
    unchanged = [(image == other).all() for image, other in zip(images, x, strict=True)]
    turned = [(image[:, ::-1] == other).all() for image, other in zip(images, x, strict=True)]
    assert all(a != b for a, b in zip(unchanged, turned, strict=True))
    assert 0 < sum(unchanged) < 8


def test_predictions_without_elements_keep_their_shape(tf2: Any, both: Any) -> None:
    def predictions() -> Any:
        nothing = tf2.keras.layers.Lambda(lambda x: x[:, :0])
        return tf2.keras.Sequential([nothing]).predict_on_batch(np.zeros((2, 4, 3), np.float32))

    expected, actual = both(predictions)
    assert actual.shape == expected.shape == (2, 0, 3)


def test_an_argument_may_have_any_name(tf2: Any, host_and_device: Callable[..., tuple[Any, Any]]) -> None:
    class Sum(tf2.keras.layers.Layer):
        def call(self, x: Any, before: Any) -> Any:
            return x + before

    @tf2.function
    def added(x: Any, before: Any) -> Any:
        return Sum()(x, before=before)

    @tf2.function
    def twice(x: Any) -> Any:
        return added(x, before=x)

    actual, expected = host_and_device(lambda run: run(twice, X).numpy())
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(expected, 2 * X)
