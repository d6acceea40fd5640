"""DeviceManager, DeviceInfo and sync patterns."""
