"""Patterns and InputShapeInfo: accepted and kept; patterns never change results beyond rounding."""

from __future__ import annotations

from ipu_emu.popart.enums import PatternsLevel
from ipu_emu.popart.tensorinfo import TensorInfo

__all__ = ["InputShapeInfo", "Patterns"]


class Patterns:
    """``Patterns(PatternsLevel)``; patterns by name, on or off, also as attributes such as ``InPlace``."""

    level: PatternsLevel
    enabled: dict[str, bool]

    def __init__(self, level: PatternsLevel = PatternsLevel.Default) -> None:
        self.__dict__.update(level=level, enabled={})

    def __getattr__(self, name: str) -> bool:
        _check_name(name)
        return self.isPatternEnabled(name)

    def __setattr__(self, name: str, enable: bool) -> None:
        _check_name(name)
        self.enablePattern(name, enable)

    def enablePattern(self, name: str, enable: bool) -> Patterns:
        self.enabled[name] = enable
        return self

    def isPatternEnabled(self, name: str) -> bool:
        return self.enabled.get(name, self.level is not PatternsLevel.NoPatterns)


def _check_name(name: str) -> None:
    if not name[:1].isupper():
        raise AttributeError(f"'Patterns' object has no attribute {name!r}; a pattern's name begins with a capital")


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
