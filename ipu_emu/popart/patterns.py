"""Patterns and InputShapeInfo: accepted and kept; patterns never change results beyond rounding."""

from __future__ import annotations

from ipu_emu.popart.enums import PatternsLevel
from ipu_emu.popart.tensorinfo import TensorInfo

__all__ = ["InputShapeInfo", "Patterns"]


class Patterns:
    """``Patterns(PatternsLevel)``; patterns by name, on or off."""

    def __init__(self, level: PatternsLevel = PatternsLevel.Default) -> None:
        self.level = level
        self.enabled: dict[str, bool] = {}

    def enablePattern(self, name: str, enable: bool) -> Patterns:
        self.enabled[name] = enable
        return self

    def isPatternEnabled(self, name: str) -> bool:
        return self.enabled.get(name, self.level is not PatternsLevel.NoPatterns)


class InputShapeInfo:
    """Shapes of inputs that a model leaves open."""

    def __init__(self) -> None:
        self.infos: dict[str, TensorInfo] = {}

    def add(self, id: str, info: TensorInfo) -> None:
        self.infos[id] = info

    def has(self, id: str) -> bool:
        return id in self.infos

    def get(self, id: str) -> TensorInfo:
        return self.infos[id]
