"""TrainingSession: runs forward, backward and weight update of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np

from ipu_emu.compiler.optimisers.automatic_loss_scaling import LossScaler, Tracking
from ipu_emu.compiler.optimisers.gradient_clipping import CLIP_SCALE, clip_scale
from ipu_emu.compiler.options import TrainingOptions
from ipu_emu.engine import Engine
from ipu_emu.engine.forward_program import ForwardProgram
from ipu_emu.errors import EmulatorError, PoplarRuntimeError
from ipu_emu.graph import Role
from ipu_emu.onnx.files import Source
from ipu_emu.popart.devices.device_manager import DeviceInfo
from ipu_emu.popart.optimisers.optimizer import Optimizer, check_replacement, checked_optimizer
from ipu_emu.popart.options.dataflow import DataFlow
from ipu_emu.popart.options.patterns import InputShapeInfo, Patterns
from ipu_emu.popart.options.session_options import SessionOptions
from ipu_emu.popart.session.session import Session
from ipu_emu.popart.types.tuning_enums import GradientTensorTrackingMethod

__all__ = ["TrainingSession"]

#: The name of the program that runs only the forward pass.
_FORWARD_ONLY = "forwardOnly"
_TRACKING = {
    GradientTensorTrackingMethod.AllNonViewChangingGradientTensors: Tracking.ALL,
    GradientTensorTrackingMethod.ConvAndMatmulGradients: Tracking.PRODUCTS,
    GradientTensorTrackingMethod.GradientsOfUserSpecifiedTensors: Tracking.NAMED,
}


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
        self._optimizer = copy(checked_optimizer(optimizer))
        super().__init__(
            fnModel, dataFlow, deviceInfo, inputShapeInfo, userOptions, name, self._training_options, patterns
        )
        self._forward_only = ForwardProgram(self._load_forward)

    def _training_options(self, options: SessionOptions) -> TrainingOptions:
        settings, scaler = options.automaticLossScalingSettings, None
        if settings.enabled:
            scaler = LossScaler(
                settings.binEdgeLocation,
                settings.thresholdUpperCountProportion,
                settings.updatePeriod,
                _TRACKING[settings.gradientTensorTrackingMethod],
                tuple(settings.toTrackTensors or ()),
            )
        held = bool(options.ensureFp32LossScaleTensor)
        return TrainingOptions(self._loss, self._optimizer.plan, scaler, options.trained(), held)

    @contextmanager
    def _program(self, handle: str, engine: Engine) -> Iterator[Engine]:
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
        return self._engine_of(self._compilation.lowered(forward_only=True), self._loaded.replicas)

    def close(self) -> None:
        """Disconnect from the collectives and release the device. An extension of PopART."""
        self._forward_only.close()
        super().close()

    def updateOptimizerFromHost(self, optimizer: Optimizer) -> None:
        """Use the values of ``optimizer`` from the next run on; raise EmulatorError if a constant value differs."""
        check_replacement(self._optimizer, checked_optimizer(optimizer))
        self._optimizer = copy(optimizer)
        for id, value in self._scalars(optimizer).items():
            if self._compilation.graph.tensors[id].role is Role.SCALAR:
                self._loaded.write(id, np.array(value, np.float32))

    def connectStreamToCallback(self, streamHandle: str, callback: Callable[[Any], object], index: int = 0) -> None:
        """Refuse the callback: a model has no streams but its inputs and anchors, which a StepIO serves."""
        del callback, index
        self._prepared_for("connectStreamToCallback")
        raise PoplarRuntimeError(
            f"There is no stream '{streamHandle}': only ops in C++ have streams of their own, and these cannot be "
            "loaded. Use PyStepIOCallback for inputs and anchors"
        )

    def _scalars(self, optimizer: Optimizer) -> Mapping[str, float]:
        """Values of the scalar tensors of the optimiser by id."""
        plan, model, graph = optimizer.plan, self._compilation.model, self._compilation.graph
        divisor = self._compilation.step.options.remaining_divisor
        values = {plan.loss_scaling_id(model.tensor(self._loss).dtype): plan.loss_scaling.value}
        if plan.clips:
            values[CLIP_SCALE] = clip_scale(plan, divisor=divisor).value
        for gradient in (g for g in self._compilation.gradients if g.weight):
            scalars = plan.scalars(gradient.weight, divisor=divisor)
            values |= {id: hyper.value for id, hyper in scalars.items()}
        return {id: value for id, value in values.items() if id in graph.tensors}
