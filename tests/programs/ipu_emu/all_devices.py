"""Acquire devices of a size until none is left; write their ids, and keep them until a file exists."""

import sys
import time
from pathlib import Path

from ipu_emu.popart.devices.device_manager import DeviceManager

size, most, said, go = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
manager, devices = DeviceManager(), []
while len(devices) < most and (device := manager.tryAcquireAvailableDevice(size)):
    devices.append(device)
said.write_text(str([device.driverIds for device in devices]))
while not go.exists():
    time.sleep(0.02)
