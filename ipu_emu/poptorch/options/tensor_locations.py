"""Tensor locations: which tensors are in Streaming Memory or sharded over replicas."""

from __future__ import annotations

from typing import Any

from ipu_emu.poptorch.options.option_group import OptionGroup, checked, of_kind
from ipu_emu.session.options import tensor_location as session_locations
from ipu_emu.session.options.option_enums import ReplicatedTensorSharding, TensorStorage

__all__ = ["TensorLocationSettings", "_TensorLocationOptions"]


class TensorLocationSettings(OptionGroup):
    """The location of one kind of tensors."""

    without_effect = frozenset(["useIOTilesToLoad", "useIOTilesToStore"])

    def __init__(self, **values: Any) -> None:
        super().__init__(
            minElementsForOffChip=None,
            minElementsForReplicatedTensorSharding=None,
            onChip=None,
            useReplicatedTensorSharding=None,
            useIOTilesToLoad=None,
            useIOTilesToStore=None,
        )
        self.createOrSet(**values)

    def minElementsForOffChip(self, min_elements: int) -> TensorLocationSettings:
        """Keep smaller tensors on the IPU."""
        return self.set(minElementsForOffChip=checked("minElementsForOffChip", min_elements, int))

    def minElementsForReplicatedTensorSharding(self, min_elements: int) -> TensorLocationSettings:
        """Keep smaller tensors whole."""
        name = "minElementsForReplicatedTensorSharding"
        return self.set(**{name: checked(name, min_elements, int)})

    def useOnChipStorage(self, use: bool | None = True) -> TensorLocationSettings:
        """Keep the tensors on the IPU, or (False) in Streaming Memory."""
        return self.set(onChip=None if use is None else checked("useOnChipStorage", use, bool))

    def useReplicatedTensorSharding(self, use: bool = True) -> TensorLocationSettings:
        """Shard the tensors over replicas."""
        return self.set(useReplicatedTensorSharding=checked("useReplicatedTensorSharding", use, bool))

    def useIOTilesToLoad(self, use: bool = True) -> TensorLocationSettings:
        """Accepted; it concerns the tiles of an IPU alone."""
        return self.set(useIOTilesToLoad=checked("useIOTilesToLoad", use, bool))

    def useIOTilesToStore(self, use: bool = True) -> TensorLocationSettings:
        """Accepted; it concerns the tiles of an IPU alone."""
        return self.set(useIOTilesToStore=checked("useIOTilesToStore", use, bool))

    def in_session(self) -> session_locations.TensorLocationSettings:
        """Return these settings as those of a session."""
        values, settings = self._values, session_locations.TensorLocationSettings()
        if values["onChip"] is False:
            settings.location.storage = TensorStorage.OffChip
        if values["useReplicatedTensorSharding"]:
            settings.location.replicatedTensorSharding = ReplicatedTensorSharding.On
        for name in ("minElementsForOffChip", "minElementsForReplicatedTensorSharding"):
            if values[name] is not None:
                setattr(settings, name, values[name])
        return settings


class _TensorLocationOptions(OptionGroup):
    """``options.TensorLocations``."""

    def __init__(self) -> None:
        super().__init__(num_io_tiles=0, **dict.fromkeys(_KINDS.values(), None))

    def numIOTiles(self, num_tiles: int) -> _TensorLocationOptions:
        """Reserve tiles for host I/O, which overlapped I/O needs."""
        if not isinstance(num_tiles, int) or num_tiles % 2 or not 32 <= num_tiles <= 192:
            raise AssertionError("numIOTiles must be an even number between 32 and 192.")
        return self.set(num_io_tiles=num_tiles)

    def _set(self, key: str, location: TensorLocationSettings) -> _TensorLocationOptions:
        return self.set(**{key: of_kind(location, TensorLocationSettings)})

    def setActivationLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """Place activations."""
        return self._set("location_activation", location)

    def setWeightLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """Place weights."""
        return self._set("location_weight", location)

    def setOptimizerLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """Place the states of the optimiser."""
        return self._set("location_optimizer", location)

    def setAccumulatorLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        """Place the accumulators of gradients."""
        return self._set("location_accumulator", location)

    def settings(self) -> dict[str, session_locations.TensorLocationSettings]:
        """Return the settings that were made, by the name of the session option."""
        chosen = {name: self._values[key] for name, key in _KINDS.items()}
        return {name: location.in_session() for name, location in chosen.items() if location is not None}


_KINDS = {
    "weightTensorLocationSettings": "location_weight",
    "optimizerStateTensorLocationSettings": "location_optimizer",
    "accumulatorTensorLocationSettings": "location_accumulator",
    "activationTensorLocationSettings": "location_activation",
}
