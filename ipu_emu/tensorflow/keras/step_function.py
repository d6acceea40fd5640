"""Step function: the replacement for a model's ``train_function``, ``test_function`` or ``predict_function``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from tensorflow.python.framework import errors, ops
from tensorflow.python.framework import tensor as tensor_lib
from tensorflow.python.util import nest

from gcl.kernels.uninterrupted import uninterrupted
from ipu_emu.errors import UnsupportedError
from ipu_emu.ops.core.axis_sums import mean_of, sum_of
from ipu_emu.tensorflow.keras.extension import Extension
from ipu_emu.tensorflow.keras.options import ReplicatedMetricReductionMethod
from ipu_emu.tensorflow.keras.pipeline_section import is_pipelined, mapping_of, stages_of
from ipu_emu.tensorflow.keras.step_program import StepProgram
from ipu_emu.tensorflow.run.configured_system import configured, ipus_for


class StepFunction:
    """Runs an execution of a model on elements of an iterator; programs are cached by steps and shapes."""

    def __init__(self, model: Any, extension: Extension, kind: str) -> None:
        self._model, self._extension, self._kind = model, extension, kind
        self.programs: dict[Any, StepProgram] = {}

    def __call__(self, iterator: Any) -> Any:
        """Run ``steps_per_execution`` steps; return the logs of the last one, or all predictions."""
        model = self._model
        replicas = replicas_of(model, self._extension)
        with uninterrupted():
            steps = 1 if model._steps_per_execution is None else int(model._steps_per_execution.numpy())
        accumulation = accumulation_of(model, self._extension, steps) if self._kind == "train" else 1
        results = [self._run(group, accumulation) for group in groups_of(iterator, steps, replicas)]
        with uninterrupted():
            if self._kind == "predict":
                return nest.map_structure(_joined, *results)
            return nest.map_structure(self._metric, results[-1])

    def _run(self, group: ElementGroup, accumulation: int) -> Any:
        key = (group.steps, tuple((tuple(leaf.shape), leaf.dtype) for leaf in nest.flatten(group.spec)))
        if key not in self.programs:
            device, options = self._extension.device, self._extension.options
            self.programs[key] = StepProgram(
                self._model, self._kind, group.spec, group.steps, device, options, accumulation
            )
        tell = self._tell(group.steps) if self._extension.options.asynchronous else None
        return self.programs[key].run(group.elements, tell)

    def _tell(self, steps: int) -> Callable[[Any], None] | None:
        """Return a function that calls the callbacks of each step except the last, for which Keras calls them."""
        callbacks, kind, step = self._extension.callbacks, self._kind, self._extension.step
        last = step + steps - 1

        def tell(outputs: Any) -> None:
            nonlocal step
            if step == last:
                return
            with uninterrupted():
                logs = {"outputs": outputs} if kind == "predict" else nest.map_structure(self._metric, outputs)
            getattr(callbacks, f"on_{kind}_batch_end")(step, logs)
            step += 1
            getattr(callbacks, f"on_{kind}_batch_begin")(step)

        return None if callbacks is None else tell

    def _metric(self, array: Any) -> Any:
        return _reduced(array, self._extension.options.metrics)


def replicas_of(model: Any, extension: Extension) -> int:
    """The replicas of a model in this process; raise ValueError if the IPUs cannot be divided among them."""
    shards = 1
    if is_pipelined(model):
        shards = max(mapping_of(extension.options, max(stages_of(model).values()) + 1)) + 1
    needed, devices = ipus_for(shards), configured().devices
    ipus = devices[extension.device] if extension.device < len(devices) else 0
    if ipus < needed or ipus % needed:
        raise ValueError(
            f"Current device has {ipus} IPUs attached, however the current model requires a multiple of {needed} "
            "IPUs."
        )
    return ipus // needed


def accumulation_of(model: Any, extension: Extension, steps: int) -> int:
    """The number of mini-batches of an update; raise an error if it does not divide the steps of an execution."""
    pipelined = is_pipelined(model)
    count = extension.options.steps_of(pipelined)
    if pipelined and count is None:
        raise ValueError(
            "The model which you are attempting to train is pipelined, however "
            "`gradient_accumulation_steps_per_replica` has not been set through `set_pipelining_options()`. "
            "Set it to the number of mini-batches of each weight update."
        )
    if count is not None and steps % count:
        kind, method = (
            ("pipelined ", "set_pipelining_options") if pipelined else ("", "set_gradient_accumulation_options")
        )
        raise RuntimeError(
            f"The {kind}model has been configured to use gradient accumulation for training, however the current "
            f"`steps_per_execution` value (set to {steps}) is not divisible by "
            f"`gradient_accumulation_steps_per_replica` ({count}). You need to adjust either "
            f"`steps_per_execution` in `compile()`, which the number of steps of an epoch limits, or "
            f"`gradient_accumulation_steps_per_replica` in `{method}()`."
        )
    return count or 1


def _joined(*arrays: Any) -> Any:
    """The predictions of [steps, replicas, batch, ...] one after the other."""
    rows = [array.reshape(-1, *array.shape[3:]) if array.ndim > 2 else array.reshape(-1) for array in arrays]
    return ops.convert_to_tensor(np.concatenate(rows) if len(rows) > 1 else rows[0])


def _reduced(array: Any, method: ReplicatedMetricReductionMethod) -> Any:
    """Combine a metric of several replicas."""
    kinds: dict[ReplicatedMetricReductionMethod, Callable[[], Any]] = {
        ReplicatedMetricReductionMethod.NONE: lambda: array[-1],
        ReplicatedMetricReductionMethod.LIST: lambda: array if len(array) > 1 else array[0],
        ReplicatedMetricReductionMethod.SUM: lambda: sum_of(array, (0,)),
        ReplicatedMetricReductionMethod.MEAN: lambda: mean_of(array, (0,)),
    }
    return ops.convert_to_tensor(kinds[method]())


class ElementGroup(NamedTuple):
    """Consecutive elements of one ``spec``: ``steps`` of them for each replica."""

    spec: Any
    steps: int
    elements: Iterator[Any]


def groups_of(iterator: Any, steps: int, replicas: int) -> list[ElementGroup]:
    """Divide an execution of ``steps`` into groups of elements of the same shape.

    Elements of fixed sizes are taken from the iterator one by one while the program runs; others are all taken
    before, as the last one may be smaller. Raise OutOfRangeError if there is none.
    """
    spec = iterator.element_spec
    _check(spec)
    if all(leaf.shape.is_fully_defined() for leaf in nest.flatten(spec)):
        return [ElementGroup(spec, steps, iterator)]
    taken: list[Any] = []
    for _ in range(steps * replicas):
        try:
            with uninterrupted():
                taken.append(next(iterator))
        except (StopIteration, errors.OutOfRangeError):
            break
    if not taken:
        raise errors.OutOfRangeError(None, None, "The data set has no more elements")
    groups = [list(elements) for _, elements in groupby(taken, key=_shapes)]
    return [_group(elements, replicas) for elements in groups if len(elements) >= replicas]


def _check(spec: Any) -> None:
    for leaf in nest.flatten(spec):
        if not isinstance(leaf, tensor_lib.TensorSpec):
            raise UnsupportedError(
                f"The data set has elements of {type(leaf).__name__}, which the IPU does not take; make them dense"
            )


def _shapes(element: Any) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in nest.flatten(element)]


def _group(elements: list[Any], replicas: int) -> ElementGroup:
    spec = nest.map_structure(lambda tensor: tensor_lib.TensorSpec(tensor.shape, tensor.dtype), elements[0])
    return ElementGroup(spec, len(elements) // replicas, iter(elements))
