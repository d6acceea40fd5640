"""DataFlow: the batches per step, and which values of which tensors the host receives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from operator import index
from typing import Any

from ipu_emu.errors import ArgumentTypeError, EmulatorError
from ipu_emu.onnx.properties import overlap_of
from ipu_emu.popart.options.input_settings import one_of_kind
from ipu_emu.popart.types.enums import AnchorReturnTypeId, ExchangeStrategy
from ipu_emu.program.anchors import Anchor, Return
from ipu_emu.session.options.option_enums import TileSet

_OPTIONS = ("returnPeriod", "tileSet", "exchangeStrategy")
_IDS = {member.name.upper(): member for member in AnchorReturnTypeId}


class AnchorReturnType:
    """``AnchorReturnType("Final" | "EveryN" | "All" | "Sum"[, period][, TileSet, ExchangeStrategy])``."""

    def __init__(self, anchorTypeString: str, *options: int | TileSet | ExchangeStrategy, **named: Any) -> None:
        return_id = _IDS.get(anchorTypeString.upper())
        if return_id is None:
            raise EmulatorError(f"Invalid anchor return type ID supplied: {anchorTypeString}")
        unknown = sorted(set(named) - set(_OPTIONS))
        if unknown:
            raise TypeError(f"AnchorReturnType() has no parameter {unknown[0]!r}; it has {', '.join(_OPTIONS)}")
        settings = [*options, *named.values()]
        self._id = return_id
        self._tiles = one_of_kind(settings, TileSet, TileSet.Compute)
        self._exchange = one_of_kind(settings, ExchangeStrategy, ExchangeStrategy.JustInTime)
        self._period = self._checked([index(option) for option in settings if isinstance(option, Integral)])

    def _checked(self, periods: list[int]) -> int:
        if self._id is not AnchorReturnTypeId.EveryN:
            if periods:
                raise EmulatorError("A return period should not be supplied for this anchor return type")
            return 1
        if not periods:
            raise EmulatorError("Must specify return period with option 'EVERYN'")
        if periods[0] <= 0:
            raise EmulatorError("Anchor return period must be greater than zero")
        return periods[0]

    def id(self) -> AnchorReturnTypeId:
        """Which micro-batches are returned."""
        return self._id

    def rp(self) -> int:
        """The return period; an error unless the type is EveryN."""
        if self._id is not AnchorReturnTypeId.EveryN:
            raise EmulatorError("A return period should not be supplied for this anchor return type")
        return self._period

    def tileSet(self) -> TileSet:
        """The tiles that send the anchor."""
        return self._tiles

    def exchangeStrategy(self) -> ExchangeStrategy:
        """When the anchor is sent to the host."""
        return self._exchange

    def anchor(self, tensor: str) -> Anchor:
        """This return type for one tensor."""
        overlap = overlap_of(self._tiles.name, self._exchange.name)
        return Anchor(tensor, Return(self._id.name), self._period, overlap)

    def __repr__(self) -> str:
        return f"AnchorReturnType({self._id.name!r})"


class DataFlow:
    """``DataFlow(bps, {id: AnchorReturnType})`` or ``DataFlow(bps, [ids][, AnchorReturnType("All")])``."""

    def __init__(
        self,
        batchesPerStep: int = 0,
        anchorTensors: Mapping[str, AnchorReturnType] | Sequence[str] = (),
        anchorReturnType: AnchorReturnType | None = None,
        *,
        anchorIds: Sequence[str] = (),
    ) -> None:
        default = anchorReturnType or AnchorReturnType("All")
        if not isinstance(anchorTensors, Mapping):
            anchorTensors = dict.fromkeys([*_ids(anchorTensors), *_ids(anchorIds)], default)
        self._anchors = dict(anchorTensors)
        for id, returns in self._anchors.items():
            if not isinstance(returns, AnchorReturnType):
                raise TypeError(f"Anchor '{id}' is mapped to {returns!r}; give an AnchorReturnType")
        self.setBatchesPerStep(batchesPerStep)
        self._check_periods()

    def setBatchesPerStep(self, batchesPerStep: int) -> None:
        """Change the number of batches; return periods are checked later, when the anchors are created."""
        if batchesPerStep <= 0:
            raise EmulatorError("'Batches per step' must be greater than zero")
        self._batches = index(batchesPerStep)

    def _check_periods(self) -> None:
        for returns in self._anchors.values():
            if returns.id() is AnchorReturnTypeId.EveryN:
                if returns.rp() > self._batches:
                    raise EmulatorError("Return period must be <= to the number of batches per step")
                if self._batches % returns.rp():
                    raise EmulatorError("Return period must be a factor of the number of batches per step")

    def batchesPerStep(self) -> int:
        """Number of batches in one ``session.run``."""
        return self._batches

    def anchors(self) -> list[str]:
        """Ids of the anchored tensors."""
        return list(self._anchors)

    def isAnchored(self, id: str) -> bool:
        """Whether the host receives a tensor."""
        return id in self._anchors

    def nAnchors(self) -> int:
        """Number of anchors."""
        return len(self._anchors)

    def art(self, id: str) -> AnchorReturnType:
        """How the tensor ``id`` is returned."""
        try:
            return self._anchors[id]
        except KeyError:
            raise EmulatorError(f"Tensor '{id}' is not anchored") from None


def _ids(ids: Iterable[str]) -> list[str]:
    """The ids as a list; raise ArgumentTypeError for a string, which would become a list of characters."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise ArgumentTypeError(f"Anchors are given as {ids!r}; give a list of tensor ids, such as [{ids!r}]")
    return list(ids)
