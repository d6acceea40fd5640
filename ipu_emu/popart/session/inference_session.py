"""InferenceSession: runs the forward part of a model."""

from __future__ import annotations

from ipu_emu.onnx.files import Source
from ipu_emu.popart.devices.device_manager import DeviceInfo
from ipu_emu.popart.options.dataflow import DataFlow
from ipu_emu.popart.options.input_settings import InputShapeInfo
from ipu_emu.popart.session.session import Session
from ipu_emu.session.options.patterns import Patterns
from ipu_emu.session.options.session_options import SessionOptions


class InferenceSession(Session):
    """Runs the forward part of a model."""

    def __init__(
        self,
        fnModel: Source,
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "inference",
    ) -> None:
        super().__init__(fnModel, dataFlow, deviceInfo, inputShapeInfo, userOptions, name, patterns=patterns)
