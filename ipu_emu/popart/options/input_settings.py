"""Input settings: how an input is streamed, and the arguments of addInputTensor in each of PopART's forms."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ipu_emu.onnx.properties import EXCHANGE_STRATEGY, STREAM_MODE, TILE_SET
from ipu_emu.popart.types.enums import ExchangeStrategy, ReplicatedStreamMode
from ipu_emu.popart.types.tensor_info import TensorInfo
from ipu_emu.session.options.option_enums import TileSet

_KEYS = {TileSet: TILE_SET, ExchangeStrategy: EXCHANGE_STRATEGY, ReplicatedStreamMode: STREAM_MODE}
Kind = TypeVar("Kind")
Default = TypeVar("Default")

_NAMES = ("tensorInfo", "dataType", "shape", "settings", "debugContext", "debugPrefix")


class InputSettings:
    """How an input is streamed: ``()``, ``(mode)``, ``(TileSet, ExchangeStrategy)`` or all three.

    The mode says whether each replica gets its own input or all get the same. The strategy says when I/O tiles
    load the input, which has no numeric effect.
    """

    def __init__(self, *values: Any, **named: Any) -> None:
        settings = [*values, *named.values()]
        self._tiles = one_of_kind(settings, TileSet, TileSet.Compute)
        self._exchange = one_of_kind(settings, ExchangeStrategy, ExchangeStrategy.JustInTime)
        self._mode = one_of_kind(settings, ReplicatedStreamMode, ReplicatedStreamMode.Replicate)

    def tileSet(self) -> TileSet:
        """The tiles that receive the input."""
        return self._tiles

    def exchangeStrategy(self) -> ExchangeStrategy:
        """When the input is received."""
        return self._exchange

    def replicatedStreamMode(self) -> ReplicatedStreamMode:
        """Whether each replica gets its own input."""
        return self._mode

    def setTileSet(self, tiles: TileSet) -> None:
        """Choose the tiles that receive the input."""
        self._tiles = tiles

    def setExchangeStrategy(self, exchange: ExchangeStrategy) -> None:
        """Choose when the input is received."""
        self._exchange = exchange

    def setReplicatedStreamMode(self, mode: ReplicatedStreamMode) -> None:
        """Choose whether each replica gets its own input."""
        self._mode = mode

    def metadata(self, id: str) -> dict[str, str]:
        """The metadata of the input ``id`` in a model, without default settings."""
        values = (self._tiles, self._exchange, self._mode)
        return {_KEYS[type(value)] + id: value.name for value in values if int(value)}


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


@dataclass(frozen=True)
class InputArguments:
    """An input that is to be added."""

    info: TensorInfo
    settings: InputSettings
    name: str

    @classmethod
    def of(cls, values: Sequence[Any], named: Mapping[str, Any]) -> InputArguments:
        """Read ``(TensorInfo[, settings][, name])`` or ``(dtype, shape[, settings][, name])``, also by keyword."""
        unknown = sorted(set(named) - set(_NAMES))
        if unknown:
            raise TypeError(f"addInputTensor() has no parameter {unknown[0]!r}; it has {', '.join(_NAMES)}")
        arguments = [*values, *(named[name] for name in _NAMES if name in named)]
        info = one_of_kind(arguments, TensorInfo, None)
        settings = one_of_kind(arguments, InputSettings, None)
        if info is not None:
            return cls(info, settings or InputSettings(), one_of_kind(arguments, str, ""))
        if len(arguments) < 2:
            raise TypeError("addInputTensor() takes a TensorInfo, or an element type and a shape")
        if settings is not None:
            warnings.warn(
                "InputSettings beside an element type and a shape have no effect, as in PopART; give a TensorInfo",
                stacklevel=3,
            )
        return cls(TensorInfo(arguments[0], arguments[1]), InputSettings(), one_of_kind(arguments[2:], str, ""))


def one_of_kind(values: Sequence[Any], kind: type[Kind], default: Default) -> Kind | Default:
    """The first of ``values`` that is a ``kind``."""
    return next((value for value in values if isinstance(value, kind)), default)
