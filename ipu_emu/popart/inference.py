"""InferenceSession: runs the forward part of a model."""

from __future__ import annotations

from ipu_emu.graph import Graph
from ipu_emu.popart.compilation import Model
from ipu_emu.popart.dataflow import DataFlow
from ipu_emu.popart.devices import DeviceInfo
from ipu_emu.popart.options import SessionOptions
from ipu_emu.popart.patterns import InputShapeInfo, Patterns
from ipu_emu.popart.session import Session
from ipu_emu.transforms.training import Gradient, inference_graph

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
