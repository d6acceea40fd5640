"""IPU estimator: trains, evaluates and predicts by a model function, in loops on the IPU.

Current TensorFlow has no estimators. This one has input functions, hooks, checkpoints in ``model_dir``, and metrics
of ``tf.metrics``, as programs for the IPU use them.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, takewhile
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.util import nest

import popdist_py
from ipu_emu.ops.core.axis_sums import mean_of
from ipu_emu.session.options.without_effect import without_effect
from ipu_emu.tensorflow.api import ipu_compiler, loops, scopes
from ipu_emu.tensorflow.api.config import IPUConfig
from ipu_emu.tensorflow.api.estimator.ipu_run_config import RunConfig
from ipu_emu.tensorflow.api.estimator.specs import EstimatorSpec, IPUEstimatorSpec, ModeKeys
from ipu_emu.tensorflow.api.ipu_infeed_queue import IPUInfeedQueue
from ipu_emu.tensorflow.api.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue

__all__ = ["IPUEstimator", "IPUEstimatorSpec"]

#: The attribute of a spec with the hooks of a mode.
_HOOKS = {
    ModeKeys.TRAIN: "training_hooks",
    ModeKeys.EVAL: "evaluation_hooks",
    ModeKeys.PREDICT: "prediction_hooks",
}


class IPUEstimator:
    """``model_fn(features, labels, mode, params)`` returns an EstimatorSpec."""

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: str | None = None,
        config: RunConfig | None = None,
        params: dict[str, Any] | None = None,
        warm_start_from: Any = None,
    ) -> None:
        if config is not None and not isinstance(config, RunConfig):
            raise ValueError(f"`config` must be an ipu_run_config.RunConfig, found {type(config).__name__}")
        if warm_start_from is not None:
            raise NotImplementedError("warm_start_from is not supported; train on from the checkpoint in model_dir")
        self._model_fn, self.config, self.params = model_fn, config or RunConfig(), dict(params or {})
        self.model_dir = model_dir or self.config.model_dir or tempfile.mkdtemp()
        self._own_hooks: list[Any] = []

    @property
    def _iterations(self) -> int:
        return self.config.ipu_run_config.iterations_per_loop

    # Public methods

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Sequence[Any] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Any = None,
    ) -> IPUEstimator:
        """Train for ``steps`` steps, or up to ``max_steps``, or to the end of the data."""
        if steps is not None and max_steps is not None:
            raise ValueError("Can not provide both steps and max_steps.")
        if saving_listeners:
            raise NotImplementedError("saving_listeners are not called; pass a hook with after_run instead")
        with self._graph(ModeKeys.TRAIN, input_fn) as (queue, structure):
            outfeed = IPUOutfeedQueue(IPUOutfeedMode.LAST)
            operation = self._program(ModeKeys.TRAIN, queue, structure, outfeed, self._iterations)
            step = tf.train.get_or_create_global_step()
            with tf.control_dependencies([operation]):
                counted = tf.assign_add(step, self._iterations)
            saver = tf.train.Saver()
            with self._session(hooks, queue, saver) as session:
                plain = _plain(session)
                target = self._target(plain.run(step), steps, max_steps)
                while not session.should_stop() and (target is None or plain.run(step) < target):
                    try:
                        session.run(counted)
                    except tf.errors.OutOfRangeError:
                        break
                saver.save(plain, f"{self.model_dir}/model.ckpt", plain.run(step))
        return self

    def _target(self, present: int, steps: int | None, most: int | None) -> int | None:
        remaining = steps if steps is not None else None if most is None else max(most - int(present), 0)
        if remaining is not None and remaining % self._iterations:
            raise ValueError(
                f"The number of steps ({remaining}) must be a multiple of iterations_per_loop ({self._iterations})"
            )
        return None if remaining is None else int(present) + remaining

    @without_effect("name")
    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[Any] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """The metrics, the mean loss and the global step; over ``steps`` steps, or to the end of the data."""
        iterations = self._iterations if steps is not None else 1
        if steps is not None and steps % iterations:
            raise ValueError(
                f"The number of steps ({steps}) must be a multiple of iterations_per_loop ({iterations})"
            )
        with self._graph(ModeKeys.EVAL, input_fn) as (queue, structure):
            outfeed = IPUOutfeedQueue()
            operation = self._program(ModeKeys.EVAL, queue, structure, outfeed, iterations)
            taken, step = outfeed.dequeue(), tf.train.get_or_create_global_step()
            with self._session(hooks, queue, tf.train.Saver(), checkpoint_path) as session:
                rows = list(_rows(session, operation, taken, None if steps is None else steps // iterations))
                number = int(_plain(session).run(step))
        return {**self._metrics(rows), "global_step": number}

    def _metrics(self, rows: Sequence[Any]) -> dict[str, Any]:
        """The last value of each metric, and the mean of the losses."""
        if not rows:
            raise ValueError("The data set of the evaluation has no elements")
        metrics = {name: row[-1] for name, row in rows[-1].items()}
        return metrics | {"loss": mean_of(np.concatenate([np.ravel(row["loss"]) for row in rows]))}

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Sequence[str] | None = None,
        hooks: Sequence[Any] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
        num_predictions: int | None = None,
    ) -> Iterator[Any]:
        """Yield the predictions, one example after the other or in batches."""
        yielded = 0
        with self._graph(ModeKeys.PREDICT, input_fn) as (queue, structure):
            outfeed = IPUOutfeedQueue()
            operation = self._program(ModeKeys.PREDICT, queue, structure, outfeed, 1)
            taken = outfeed.dequeue()
            with self._session(hooks, queue, tf.train.Saver(), checkpoint_path) as session:
                for row in _rows(session, operation, taken, None):
                    chosen = {k: v for k, v in row.items() if not predict_keys or k in predict_keys} if isinstance(
                        row, dict) else row  # fmt: skip
                    for example in _examples(chosen, yield_single_examples):
                        if num_predictions is not None and yielded == num_predictions:
                            return
                        yielded += 1
                        yield example

    # Programs

    def _program(self, mode: str, queue: Any, structure: Any, outfeed: Any, iterations: int) -> Any:
        """The compiled loop of a mode."""

        def body(*flat: Any) -> Any:
            features, labels = _apart(nest.pack_sequence_as(structure, list(flat)))
            known = {"labels": labels, "mode": mode, "params": self.params, "config": self.config}
            spec = called_with(self._model_fn, features, **known)
            if not isinstance(spec, EstimatorSpec):
                raise ValueError(f"`model_fn` must return an EstimatorSpec, found {type(spec).__name__}")
            self._keep_hooks(spec, mode)
            return self._outputs(spec, outfeed)

        with scopes.ipu_scope(f"/device:IPU:{self.config.ipu_run_config.ordinal}"):
            return ipu_compiler.compile(lambda: loops.repeat(iterations, body, infeed_queue=queue))

    def _keep_hooks(self, spec: Any, mode: str) -> None:
        """Keep the hooks that a model function returns for a mode; those of the chief only on the first instance."""
        self._own_hooks = list(getattr(spec, _HOOKS[mode]))
        if mode == ModeKeys.TRAIN and popdist_py.getInstanceIndex() == 0:
            self._own_hooks += getattr(spec, "training_chief_hooks", ())

    def _outputs(self, spec: EstimatorSpec, outfeed: Any) -> list[Any]:
        if spec.mode == ModeKeys.PREDICT:
            if spec.predictions is None:
                raise ValueError("EstimatorSpec must contain predictions in the mode PREDICT")
            return [outfeed.enqueue(spec.predictions)]
        if spec.loss is None:
            raise ValueError(f"EstimatorSpec must contain loss in the mode {spec.mode.upper()}")
        if spec.mode == ModeKeys.TRAIN:
            if spec.train_op is None:
                raise ValueError("EstimatorSpec must contain train_op in the mode TRAIN")
            train = spec.train_op if isinstance(spec.train_op, tf.Operation) else spec.train_op.op
            return [outfeed.enqueue(spec.loss), train]
        metrics = spec.eval_metric_ops
        if metrics is None and spec.eval_metrics is not None:
            function, tensors = spec.eval_metrics
            metrics = function(**tensors) if isinstance(tensors, dict) else function(*tensors)
        return [outfeed.enqueue({"loss": spec.loss, **{name: metric[1] for name, metric in (metrics or {}).items()}})]

    @contextmanager
    def _graph(self, mode: str, input_fn: Callable[..., Any]) -> Iterator[tuple[Any, Any]]:
        """A graph with the infeed of an input function, for which the system is configured."""
        ipus = self.config.ipu_run_config
        options = ipus.ipu_options
        if options is None:
            options = IPUConfig()
            options.auto_select_ipus = ipus.num_replicas * ipus.num_shards
        options.configure_ipu_system()
        with tf.Graph().as_default():
            tf.set_random_seed(self.config.tf_random_seed)
            with tf.variable_scope("", use_resource=True):
                tf.train.get_or_create_global_step()
            dataset = called_with(input_fn, mode=mode, params=self.params)
            if not isinstance(dataset, tf.data.Dataset | tf.compat.v2.data.Dataset):
                raise ValueError(f"`input_fn` must return a tf.data.Dataset, found {type(dataset).__name__}")
            structure = nest.map_structure(lambda spec: 0, dataset.element_spec)
            flat = dataset.map(lambda *element: tuple(nest.flatten(element)))
            yield IPUInfeedQueue(flat, prefetch_depth=ipus.prefetch_depth), structure

    def _session(self, hooks: Sequence[Any] | None, queue: Any, saver: Any, checkpoint: str | None = None) -> Any:
        """A session with the variables of the latest checkpoint and a running infeed."""
        path = checkpoint or tf.train.latest_checkpoint(self.model_dir)
        start = tf.group(tf.global_variables_initializer(), tf.local_variables_initializer())
        scaffold = tf.train.Scaffold(
            init_op=start,
            init_fn=(lambda _, session: saver.restore(session, path)) if path else None,
            local_init_op=queue.initializer,
            saver=saver,
            summary_op=None,
        )
        creator = tf.train.ChiefSessionCreator(scaffold, config=self.config.session_config)
        return tf.train.MonitoredSession(creator, hooks=[*(hooks or ()), *self._own_hooks])


def called_with(function: Callable[..., Any], *arguments: Any, **known: Any) -> Any:
    """Call ``function`` with ``arguments``, and those of ``known`` that are in its signature."""
    names = inspect.signature(function).parameters
    return function(*arguments, **{name: value for name, value in known.items() if name in names})


def _apart(element: Any) -> tuple[Any, Any]:
    """Features and labels."""
    return element if isinstance(element, tuple) and len(element) == 2 else (element, None)


def _rows(session: Any, operation: Any, taken: Any, runs: int | None) -> Iterator[Any]:
    """Yield what each run enqueues, for ``runs`` runs or until the end of the data."""
    for _ in takewhile(lambda done: runs is None or done < runs, count()):
        try:
            session.run(operation)
        except tf.errors.OutOfRangeError:
            return
        yield _plain(session).run(taken)


def _examples(row: Any, single: bool) -> Iterator[Any]:
    """The examples of a row, whose arrays are [iterations, batch, ...], or its batches."""
    flat = nest.flatten(row)
    for iteration in range(len(flat[0])):
        batch = nest.map_structure(lambda array, i=iteration: array[i], row)
        if not single:
            yield batch
            continue
        for place in range(len(nest.flatten(batch)[0])):
            yield nest.map_structure(lambda array, i=place: array[i], batch)


def _plain(session: Any) -> Any:
    """The session itself, without the hooks of a monitored one."""
    return session._tf_sess()
