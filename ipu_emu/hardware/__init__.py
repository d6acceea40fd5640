"""hardware: the emulated Pod, its IPUs, and which process uses them."""

from ipu_emu.hardware.generation import BOW, GC2, GC200, GENERATIONS, Generation
from ipu_emu.hardware.ipu_locks import ALONE, Claim, Claims
from ipu_emu.hardware.occupancy import Occupancy, of_this_process, share_of
from ipu_emu.hardware.position import Position
from ipu_emu.hardware.remote_buffers import RemoteBuffer, StreamingMemory, mapped
from ipu_emu.hardware.selection_order import SelectionOrder, chosen_order, shard_order
from ipu_emu.hardware.sync_groups import PATTERNS, SyncConfiguration, SyncGroup, groups
from ipu_emu.hardware.system import POD16, SYSTEM_VARIABLE, Connection, Device, DeviceKind, System

__all__ = [
    "ALONE", "BOW", "GC2", "GC200", "GENERATIONS", "PATTERNS", "POD16", "SYSTEM_VARIABLE", "Claim", "Claims",
    "Connection", "Device", "DeviceKind", "Generation", "Occupancy", "Position", "RemoteBuffer", "SelectionOrder",
    "StreamingMemory", "SyncConfiguration", "SyncGroup", "System", "chosen_order", "groups", "mapped",
    "of_this_process", "shard_order", "share_of",
]  # fmt: skip
