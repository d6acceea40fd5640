"""TensorFlow 1 and Keras in the table of front ends: each cell works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ipu_emu.helpers.front_ends import WIDE, Settings, Weights, cells, check, compiled_before

X, Y = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32), (np.arange(64) % 3).astype(np.int32)
#: Mini-batches of a weight update.
COUNT = 8


def configured(ipu: Any, configure: Callable[..., None], settings: Settings, *, offline: bool) -> None:
    kinds = ipu.config.DeviceConnectionType
    configure(
        settings.replicas * (2 if settings.schedule else 1),
        io_tiles__num_io_tiles=settings.io_tiles,
        optimizations__minimum_remote_tensor_size=0,
        device_connection__version="ipu2",
        device_connection__type=kinds.PRE_COMPILE if offline else kinds.ALWAYS,
    )


def arguments(ipu: Any, settings: Settings) -> dict[str, Any]:
    """The arguments of a pipeline of two stages."""
    return {
        "device_mapping": [0, 1] if settings.schedule else [0, 0],
        "pipeline_schedule": settings.schedule or ipu.pipelining_ops.PipelineSchedule.Sequential,
        "offload_weight_update_variables": settings.off_chip or settings.sharded,
        "replicated_optimizer_state_sharding": settings.sharded,
    }


class TensorFlow1:
    """A pipeline in a session."""

    def __init__(self, tf: Any, ipu: Any, configure: Callable[..., None]) -> None:
        self.tf, self.ipu, self.configure = tf, ipu, configure
        self.schedules = tuple(ipu.pipelining_ops.PipelineSchedule)

    def train(
        self, settings: Settings, *, first: int = 0, restored: Path | None = None, offline: bool = False
    ) -> Weights:
        """Train a step on the data from ``first`` on; ``restored`` is the checkpoint to begin with."""
        tf, ipu = self.tf, self.ipu
        configured(self.ipu, self.configure, settings, offline=offline)
        width = WIDE if settings.wide else 8

        def weights(name: str, *shape: int) -> Any:
            if settings.wide:
                return tf.get_variable(name, shape, initializer=tf.zeros_initializer(), use_resource=True)
            values = np.random.default_rng(len(name)).normal(0, 0.5, shape).astype(np.float32)
            return tf.get_variable(name, initializer=values, use_resource=True)

        def hidden(x: Any, y: Any) -> Any:
            return tf.matmul(tf.tanh(tf.matmul(x, weights("in", 8, width))), weights("hidden", width, width)), y

        def last(x: Any, y: Any) -> Any:
            logits = tf.matmul(x, weights("out", width, 3))
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=y))

        def optimizer(loss: Any) -> Any:
            adam = tf.train.AdamOptimizer(0.01)
            adam = ipu.optimizers.CrossReplicaOptimizer(adam) if settings.replicas > 1 else adam
            return ipu.pipelining_ops.OptimizerFunctionOutput(adam, loss)

        with tf.Graph().as_default():
            dataset = tf.data.Dataset.from_tensor_slices((X, Y)).skip(first).batch(4, drop_remainder=True)
            infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), ipu.ipu_outfeed_queue.IPUOutfeedQueue()

            def program() -> Any:
                return ipu.pipelining_ops.pipeline(
                    [hidden, last],
                    gradient_accumulation_count=COUNT // settings.replicas,
                    infeed_queue=infeed,
                    outfeed_queue=outfeed,
                    optimizer_function=optimizer,
                    **arguments(ipu, settings),
                )

            with ipu.scopes.ipu_scope("/device:IPU:0"):
                operation = ipu.ipu_compiler.compile(program, [])
            saver = tf.train.Saver()
            with tf.Session() as session:
                session.run(tf.global_variables_initializer())
                if restored is not None and first:
                    saver.restore(session, str(restored))
                session.run(infeed.initializer)
                try:
                    session.run(operation)
                finally:
                    session.run(infeed.deleter)
                if restored is not None:
                    saver.save(session, str(restored))
                return [session.run(variable) for variable in tf.trainable_variables()]

    def resumed(self, folder: Path) -> tuple[Weights, Weights]:
        """The weights of two steps on one IPU, and with the second one of a pipeline of two."""
        weights = []
        for number, schedule in enumerate((None, self.schedules[0])):
            file = folder / f"run{number}" / "weights"
            file.parent.mkdir(parents=True)
            self.train(Settings(), restored=file)
            weights.append(self.train(Settings(schedule=schedule), first=4 * COUNT, restored=file))
        return weights[0], weights[1]

    def offline(self, file: Path, patch: pytest.MonkeyPatch) -> tuple[Weights, Weights, Weights]:
        """The weights before and after a step, and after a step of an executable compiled without a device."""
        expected = self.train(Settings())
        return compiled_before(lambda **offline: self.train(Settings(), **offline), file, patch, expected)


class Keras:
    """A model that is fitted in a strategy."""

    def __init__(self, tf: Any, ipu: Any, configure: Callable[..., None]) -> None:
        self.tf, self.ipu, self.configure = tf, ipu, configure
        self.schedules = tuple(ipu.pipelining_ops.PipelineSchedule)

    def train(
        self, settings: Settings, *, first: int = 0, restored: Path | None = None, offline: bool = False
    ) -> Weights:
        """Train a step on the data from ``first`` on; ``restored`` is the checkpoint to begin with."""
        tf, keras = self.tf, self.tf.keras
        configured(self.ipu, self.configure, settings, offline=offline)
        width = WIDE if settings.wide else 8
        keras.backend.clear_session()
        keras.utils.set_random_seed(3)
        dataset = tf.data.Dataset.from_tensor_slices((X, Y)).skip(first).batch(4, drop_remainder=True)
        with self.ipu.ipu_strategy.IPUStrategy().scope():
            layers = [keras.layers.Dense(width, "tanh"), keras.layers.Dense(width), keras.layers.Dense(3)]
            model = keras.Sequential([keras.Input((8,)), *layers])
            model.set_pipeline_stage_assignment([0, 0, 1])
            model.set_pipelining_options(
                gradient_accumulation_steps_per_replica=COUNT // settings.replicas, **arguments(self.ipu, settings)
            )
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.Adam(0.01), loss, steps_per_execution=COUNT)
            if restored is not None and first:
                model.load_weights(restored)
            model.fit(dataset, steps_per_epoch=COUNT, verbose=0)
            if restored is not None:
                model.save_weights(restored)
            weights: Weights = model.get_weights()
            return weights

    resumed, offline = TensorFlow1.resumed, TensorFlow1.offline


FACES = {"TensorFlow 1": TensorFlow1, "Keras": Keras}


@pytest.fixture
def system() -> Iterator[None]:
    """Leave the system unconfigured."""
    from ipu_emu.tensorflow.run import configured_system

    yield
    configured_system.configure(configured_system.ConfiguredSystem())


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize(("name", "face"), cells(*FACES))
def test_a_cell_of_the_table_works(
    name: str, face: str, tensorflow: Any, configure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tf = tensorflow.tf if face == "TensorFlow 1" else tensorflow.v2
    check(name, FACES[face](tf, tensorflow.ipu, configure), tmp_path, monkeypatch)
