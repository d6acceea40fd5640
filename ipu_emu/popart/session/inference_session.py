"""InferenceSession: runs the forward part of a model."""

from __future__ import annotations

from ipu_emu.compiler.step_graph import Gradient, inference_graph
from ipu_emu.graph import Graph
from ipu_emu.popart.devices.device_manager import DeviceInfo
from ipu_emu.popart.options.dataflow import DataFlow
from ipu_emu.popart.options.patterns import InputShapeInfo, Patterns
from ipu_emu.popart.options.session_options import SessionOptions
from ipu_emu.popart.session.compilation import Model
from ipu_emu.popart.session.session import Session

__all__ = ["InferenceSession"]


class InferenceSession(Session):
    """Runs the forward part of a model."""

    def __init__(
        self,
        fnModel: Model,
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "inference",
    ) -> None:
        super().__init__(fnModel, dataFlow, deviceInfo, inputShapeInfo, userOptions, name)

    def _transform(self) -> tuple[Graph, list[Gradient]]:
        return inference_graph(
            self._model,
            anchors=self.dataFlow.anchors(),
            stochastic_rounding=bool(self._options.enableStochasticRounding),
            off_chip=self._locations().is_off_chip,
        ), []
