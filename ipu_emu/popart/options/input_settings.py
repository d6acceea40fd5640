"""Input settings: how an input is streamed, and the arguments of addInputTensor in each of PopART's forms."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, TypeVar

import onnx

from ipu_emu.errors import EmulatorError
from ipu_emu.popart.options.session_options import SessionOptions
from ipu_emu.popart.types.enums import ExchangeStrategy, ReplicatedStreamMode, TileSet
from ipu_emu.popart.types.tensor_info import TensorInfo
from ipu_emu.program.instructions import Overlap

__all__ = [
    "InputArguments",
    "InputSettings",
    "broadcast_inputs",
    "check_shapes",
    "io_inputs",
    "one_of_kind",
    "overlap_of",
    "overlapped_inputs",
    "staged_inputs",
]

#: With a tensor id behind it, the metadata key of a setting of an input.
_KEYS = {
    TileSet: "__input_tile_set/",
    ExchangeStrategy: "__input_exchange_strategy/",
    ReplicatedStreamMode: "__replicated_stream_mode/",
}
_OVERLAPS = {
    ExchangeStrategy.JustInTime: Overlap.NONE,
    ExchangeStrategy.OverlapInnerLoop: Overlap.INNER,
    ExchangeStrategy.OverlapLoops: Overlap.LOOPS,
    ExchangeStrategy.OverlapStep: Overlap.LOOPS,
}
Kind = TypeVar("Kind")
Default = TypeVar("Default")

_NAMES = ("tensorInfo", "dataType", "shape", "settings", "debugContext", "debugPrefix")


class InputSettings:
    """How an input is streamed: ``()``, ``(mode)``, ``(TileSet, ExchangeStrategy)`` or all three.

    The mode decides between a chunk for each replica and one for all of them. The strategy says when inputs of I/O
    tiles are loaded, which has no numeric effect.
    """

    def __init__(self, *values: Any, **named: Any) -> None:
        given = [*values, *named.values()]
        self._tiles = one_of_kind(given, TileSet, TileSet.Compute)
        self._exchange = one_of_kind(given, ExchangeStrategy, ExchangeStrategy.JustInTime)
        self._mode = one_of_kind(given, ReplicatedStreamMode, ReplicatedStreamMode.Replicate)

    def tileSet(self) -> TileSet:
        """The tiles that receive the input."""
        return self._tiles

    def exchangeStrategy(self) -> ExchangeStrategy:
        """When the input is received."""
        return self._exchange

    def replicatedStreamMode(self) -> ReplicatedStreamMode:
        """Whether each replica has an input of its own."""
        return self._mode

    def setTileSet(self, tiles: TileSet) -> None:
        """Choose the tiles that receive the input."""
        self._tiles = tiles

    def setExchangeStrategy(self, exchange: ExchangeStrategy) -> None:
        """Choose when the input is received."""
        self._exchange = exchange

    def setReplicatedStreamMode(self, mode: ReplicatedStreamMode) -> None:
        """Choose whether each replica has an input of its own."""
        self._mode = mode

    def metadata(self, id: str) -> dict[str, str]:
        """What a model says of the input ``id``; nothing of what is the default."""
        values = (self._tiles, self._exchange, self._mode)
        return {_KEYS[type(value)] + id: value.name for value in values if int(value)}


def check_shapes(model: onnx.ModelProto, known: Collection[str]) -> None:
    """Raise EmulatorError for inputs that the model leaves open and whose shapes are not ``known`` either."""
    closed = {*known, *(initializer.name for initializer in model.graph.initializer)}
    for info in model.graph.input:
        shape = info.type.tensor_type.shape
        sizes = [dimension.dim_value if dimension.HasField("dim_value") else None for dimension in shape.dim]
        if info.name not in closed and None in sizes:
            named = ", ".join(
                dimension.dim_param or "?" if size is None else str(size)
                for dimension, size in zip(shape.dim, sizes, strict=True)
            )
            raise EmulatorError(
                f"The model leaves the shape of input '{info.name}' open: [{named}]; give it in an InputShapeInfo"
            )


def broadcast_inputs(metadata: Mapping[str, str]) -> frozenset[str]:
    """Ids of the inputs of which one chunk serves all replicas."""
    key = _KEYS[ReplicatedStreamMode]
    return frozenset(
        name.removeprefix(key)
        for name, mode in metadata.items()
        if name.startswith(key) and mode == ReplicatedStreamMode.Broadcast.name
    )


def io_inputs(metadata: Mapping[str, str]) -> list[str]:
    """Ids of the inputs that I/O tiles take from the host."""
    key = _KEYS[TileSet]
    return [name.removeprefix(key) for name, kind in metadata.items() if name.startswith(key) and kind == "IO"]


def overlapped_inputs(metadata: Mapping[str, str]) -> dict[str, Overlap]:
    """The inputs that are not loaded just in time."""
    key = _KEYS[ExchangeStrategy]
    strategies = {name.removeprefix(key): kind for name, kind in metadata.items() if name.startswith(key)}
    found = {
        id: overlap_of(TileSet[metadata.get(_KEYS[TileSet] + id, "Compute")], ExchangeStrategy[kind])
        for id, kind in strategies.items()
    }
    return {id: overlap for id, overlap in found.items() if overlap is not Overlap.NONE}


def staged_inputs(ids: Iterable[str], options: SessionOptions, overlapped: Collection[str]) -> dict[str, int]:
    """Places in Streaming Memory of the inputs that the host buffers there; raise EmulatorError for no number.

    Pipelines use two in the manner of their schedule. Not for what I/O tiles take ``overlapped``.
    """
    depths = {id: options.bufferingDepthMap.get(id, options.defaultBufferingDepth) for id in ids}
    for id, depth in depths.items():
        if isinstance(depth, bool) or not isinstance(depth, Integral) or depth < 1:
            raise EmulatorError(f"The buffering depth of {id} is {depth!r}; give a number of micro-batches above 0")
    if not options.enablePrefetchDatastreams:
        return {}
    most = 2 if options.enablePipelining else max(depths.values(), default=1)
    return {id: int(min(depth, most)) for id, depth in depths.items() if depth > 1 and id not in overlapped}


def overlap_of(tiles: TileSet, strategy: ExchangeStrategy) -> Overlap:
    """Only I/O tiles exchange beside compute."""
    return _OVERLAPS[strategy] if tiles is TileSet.IO else Overlap.NONE


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
        given = [*values, *(named[name] for name in _NAMES if name in named)]
        info = one_of_kind(given, TensorInfo, None)
        settings = one_of_kind(given, InputSettings, None)
        if info is not None:
            return cls(info, settings or InputSettings(), one_of_kind(given, str, ""))
        if len(given) < 2:
            raise TypeError("addInputTensor() takes a TensorInfo, or an element type and a shape")
        if settings is not None:
            warnings.warn(
                "InputSettings beside an element type and a shape have no effect, as in PopART; give a TensorInfo",
                stacklevel=3,
            )
        return cls(TensorInfo(given[0], given[1]), InputSettings(), one_of_kind(given[2:], str, ""))


def one_of_kind(values: Sequence[Any], kind: type[Kind], default: Default) -> Kind | Default:
    """The first of ``values`` that is a ``kind``."""
    return next((value for value in values if isinstance(value, kind)), default)
