"""DeviceManager and DeviceInfo: the devices that sessions run on."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, SupportsIndex

from ipu_emu.errors import ArgumentTypeError, EmulatorError
from ipu_emu.hardware import (
    GC200,
    GENERATIONS,
    Connection,
    Device,
    DeviceKind,
    Occupancy,
    System,
    of_this_process,
    share_of,
)
from ipu_emu.popart.types.enums import DeviceConnectionType, DeviceSelectionCriterion, DeviceType, SyncPattern
from ipu_emu.popart.version import versionString
from popdist_py.messages.suggestion import did_you_mean

_TYPES = {
    DeviceKind.IPU_MODEL: DeviceType.IpuModel,
    DeviceKind.CPU: DeviceType.Cpu,
    DeviceKind.IPU: DeviceType.Ipu,
    DeviceKind.OFFLINE: DeviceType.OfflineIpu,
    DeviceKind.SIM: DeviceType.Sim,
}
#: The names of types of devices in messages.
PRINTED = {
    DeviceType.IpuModel: "ipu-model",
    DeviceType.Cpu: "cpu",
    DeviceType.Ipu: "ipu",
    DeviceType.OfflineIpu: "offline-ipu",
    DeviceType.Sim: "sim",
}
_CONNECTIONS = {
    DeviceConnectionType.Always: Connection.ALWAYS,
    DeviceConnectionType.OnDemand: Connection.ON_DEMAND,
    DeviceConnectionType.Never: Connection.NEVER,
}
_SYNC_NAMES = {
    SyncPattern.Full: "full",
    SyncPattern.SinglePipeline: "singlePipeline",
    SyncPattern.ReplicaAndLadder: "replicaAndLadder",
}
#: PopART's hint where to look for free devices, and the hint for emulated ones.
_AVAILABILITY = (
    "If you have enabled the Poplar SDK you can check device availability with the `gc-monitor` command-line utility."
)
_HERE = "Here `ipu-emu info` lists the IPUs and their users"
_MODEL_OPTIONS = ("numIPUs", "tilesPerIPU", "compileIPUCode", "ipuVersion")
_SIM_OPTIONS = ("numIPUs", "tilesPerIPU")
_OFFLINE_OPTIONS = ("numIPUs", "tilesPerIPU", "ipuVersion", "syncPattern", "gatewayMode")
#: Tiles of a simulated IPU by default.
_SIMULATED_TILES = 4
_OFFLINE_VERSION = GC200.version
#: Seed of the order in which DeviceSelectionCriterion.Random tries devices.
_SEED = 1
#: DeviceInfo.version of devices other than IPU models.
_VERSIONS = {
    DeviceKind.CPU: "<unknown-cpu>",
    DeviceKind.SIM: "<unknown-sim>",
    DeviceKind.OFFLINE: "<offline-ipu>",
    DeviceKind.IPU: "<unknown-ipu-unattached>",
}


class DeviceInfo:
    """One device. Used as a context manager, it detaches at the end of the block."""

    def __init__(
        self,
        device: Device,
        pattern: SyncPattern | str = SyncPattern.Full,
        occupancy: Occupancy | None = None,
        timeout: float = 0.0,
    ) -> None:
        self.device = device
        #: The IPUs of the device that programs use; the others are idle. An extension of PopART.
        self.usedIpus = device.num_ipus
        self.syncPattern = pattern if isinstance(pattern, SyncPattern) else syncPatternFromString(pattern)
        self._occupancy, self._timeout = occupancy, timeout
        # Listing a device must not take it from other processes.
        self._attached = device.kind not in (DeviceKind.OFFLINE, DeviceKind.IPU)

    @property
    def type(self) -> DeviceType:
        """Kind of device."""
        return _TYPES[self.device.kind]

    @property
    def connectionType(self) -> DeviceConnectionType:
        """When the device attaches."""
        return next(type for type, connection in _CONNECTIONS.items() if connection is self.device.connection)

    @property
    def id(self) -> int:
        """Id of the device in its system."""
        return self.device.id

    @property
    def numIpus(self) -> int:
        """Number of IPUs."""
        return self.device.num_ipus

    @property
    def tilesPerIPU(self) -> int:
        """Number of tiles of each IPU."""
        return self.device.tiles_per_ipu

    tilesPerIpu = tilesPerIPU

    @property
    def ipuVersion(self) -> str:
        """Generation of the IPUs, such as ipu2."""
        return self.device.version

    @property
    def version(self) -> str:
        """The generation of an IPU model, the driver's version of an attached device, else a text in brackets."""
        if self.device.kind is DeviceKind.IPU and self._attached:
            return versionString()
        return _VERSIONS.get(self.device.kind, self.device.version)

    @property
    def driverIds(self) -> list[int]:
        """Ids of the IPUs of the device."""
        return list(self.device.ipus)

    @property
    def isAttached(self) -> bool:
        """Whether this process holds the IPUs."""
        return self._attached

    def attach(self) -> bool:
        """Take the device; return False if another process has it, or if it can never be attached."""
        if self.device.connection is Connection.NEVER or self.device.kind is DeviceKind.OFFLINE:
            return False
        if not self._attached:
            self._attached = self._occupancy is None or self._occupancy.take(self, self.device.ipus)
        return self._attached

    def tryAttachUntilTimeout(self) -> bool:
        """As ``attach``, but wait for another process to detach, up to the time of ``setOnDemandAttachTimeout``."""
        deadline = time.monotonic() + self._timeout
        while not self.attach():
            if time.monotonic() >= deadline or self.device.connection is Connection.NEVER:
                return False
            time.sleep(min(0.01, self._timeout))
        return True

    def detach(self) -> None:
        """Release the device."""
        if self._occupancy is not None:
            self._occupancy.release(self)
        self._attached = False

    def __enter__(self) -> DeviceInfo:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def __repr__(self) -> str:
        return f"DeviceInfo({self.type.name}, id={self.id}, numIpus={self.numIpus})"


