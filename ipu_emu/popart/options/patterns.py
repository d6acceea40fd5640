"""Patterns and InputShapeInfo; patterns are accepted but never change results beyond rounding."""

from __future__ import annotations

from collections.abc import Sequence

from ipu_emu.popart.types.enums import PatternsLevel
from ipu_emu.popart.types.tensor_info import TensorInfo

__all__ = ["InputShapeInfo", "Patterns"]


#: Levels at which optional patterns are off.
_WITHOUT_OPTIONAL = (PatternsLevel.Minimal, PatternsLevel.NoPatterns)


class Patterns:
    """``Patterns(PatternsLevel)`` or ``Patterns([names])``; patterns by name, also as attributes such as ``InPlace``.

    With a list of names those are on and all others off.
    """

    level: PatternsLevel
    enabled: dict[str, bool]
    runtime_asserts: bool

    def __init__(self, patterns: PatternsLevel | Sequence[str] = PatternsLevel.Default) -> None:
        level = patterns if isinstance(patterns, PatternsLevel) else PatternsLevel.NoPatterns
        names = () if isinstance(patterns, PatternsLevel) else patterns
        self.__dict__.update(level=level, enabled=dict.fromkeys(names, True), runtime_asserts=True)

    @classmethod
    def create(cls, patterns: Sequence[str]) -> Patterns:
        """Patterns with the named ones enabled."""
        return cls(patterns)

    def __getattr__(self, name: str) -> bool:
        _check_name(name)
        return self.isPatternEnabled(name)

    def __setattr__(self, name: str, enable: bool) -> None:
        _check_name(name)
        self.enablePattern(name, enable)

    def enablePattern(self, name: str, enable: bool) -> Patterns:
        """Enable or disable a pattern by name."""
        self.enabled[name] = enable
        return self

    def isPatternEnabled(self, name: str) -> bool:
        """Say whether a pattern is enabled."""
        return self.enabled.get(name, self.level not in _WITHOUT_OPTIONAL)

    def enableRuntimeAsserts(self, enable: bool) -> Patterns:
        """Keep the setting; it has no effect here."""
        self.__dict__["runtime_asserts"] = enable
        return self

    def __repr__(self) -> str:
        return f"Patterns({self.level.name}, {self.enabled})"


def _check_name(name: str) -> None:
    if not name[:1].isupper():
        raise AttributeError(f"'Patterns' object has no attribute {name!r}; a pattern's name begins with a capital")


class InputShapeInfo:
    """Shapes of inputs that a model leaves open."""

    def __init__(self) -> None:
        self.infos: dict[str, TensorInfo] = {}

    def add(self, id: str, info: TensorInfo) -> None:
        """Add the element type and shape of an input."""
        self.infos[id] = info

    def has(self, id: str) -> bool:
        """Whether an input was added."""
        return id in self.infos

    def get(self, id: str) -> TensorInfo:
        """The element type and shape of an input."""
        return self.infos[id]

    def getAllTensorIds(self) -> list[str]:
        """Ids of the inputs that were added."""
        return list(self.infos)
