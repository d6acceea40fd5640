"""TrainingSession: runs forward, backward and weight update of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np

from ipu_emu.compiler.options import TrainingOptions
from ipu_emu.compiler.pipeline import lowered
from ipu_emu.engine import Engine
from ipu_emu.errors import EmulatorError, PoplarRuntimeError
from ipu_emu.graph import Role
from ipu_emu.onnx.files import Source
from ipu_emu.popart.devices.device_manager import DeviceInfo
from ipu_emu.popart.optimisers.optimiser import Optimizer, check_replacement, checked_optimiser
from ipu_emu.popart.options.dataflow import DataFlow
from ipu_emu.popart.options.input_settings import InputShapeInfo
from ipu_emu.popart.session.session import Session
from ipu_emu.session.loaded_program import update_scalars
from ipu_emu.session.options.compile_options import loss_scaler
from ipu_emu.session.options.patterns import Patterns
from ipu_emu.session.options.session_options import SessionOptions

#: The name of the program that runs only the forward pass.
_FORWARD_ONLY = "forwardOnly"


class TrainingSession(Session):
    """Runs forward, backward and weight update."""

    def __init__(
        self,
        fnModel: Source,
        dataFlow: DataFlow,
        loss: str,
        optimizer: Optimizer,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "training",
    ) -> None:
        self._loss = loss
        self._optimiser = copy(checked_optimiser(optimizer))
        super().__init__(
            fnModel, dataFlow, deviceInfo, inputShapeInfo, userOptions, name, self._training_options, patterns
        )
        self._forward_only = ForwardProgram(self._load_forward)

    def _training_options(self, options: SessionOptions) -> TrainingOptions:
        held = bool(options.ensureFp32LossScaleTensor)
        return TrainingOptions(self._loss, self._optimiser.plan, loss_scaler(options), options.trained(), held)

    @contextmanager
    def _engine_for(self, handle: str, engine: Engine) -> Iterator[Engine]:
        if handle != _FORWARD_ONLY:
            yield engine
            return
        if not self._options.createImplicitPipeliningFwdOnlyProgram:
            raise EmulatorError(
                f"There is no program '{_FORWARD_ONLY}'; set the session option "
                "createImplicitPipeliningFwdOnlyProgram"
            )
        with self._forward_only.with_values_of(engine) as forward:
            yield forward

    def _load_forward(self) -> Engine:
        return self._on_device.engine_of(lowered(self._compilation.final_step.forward_only))

    def close(self) -> None:
        """Disconnect from the collectives and release the device. An extension of PopART."""
        self._forward_only.close()
        super().close()

    def updateOptimizerFromHost(self, optimizer: Optimizer) -> None:
        """Use the values of ``optimizer`` from the next run on; raise EmulatorError if a constant value differs."""
        check_replacement(self._optimiser, checked_optimiser(optimizer))
        self._optimiser = copy(optimizer)
        compilation = self._compilation
        loss = compilation.model.tensor(self._loss).dtype
        for id, scalar in update_scalars(compilation.step, optimizer.plan, loss).items():
            if compilation.graph.tensors[id].role is Role.SCALAR:
                self._on_device.write_scalar(id, scalar.value)

    def connectStreamToCallback(self, streamHandle: str, callback: Callable[[Any], object], index: int = 0) -> None:
        """Refuse the callback: a model has no streams but its inputs and anchors, which a StepIO serves."""
        del callback, index
        self._prepared_for("connectStreamToCallback")
        raise PoplarRuntimeError(
            f"There is no stream '{streamHandle}': only ops in C++ have streams of their own, and these cannot be "
            "loaded. Use PyStepIOCallback for inputs and anchors"
        )


class ForwardProgram:
    """The forward pass as a second program with its own memory, which ``make`` creates at its first use.

    Running statistics, which the forward pass changes, are copied back after each step.
    """

    def __init__(self, make: Callable[[], Engine]) -> None:
        self._make = make
        self._engine: Engine | None = None

    @contextmanager
    def with_values_of(self, trained: Engine) -> Iterator[Engine]:
        """Yield the engine of the forward pass with the variables of ``trained``; copy them back afterwards."""
        self._engine = self._engine or self._make()
        self._engine.steps, self._engine.seed = trained.steps, trained.seed
        _copy(trained, self._engine)
        yield self._engine
        _copy(self._engine, trained)

    def close(self) -> None:
        """End the threads of the engine."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def _copy(source: Engine, target: Engine) -> None:
    """Copy the variables that both engines have."""
    known = source.executable.plan.placements
    for id, placement in target.executable.plan.placements.items():
        if id in known and placement.tensor.role.is_variable:
            for replica in range(source.replicas.local):
                np.copyto(target.view(id, replica), source.view(id, replica))
