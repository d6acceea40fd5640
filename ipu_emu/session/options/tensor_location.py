"""TensorLocation and CommGroup: where a tensor is stored, and between which replicas it is sharded."""

from __future__ import annotations

from typing import Any, ClassVar

from ipu_emu.session.options.option_enums import CommGroupType, ReplicatedTensorSharding, TensorStorage, TileSet
from ipu_emu.session.options.settings import Settings


class CommGroup(Settings):
    """A division of the replicas into groups: ``CommGroup(type=All, replicaGroupSize=0)``.

    Options:
        type: How replicas are divided.
        replicaGroupSize: Number of replicas in a group; 0 for All and Ungrouped.
    """

    defaults: ClassVar = {"type": CommGroupType.All, "replicaGroupSize": 0}


class TensorLocation(Settings):
    """``(storage[, sharding[, group]])`` or ``(storage, loadTileSet, storageTileSet, sharding[, group])``.

    Options:
        storage: In the memory of the IPU, or in Streaming Memory.
        replicatedTensorSharding: Whether each replica holds one shard only.
        shardingDomain: The replicas that share the tensor.
    """

    defaults: ClassVar = {
        "storage": TensorStorage.OnChip,
        "loadTileSet": TileSet.Compute,
        "storageTileSet": TileSet.Compute,
        "replicatedTensorSharding": ReplicatedTensorSharding.Off,
        "shardingDomain": CommGroup(),
    }
    without_effect: ClassVar = frozenset(["loadTileSet", "storageTileSet"])

    def __init__(self, *values: Any, **named: Any) -> None:
        if len(values) > 1 and isinstance(values[1], ReplicatedTensorSharding):
            values = (values[0], TileSet.Compute, TileSet.Compute, *values[1:])
        super().__init__(*values, **named)


class TensorLocationSettings(Settings):
    """``(TensorLocation or TensorStorage, ...)``: where the tensors of one kind are stored, and from which size on.

    Options:
        location: The location.
        minElementsForOffChip: Smaller tensors stay in the memory of the IPU.
        minElementsForReplicatedTensorSharding: Smaller tensors stay whole.
    """

    defaults: ClassVar = {
        "location": TensorLocation(),
        "minElementsForOffChip": 2,
        "minElementsForReplicatedTensorSharding": 8192,
    }

    def __init__(self, *values: Any, **named: Any) -> None:
        if values and isinstance(values[0], TensorStorage):
            values = (TensorLocation(values[0]), *values[1:])
        super().__init__(*values, **named)
