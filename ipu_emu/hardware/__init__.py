"""hardware: the emulated Pod and who may use its IPUs."""

from ipu_emu.hardware.device import Connection, Device, DeviceKind
from ipu_emu.hardware.occupancy import Occupancy, of_this_process
from ipu_emu.hardware.system import POD16, SYSTEM_VARIABLE, System

__all__ = [
    "POD16",
    "SYSTEM_VARIABLE",
    "Connection",
    "Device",
    "DeviceKind",
    "Occupancy",
    "System",
    "of_this_process",
]
