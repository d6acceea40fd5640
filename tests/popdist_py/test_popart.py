"""PopART configuration: session options and devices, with stand-ins for the emulator, a layer above."""

import sys
from collections.abc import Callable
from inspect import signature
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ipu_emu import popart
from popdist_py import LayoutError
from popdist_py.popart import configureSessionOptions, getDevice
from tests.helpers.mpi_jobs import ROOT

Become = Callable[..., None]


#: local replicas of all instances, instance -> the expected SessionOptions (popdist.md, 3.2; popart.md, 4.3)
CASES = [
    ((1,), 0, {"replicated": False, "local": 1, "distributed": False, "offset": 0, "total": 1}),
    ((4,), 0, {"replicated": True, "local": 4, "distributed": False, "offset": 0, "total": 4}),
    ((2, 2), 1, {"replicated": True, "local": 2, "distributed": True, "offset": 2, "total": 4}),
    ((1, 1, 1), 2, {"replicated": False, "local": 1, "distributed": True, "offset": 2, "total": 3}),
    ((3, 1, 2), 2, {"replicated": True, "local": 2, "distributed": True, "offset": 4, "total": 6}),
]


@pytest.mark.parametrize(("counts", "instance", "expected"), CASES)
def test_session_options(become: Become, counts: tuple[int, ...], instance: int, expected: dict[str, int]) -> None:
    become(instance, *counts)
    options = SimpleNamespace()
    configureSessionOptions(options)
    assert vars(options) == {
        "enableReplicatedGraphs": expected["replicated"],
        "replicatedGraphCount": expected["local"],
        "enableDistributedReplicatedGraphs": expected["distributed"],
        "globalReplicaOffset": expected["offset"],
        "globalReplicationFactor": expected["total"],
    }


def test_session_options_without_a_launcher() -> None:
    options = SimpleNamespace()
    configureSessionOptions(options)
    assert options.enableReplicatedGraphs is options.enableDistributedReplicatedGraphs is False


@pytest.fixture
def acquired(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests to the device manager: (IPUs, connection type)."""
    requests: list[Any] = []

    class DeviceManager:
        def acquireAvailableDevice(self, numIpus: int, *, connectionType: str) -> SimpleNamespace:
            requests.append((numIpus, connectionType))
            return SimpleNamespace(numIpus=numIpus)

        def createOfflineIPUDevice(self, options: dict[str, int]) -> str:
            return f"offline device with {options['numIPUs']} IPUs"

    popart = ModuleType("ipu_emu.popart")
    vars(popart).update(
        DeviceManager=DeviceManager,
        DeviceConnectionType=SimpleNamespace(OnDemand="on demand", Always="always"),
    )
    monkeypatch.setitem(sys.modules, "ipu_emu.popart", popart)
    return requests


def test_a_device_has_the_ipus_of_the_local_replicas(become: Become, acquired: list[Any]) -> None:
    become(1, 2, 2, ipus_per_replica=4)
    assert getDevice() == getDevice(4) == SimpleNamespace(numIpus=8, usedIpus=8)
    getDevice(4, "always")
    getDevice(connectionType="always")
    assert acquired == [(8, "on demand"), (8, "on demand"), (8, "always"), (8, "always")]


def test_a_device_has_the_next_power_of_two_of_ipus(become: Become, acquired: list[Any]) -> None:
    become(1, 2, 2, ipus_per_replica=3)
    assert getDevice() == SimpleNamespace(numIpus=8, usedIpus=6)
    assert acquired == [(8, "on demand")]


def test_the_guide_has_the_arguments_of_a_device_and_the_default_of_the_reduction() -> None:
    guide = (ROOT / "docs/guides/popart.md").read_text()
    width = next(iter(signature(getDevice).parameters.values()))
    assert f"`popdist_py.popart.getDevice({width.name}={width.default})`" in guide
    default = popart.SessionOptions().accumulationAndReplicationReductionType
    assert f"`{default.name}` is the default, as in PopART" in guide


def test_a_device_of_another_width_than_the_launcher_was_given(become: Become, acquired: list[Any]) -> None:
    become(1, 2, 2, ipus_per_replica=4)
    with pytest.raises(LayoutError, match="a device has 2 IPUs per replica, but poprun-py was started with 4"):
        getDevice(2)
    assert acquired == []


def test_offline_no_device_is_acquired(become: Become, acquired: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    become(1, 2, 2, ipus_per_replica=4)
    monkeypatch.setenv("POPDIST_OFFLINE_MODE", "1")
    assert getDevice() == getDevice(4, "always") == "offline device with 8 IPUs"
    assert acquired == []
