"""Device rules: checks, as PopART makes them, that a device fits the options of a session."""

from __future__ import annotations

from collections.abc import Sequence

from ipu_emu.compiler.placement.placement_rules import check_ipus_exist
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph
from ipu_emu.popart.devices.device_manager import DeviceInfo, printed
from ipu_emu.popart.types.enums import DeviceType
from ipu_emu.program.executable import Executable
from ipu_emu.session.options.session_options import SessionOptions

__all__ = ["check_device", "check_distributed", "check_io_tiles", "check_sync"]

#: The fewest I/O tiles that reach all of the host exchange.
_LEAST_IO_TILES = 32
_HARDWARE = (DeviceType.Ipu, DeviceType.OfflineIpu)


def check_distributed(device: DeviceInfo, options: SessionOptions) -> None:
    """Raise EmulatorError for replicas in several instances on a device that cannot be distributed."""
    if options.enableDistributedReplicatedGraphs and device.type not in _HARDWARE:
        raise EmulatorError(
            "Only IPU Hardware devices supported with distributed replicated graphs. Unsupported device type "
            f"{printed(device.type)}"
        )


def check_device(device: DeviceInfo, options: SessionOptions, model: Graph, ipus_per_replica: int) -> None:
    """Raise EmulatorError if the replicas and virtual graphs do not fit the IPUs."""
    ipus, replicas = device.usedIpus, options.localReplicas()
    if device.type is DeviceType.Cpu:
        return
    if ipus % replicas:
        raise EmulatorError("For replicated graphs, the number of IPUs must be divisible by the replication factor.")
    if options.usesVirtualGraphs():
        check_ipus_exist(model, ipus_per_replica)
    elif ipus > 1 and ipus != replicas:
        raise EmulatorError(
            f"If virtual graphs are disabled, the replicated graph count ({replicas}) needs to be equal to the "
            f"number of IPUs ({ipus})"
        )


def check_io_tiles(device: DeviceInfo, options: SessionOptions, tensors: Sequence[str]) -> None:
    """Raise EmulatorError if ``numIOTiles`` is invalid, or zero although ``tensors`` need I/O tiles."""
    count, tiles = options.numIOTiles, device.tilesPerIPU
    allowed = f"an even number from {_LEAST_IO_TILES} to {tiles - 2}"
    if count and (count % 2 or not _LEAST_IO_TILES <= count < tiles):
        raise EmulatorError(f"numIOTiles is {count}, and an IPU of this device has {tiles} tiles; use {allowed}")
    if tensors and not count:
        raise EmulatorError(
            f"Tensor '{tensors[0]}' should be exchanged by I/O tiles (TileSet.IO), but numIOTiles is 0; set it to "
            f"{allowed}"
        )


def check_sync(device: DeviceInfo, executable: Executable) -> None:
    """Raise EmulatorError for an executable that was compiled for another sync pattern."""
    if executable.sync != device.syncPattern.name:
        raise EmulatorError(
            f"The executable was compiled for the sync pattern {executable.sync}, but the device has "
            f"{device.syncPattern.name}; acquire the device with SyncPattern.{executable.sync}, or compile again"
        )