class DeviceManager:
    """Finds and makes devices; IPUs are those of an emulated ``system``, by default the one of this process."""

    def __init__(self, system: System | None = None) -> None:
        self._system = System.from_environ(os.environ) if system is None else system
        self._occupancy = of_this_process(self._system, os.environ) if system is None else Occupancy()
        self._share = share_of(self._system, os.environ if system is None else {})
        self._timeout = 90.0

    def setOnDemandAttachTimeout(self, seconds: float) -> None:
        """Set how long to wait for a device that is attached on demand while another process has it."""
        self._timeout = float(seconds)

    def createCpuDevice(self) -> DeviceInfo:
        """A device without a memory limit that stands for the CPU."""
        return DeviceInfo(Device(DeviceKind.CPU, 0, 1, 1, ""))

    def createIpuModelDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """``{"numIPUs": 1, "tilesPerIPU": 4, "compileIPUCode": True, "ipuVersion"}``"""
        return DeviceInfo(self._described(DeviceKind.IPU_MODEL, options, _MODEL_OPTIONS, tiles=_SIMULATED_TILES))

    def createSimDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """A simulator device, ``{"numIPUs": 1, "tilesPerIPU": 4}``, without a memory limit."""
        return DeviceInfo(self._described(DeviceKind.SIM, options, _SIM_OPTIONS, tiles=_SIMULATED_TILES))

    def createOfflineIPUDevice(self, options: Mapping[str, Any]) -> DeviceInfo:
        """``{"numIPUs": 1, "tilesPerIPU", "ipuVersion": "ipu2", "syncPattern": "full", "gatewayMode": "false"}``.

        It compiles, and never runs. As in PopART its IPUs have all their tiles, whatever ``tilesPerIPU`` is.
        """
        version = {"ipuVersion": _OFFLINE_VERSION}
        device = self._described(DeviceKind.OFFLINE, version | dict(options), _OFFLINE_OPTIONS, Connection.NEVER)
        device = replace(device, tiles_per_ipu=GENERATIONS[device.version].tiles)
        return DeviceInfo(device, options.get("syncPattern", SyncPattern.Full))

    def createOfflineIpuFromDeviceInfo(self, info: DeviceInfo) -> DeviceInfo:
        """As ``createOfflineIPUDevice``, for as many IPUs of the kind of another device."""
        device = replace(info.device, kind=DeviceKind.OFFLINE, connection=Connection.NEVER, ipus=())
        return DeviceInfo(device, info.syncPattern)

    def createOfflineIpuFromSystemString(self, system: str, numIpus: int) -> DeviceInfo:
        """As ``createOfflineIPUDevice``, for ``numIpus`` IPUs of a Pod by name."""
        pod = System.named(system)
        if numIpus > pod.ipus:
            raise EmulatorError(f"{numIpus} IPUs are more than a {pod.name} has; use at most {pod.ipus}")
        kind = DeviceKind.OFFLINE
        return DeviceInfo(Device(kind, 0, numIpus, pod.tiles_per_ipu, pod.version, Connection.NEVER))

    def acquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> DeviceInfo:
        """Take a device of ``numIpus`` IPUs (a power of two)."""
        device = self.tryAcquireAvailableDevice(numIpus, tilesPerIpu, pattern, connectionType, selectionCriterion)
        if device is None:
            raise EmulatorError(
                f"Failed to acquire device with {numIpus} IPUs. Ensure that there are sufficient IPUs available. "
                f"{_AVAILABILITY}",
                note=f"{_HERE}. The emulated {self._system.name} has {self._system.ipus} IPUs",
            )
        return device

    def tryAcquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> DeviceInfo | None:
        """As ``acquireAvailableDevice``, but return None if no such device is free."""
        if not isinstance(numIpus, SupportsIndex):
            raise ArgumentTypeError(f"numIpus is a number of IPUs, not {numIpus!r}; use 1, 2, 4, ...")
        if numIpus < 1 or numIpus & (numIpus - 1):
            raise EmulatorError(
                f"You have attempted to acquire {numIpus} IPUs. The number of IPUs requested must be a power of two",
                note="Choose instances and replicas so that each instance drives 1, 2, 4, ... IPUs",
            )
        _check_attachable(connectionType)
        devices = self.enumerateDevices(pattern, numIpus, DeviceType.Ipu, connectionType, tilesPerIpu)
        if selectionCriterion is DeviceSelectionCriterion.Random:
            random.Random(_SEED).shuffle(devices)
        devices.sort(key=self._last_resort)
        return next((info for info in devices if self._acquired(info)), None)

    def acquireDeviceById(
        self,
        id: int,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo:
        """Take the device with this id."""
        device = self.tryAcquireDeviceById(id, pattern, connectionType)
        if device is None:
            raise EmulatorError(
                f"Failed to acquire device with id '{id}'. Ensure it is available. {_AVAILABILITY}", note=_HERE
            )
        return device

    def tryAcquireDeviceById(
        self,
        id: int,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo | None:
        """As ``acquireDeviceById``, but return None if that device is not free."""
        _check_attachable(connectionType)
        ipus = self._system.ipus_of(id)
        if ipus is None:
            return None
        info = self._ipu(id, ipus, pattern, connectionType, self._system.tiles_per_ipu)
        return info if self._acquired(info) else None

    def enumerateDevices(
        self,
        pattern: SyncPattern = SyncPattern.Full,
        numIpus: int = 1,
        deviceType: DeviceType = DeviceType.Ipu,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        tilesPerIPU: int = 0,
    ) -> list[DeviceInfo]:
        """Devices of ``numIpus`` IPUs of the emulated system, each with ``tilesPerIPU`` of its tiles (0: all)."""
        tiles = self._tiles(tilesPerIPU)
        if deviceType is not DeviceType.Ipu or numIpus < 1 or numIpus & (numIpus - 1):
            return []
        ipus = {id: self._system.ipus_of(id) or () for id in self._system.device_ids(numIpus)}
        return [self._ipu(id, own, pattern, connectionType, tiles) for id, own in ipus.items()]

    def _tiles(self, tiles: int) -> int:
        """The number of tiles of each IPU of a device: ``tiles``, or all if that is 0."""
        most = self._system.tiles_per_ipu
        if not isinstance(tiles, SupportsIndex):
            raise ArgumentTypeError(f"tilesPerIpu is {tiles!r}; use 0 (all {most} tiles) or a number of tiles")
        if int(tiles) < 0:
            raise EmulatorError(f"tilesPerIpu is {tiles}; use 0 (all {most} tiles) or a number of tiles")
        return int(tiles) or most

    def _ipu(
        self, id: int, ipus: tuple[int, ...], pattern: SyncPattern, connection: DeviceConnectionType, tiles: int
    ) -> DeviceInfo:
        device = Device(DeviceKind.IPU, id, len(ipus), tiles, self._system.version, _CONNECTIONS[connection], ipus)
        return DeviceInfo(device, pattern, self._occupancy, self._timeout)

    def _last_resort(self, info: DeviceInfo) -> tuple[bool, bool]:
        """Sort key of devices: free ones, then those in use, then those that belong to other instances of the job."""
        elsewhere = not set(info.device.ipus) <= set(self._share)
        return elsewhere, not self._occupancy.is_free(info.device.ipus)

    def _acquired(self, info: DeviceInfo) -> bool:
        """Take a device, unless it is attached on demand; return False if it is in use."""
        return info.device.connection is Connection.ON_DEMAND or info.attach()

    def _described(
        self,
        kind: DeviceKind,
        options: Mapping[str, Any],
        valid: tuple[str, ...],
        connection: Connection = Connection.ALWAYS,
        *,
        tiles: int = 1,
    ) -> Device:
        for name in options:
            if name not in valid:
                raise EmulatorError(
                    f"Invalid option `{name}' passed to DevicexManager::createHostDevice for device type "
                    f"{PRINTED[_TYPES[kind]]}. Valid options are {', '.join(valid)}{did_you_mean(name, valid)}"
                )
        tiles = _count_of("tilesPerIPU", options.get("tilesPerIPU", tiles))
        version = str(options.get("ipuVersion", self._system.version))
        if version not in GENERATIONS:
            raise EmulatorError(f"ipuVersion '{version}' does not exist; use {', '.join(GENERATIONS)}")
        return Device(kind, 0, _count_of("numIPUs", options.get("numIPUs", 1)), tiles, version, connection)


def _check_attachable(connectionType: DeviceConnectionType) -> None:
    if connectionType is DeviceConnectionType.Never:
        raise EmulatorError("Trying to acquire a hardware device when connectionType is DeviceConnectionType::Never")


def _count_of(option: str, value: Any) -> int:
    """A positive integer, which may be given as a string."""
    if not str(value).isdecimal() or int(value) < 1:
        raise EmulatorError(f"{option} is {value!r}; use an integer of at least 1")
    return int(value)


def syncPatternFromString(pattern: str) -> SyncPattern:
    """The sync pattern of that name in any letter case; raise EmulatorError for an unknown one."""
    for member, text in _SYNC_NAMES.items():
        if text.lower() == str(pattern).lower():
            return member
    raise EmulatorError(f"Unknown sync pattern '{pattern}'; use one of {', '.join(_SYNC_NAMES.values())}")


def syncPatternToString(pattern: SyncPattern) -> str:
    """The name of a sync pattern: full, singlePipeline or replicaAndLadder."""
    return _SYNC_NAMES[pattern]
