"""Configured system: the emulated IPUs that a program has configured, and how a compiled program divides them."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from ipu_emu.errors import EmulatorError
from ipu_emu.tensorflow.trace.frontend_state import frontend_state


@dataclass(frozen=True)
class ConfiguredSystem:
    """``devices`` has the number of IPUs of each device; ``config`` is the IPUConfig that requested them."""

    devices: tuple[int, ...] = (1,)
    config: Any = None
    process_index: int = 0
    process_count: int = 1


@dataclass(frozen=True)
class DeviceShare:
    """How a program uses a device: IPUs of a replica, replicas of this process, and of all processes."""

    ipus: int
    local: int
    offset: int
    total: int
    system: ConfiguredSystem = field(default_factory=ConfiguredSystem)

    def option(self, path: str, default: Any) -> Any:
        """An option of the configuration by its dotted path, ``default`` without a configuration."""
        return default if self.system.config is None else attrgetter(path)(self.system.config)


def configure(system: ConfiguredSystem) -> None:
    """Use ``system`` for all programs."""
    frontend_state().system = system


def configured() -> ConfiguredSystem:
    """The system that was configured; without any, one device of one IPU."""
    system: ConfiguredSystem = frontend_state().system or ConfiguredSystem()
    return system


def is_attached(system: ConfiguredSystem) -> bool:
    """Whether programs run; they are only compiled with the connection types PRE_COMPILE and NEVER."""
    return system.config is None or system.config.device_connection.type.name in ("ALWAYS", "ON_DEMAND")


def has_remote_memory(system: ConfiguredSystem) -> bool:
    """Whether the devices have remote memory; for devices that are not attached, the configuration decides."""
    return is_attached(system) or bool(system.config.device_connection.enable_remote_buffers)


def ipus_for(shards: int) -> int:
    """The IPUs of a replica with this number of shards, a power of two."""
    return 1 << max(shards - 1, 0).bit_length()


def check_shards(ipus: int, shards: int) -> None:
    """Raise EmulatorError for shards that cannot be spread over the IPUs of a device."""
    if shards < 1 or ipus % shards:
        raise EmulatorError(
            f"Trying to compile a graph for an IPU device with {ipus} IPUs and {shards} shards. The number of shards "
            "needs to divide the number of IPUs."
        )


def share_of(device: int, shards: int) -> DeviceShare:
    """Return how a program that needs ``shards`` IPUs per replica uses a device; raise EmulatorError if it cannot."""
    system = configured()
    if device >= len(system.devices):
        raise EmulatorError(
            f"The program is placed on /device:IPU:{device}, and {len(system.devices)} devices are configured; set "
            "auto_select_ipus to a list with the number of IPUs of each device"
        )
    ipus, needed = system.devices[device], ipus_for(shards)
    check_shards(ipus, needed)
    local = ipus // needed
    return DeviceShare(needed, local, local * system.process_index, local * system.process_count, system)
