"""devices: DeviceManager, DeviceInfo, and the checks of a session's device."""
