"""Step function: what takes the place of a model's ``train_function``, ``test_function`` and ``predict_function``."""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow.python.framework import ops
from tensorflow.python.util import nest

from ipu_emu.tensorflow.keras.elements import Run, runs_of
from ipu_emu.tensorflow.keras.extension import Extension
from ipu_emu.tensorflow.keras.step_program import StepProgram
from ipu_emu.tensorflow.system import share_of

__all__ = ["StepFunction"]


class StepFunction:
    """Runs an execution of a model on elements of an iterator; programs are kept by steps and shapes."""

    def __init__(self, model: Any, extension: Extension, kind: str) -> None:
        self._model, self._extension, self._kind = model, extension, kind
        self._programs: dict[Any, StepProgram] = {}

    def __call__(self, iterator: Any) -> Any:
        """Run ``steps_per_execution`` steps; return the logs of the last one, or all predictions."""
        steps = int(self._model._steps_per_execution.numpy())
        made = [self._run(run) for run in runs_of(iterator, steps, self._replicas)]
        if self._kind == "predict":
            return nest.map_structure(_joined, *made)
        return nest.map_structure(lambda array: ops.convert_to_tensor(array[-1]), made[-1])

    @property
    def _replicas(self) -> int:
        return share_of(self._extension.device, 1).local

    def _run(self, run: Run) -> Any:
        key = (run.steps, tuple((tuple(one.shape), one.dtype) for one in nest.flatten(run.spec)))
        if key not in self._programs:
            self._programs[key] = StepProgram(self._model, self._kind, run.spec, run.steps, self._extension.device)
        return self._programs[key].run(run.elements)


def _joined(*arrays: Any) -> Any:
    """The predictions of [steps, replicas, batch, ...] one after the other."""
    rows = [array.reshape(-1, *array.shape[3:]) if array.ndim > 2 else array.reshape(-1) for array in arrays]
    return ops.convert_to_tensor(np.concatenate(rows) if len(rows) > 1 else rows[0])
