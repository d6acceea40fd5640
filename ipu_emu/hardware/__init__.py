"""hardware: the emulated Pod and who may use its IPUs."""

from ipu_emu.hardware.device import Connection, Device, DeviceKind
from ipu_emu.hardware.system import POD16, System

__all__ = ["POD16", "Connection", "Device", "DeviceKind", "System"]
