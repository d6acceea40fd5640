"""TrainingSession: runs forward, backward and weight update of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy

import numpy as np

from ipu_emu.compiler.lowering.step_program import lower
from ipu_emu.compiler.optimisers.automatic_loss_scaling import LossScaler, check_loss_scaling
from ipu_emu.compiler.optimisers.gradient_clipping import CLIP_SCALE, clip_scale
from ipu_emu.compiler.step_graph import Gradient, remaining_divisor, training_graph
from ipu_emu.engine import Engine
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Role
from ipu_emu.popart.devices.device_manager import DeviceInfo
from ipu_emu.popart.optimisers.optimizer import Optimizer, check_replacement, checked_optimizer
from ipu_emu.popart.options.dataflow import DataFlow
from ipu_emu.popart.options.patterns import InputShapeInfo, Patterns
from ipu_emu.popart.options.session_options import SessionOptions
from ipu_emu.popart.session.compilation import Model
from ipu_emu.popart.session.forward_only import FORWARD_ONLY, ForwardOnly, forward_anchors, forward_graph
from ipu_emu.popart.session.session import Session
from ipu_emu.program.executable import Executable

__all__ = ["TrainingSession"]


class TrainingSession(Session):
    """Runs forward, backward and weight update."""

    _training = True

    def __init__(
        self,
        fnModel: Model,
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
        super().__init__(fnModel, dataFlow, deviceInfo, inputShapeInfo, userOptions, name)
        self._forward_only = ForwardOnly(self._load_forward)

    def _transform(self) -> tuple[Graph, list[Gradient]]:
        locations = self._locations()
        return training_graph(
            self._model,
            loss=self._loss,
            optimizer=self._optimizer.plan,
            anchors=self.dataFlow.anchors(),
            accumulation=self.accumulationFactor,
            replicas=self._options.getGlobalReplicationFactor(),
            reduction=self._options.reduction(),
            scaler=self._scaler(),
            stochastic_rounding=bool(self._options.enableStochasticRounding),
            divide=locations.divide,
            off_chip=locations.is_off_chip,
        )

    def _scaler(self) -> LossScaler | None:
        settings = self._options.automaticLossScalingSettings
        if not settings.enabled:
            return None
        check_loss_scaling(self._optimizer.plan.loss_scaling)
        return LossScaler(settings.binEdgeLocation, settings.thresholdUpperCountProportion, settings.updatePeriod)

    @contextmanager
    def _program(self, handle: str, engine: Engine) -> Iterator[Engine]:
        if handle != FORWARD_ONLY:
            yield engine
            return
        if not self._options.createImplicitPipeliningFwdOnlyProgram:
            raise EmulatorError(
                f"There is no program '{FORWARD_ONLY}'; set the session option createImplicitPipeliningFwdOnlyProgram"
            )
        with self._forward_only.with_values_of(engine) as forward:
            yield forward

    def _second_program(self) -> Executable | None:
        if not self._options.createImplicitPipeliningFwdOnlyProgram:
            return None
        anchors = forward_anchors(self._graph, self._anchors)
        arguments = self._arguments() | {"anchors": anchors, "gradients": ()}
        return lower(forward_graph(self._graph, anchors), **arguments)

    def _load_forward(self) -> Engine:
        executable = self._second_program()
        assert executable is not None
        return self._engine_of(executable, self._loaded.replicas)

    def close(self) -> None:
        """Leave the collectives and free the device. An extension of PopART."""
        self._forward_only.close()
        super().close()

    def updateOptimizerFromHost(self, optimizer: Optimizer) -> None:
        """Use the values of ``optimizer`` from now on; only those that are not constant may differ."""
        check_replacement(self._optimizer, checked_optimizer(optimizer))
        self._optimizer = copy(optimizer)
        for id, value in self._scalars(optimizer).items():
            if self._graph.tensors[id].role is Role.SCALAR:
                self._loaded.write(id, np.array(value, np.float32))

    def _scalars(self, optimizer: Optimizer) -> Mapping[str, float]:
        """Values of the scalar tensors of the optimiser by id."""
        plan = optimizer.plan
        divisor = remaining_divisor(
            self._options.reduction(),
            accumulation=self.accumulationFactor,
            replicas=self._options.getGlobalReplicationFactor(),
        )
        values = {plan.loss_scaling_id(self._model.tensor(self._loss).dtype): plan.loss_scaling.value}
        if plan.clips:
            values[CLIP_SCALE] = clip_scale(plan, divisor=divisor).value
        for gradient in (g for g in self._gradients if g.weight):
            scalars = plan.scalars(gradient.weight, divisor=divisor)
            values |= {id: hyper.value for id, hyper in scalars.items()}
        return {id: value for id, value in values.items() if id in self._graph.tensors}
