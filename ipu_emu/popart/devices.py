"""DeviceManager and DeviceInfo: the devices that sessions run on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import POD16, Connection, Device, DeviceKind, System
from ipu_emu.popart.enums import DeviceConnectionType, DeviceSelectionCriterion, DeviceType, SyncPattern

__all__ = ["DeviceInfo", "DeviceManager"]

_TYPES = {
    DeviceKind.IPU_MODEL: DeviceType.IpuModel,
    DeviceKind.CPU: DeviceType.Cpu,
    DeviceKind.IPU: DeviceType.Ipu,
    DeviceKind.OFFLINE: DeviceType.OfflineIpu,
    DeviceKind.SIM: DeviceType.Sim,
}
_CONNECTIONS = {
    DeviceConnectionType.Always: Connection.ALWAYS,
    DeviceConnectionType.OnDemand: Connection.ON_DEMAND,
    DeviceConnectionType.Never: Connection.NEVER,
}
_SYNC = SyncPattern.Full
_MODEL_OPTIONS = ("numIPUs", "tilesPerIPU", "compileIPUCode", "ipuVersion")
_OFFLINE_OPTIONS = ("numIPUs", "tilesPerIPU", "ipuVersion", "syncPattern")


class DeviceInfo:
    """One device. As a context manager it detaches at the end."""

    def __init__(self, device: Device, pattern: SyncPattern = SyncPattern.Full) -> None:
        self.device = device
        self.syncPattern = pattern
        self._attached = device.connection is Connection.ALWAYS and device.kind is not DeviceKind.OFFLINE

    @property
    def type(self) -> DeviceType:
        return _TYPES[self.device.kind]

    @property
    def connectionType(self) -> DeviceConnectionType:
        return {value: key for key, value in _CONNECTIONS.items()}[self.device.connection]

    @property
    def id(self) -> int:
        return self.device.id

    @property
    def numIpus(self) -> int:
        return self.device.num_ipus

    @property
    def tilesPerIPU(self) -> int:
        return self.device.tiles_per_ipu

    @property
    def ipuVersion(self) -> str:
        return self.device.version

    @property
    def driverIds(self) -> list[int]:
        return list(self.device.ipus)

    @property
    def isAttached(self) -> bool:
        return self._attached

    def attach(self) -> bool:
        """Take the device; False for one that can never be attached."""
        self._attached = self.device.connection is not Connection.NEVER and self.device.kind is not DeviceKind.OFFLINE
        return self._attached

    def tryAttachUntilTimeout(self) -> bool:
        return self.attach()

    def detach(self) -> None:
        """Give the device back."""
        self._attached = False

    def __enter__(self) -> DeviceInfo:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def __repr__(self) -> str:
        return f"DeviceInfo({self.type.name}, id={self.id}, numIpus={self.numIpus})"


class DeviceManager:
    """Finds and makes devices; IPUs are those of an emulated ``system``."""

    def __init__(self, system: System = POD16) -> None:
        self._system = system
        self._timeout = 0

    def setOnDemandAttachTimeout(self, seconds: int) -> None:
        """How long to wait for a device that is attached on demand; emulated ones never keep one waiting."""
        self._timeout = seconds

    def createCpuDevice(self) -> DeviceInfo:
        return DeviceInfo(Device(DeviceKind.CPU, 0, 1, 1, ""))

    def createIpuModelDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """``{"numIPUs", "tilesPerIPU", "compileIPUCode", "ipuVersion"}``"""
        return DeviceInfo(self._described(DeviceKind.IPU_MODEL, options, _MODEL_OPTIONS))

    def createSimDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        return DeviceInfo(self._described(DeviceKind.SIM, options, _MODEL_OPTIONS))

    def createOfflineIPUDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """``{"numIPUs", "tilesPerIPU", "ipuVersion", "syncPattern"}``: compiles, never runs."""
        device = self._described(DeviceKind.OFFLINE, options, _OFFLINE_OPTIONS, Connection.NEVER)
        return DeviceInfo(device, _pattern(options.get("syncPattern", _SYNC)))

    def acquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> DeviceInfo:
        """Take a device of ``numIpus`` IPUs (a power of two)."""
        if numIpus < 1 or numIpus & (numIpus - 1):
            raise EmulatorError(
                f"You have attempted to acquire {numIpus} IPUs. The number of IPUs requested must be a power of two"
                "; choose instances and replicas so that each instance drives 1, 2, 4, ... IPUs"
            )
        found = self.tryAcquireAvailableDevice(numIpus, tilesPerIpu, pattern, connectionType, selectionCriterion)
        if found is None:
            raise EmulatorError(
                f"Failed to acquire device with {numIpus} IPUs. Ensure that there are sufficient IPUs available. "
                "If you have enabled the Poplar SDK you can check device availability with the `gc-monitor` "
                f"command-line utility. The emulated {self._system.name} has {self._system.ipus} IPUs"
            )
        return found

    def tryAcquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> DeviceInfo | None:
        """As ``acquireAvailableDevice``, but None where there is no such device."""
        found = self.enumerateDevices(pattern, numIpus, DeviceType.Ipu, connectionType, tilesPerIpu)
        return self._attached(found[0]) if found else None

    def acquireDeviceById(
        self,
        id: int,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo:
        """Take the device with this id."""
        found = self.tryAcquireDeviceById(id, pattern, connectionType)
        if found is None:
            raise EmulatorError(
                f"Failed to acquire device with id '{id}'. Ensure it is available. If you have enabled the Poplar "
                "SDK you can check device availability with the `gc-monitor` command-line utility."
            )
        return found

    def tryAcquireDeviceById(
        self,
        id: int,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo | None:
        """As ``acquireDeviceById``, but None where there is no such device."""
        ipus = self._system.ipus_of(id)
        return None if ipus is None else self._attached(self._ipu(id, ipus, pattern, connectionType))

    def enumerateDevices(
        self,
        pattern: SyncPattern = SyncPattern.Full,
        numIpus: int = 1,
        deviceType: DeviceType = DeviceType.Ipu,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        tilesPerIPU: int = 0,
    ) -> list[DeviceInfo]:
        """Devices of ``numIpus`` IPUs of the emulated system."""
        if deviceType is not DeviceType.Ipu or tilesPerIPU not in (0, self._system.tiles_per_ipu):
            return []
        if numIpus < 1 or numIpus & (numIpus - 1):
            return []
        devices = []
        for id in self._system.device_ids(numIpus):
            devices.append(self._ipu(id, self._system.ipus_of(id) or (), pattern, connectionType))
        return devices

    def _ipu(
        self, id: int, ipus: tuple[int, ...], pattern: SyncPattern, connection: DeviceConnectionType
    ) -> DeviceInfo:
        system = self._system
        device = Device(
            DeviceKind.IPU, id, len(ipus), system.tiles_per_ipu, system.version, _CONNECTIONS[connection], ipus
        )
        return DeviceInfo(device, pattern)

    def _attached(self, info: DeviceInfo) -> DeviceInfo:
        if info.device.connection is Connection.NEVER:
            raise EmulatorError(
                "Trying to acquire a hardware device when connectionType is DeviceConnectionType::Never"
            )
        return info

    def _described(
        self,
        kind: DeviceKind,
        options: Mapping[str, Any],
        valid: tuple[str, ...],
        connection: Connection = Connection.ALWAYS,
    ) -> Device:
        for name in options:
            if name not in valid:
                raise EmulatorError(
                    f"Invalid option `{name}' passed to DevicexManager::createHostDevice for device type "
                    f"{_TYPES[kind].name}. Valid options are {', '.join(valid)}"
                )
        tiles = int(options.get("tilesPerIPU", self._system.tiles_per_ipu))
        version = str(options.get("ipuVersion", self._system.version))
        return Device(kind, 0, int(options.get("numIPUs", 1)), tiles, version, connection)


def _pattern(value: Any) -> SyncPattern:
    if isinstance(value, SyncPattern):
        return value
    names = {name.lower(): member for name, member in SyncPattern.__members__.items()}
    try:
        return names[str(value).lower()]
    except KeyError:
        raise EmulatorError(
            f"Unknown sync pattern '{value}'; use one of {', '.join(SyncPattern.__members__)}"
        ) from None
