"""DeviceManager: the tiles of devices, the options of described ones, and the properties of devices."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.hardware import System
from ipu_emu.session.footprint import memory_of


class TestTiles:
    @pytest.mark.parametrize("tiles", [1, 4, 20, 1216])
    def test_a_program_runs_on_as_many_tiles_as_it_asks_for(self, tiles: int) -> None:
        builder = popart.Builder()
        x = builder.addInputTensor("FLOAT", [2])
        y = builder.aiOnnx.relu([x])
        device = popart.DeviceManager().acquireAvailableDevice(1, tiles)
        with device:
            assert (device.type, device.tilesPerIPU, device.tilesPerIpu) == (popart.DeviceType.Ipu, tiles, tiles)
            session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device)
            session.prepareDevice()
            anchors = session.initAnchorArrays()
            session.run(popart.PyStepIO({x: np.array([-1, 2], np.float32)}, anchors))
        assert list(anchors[y]) == [0, 2]

    def test_memory_and_clock_follow(self) -> None:
        manager = popart.DeviceManager(System.named("pod4"))
        (few,) = manager.enumerateDevices(numIpus=4, tilesPerIPU=4)
        assert memory_of(few.device) == 4 * 624 * 1024
        assert manager.acquireAvailableDevice(tilesPerIpu=0).tilesPerIPU == 1472

    def test_any_number_of_tiles_that_is_not_negative(self) -> None:
        manager = popart.DeviceManager()
        assert manager.acquireAvailableDevice(tilesPerIpu=2000).tilesPerIPU == 2000
        with pytest.raises(popart.popart_exception, match=r"tilesPerIpu is -1.*1472"):
            manager.acquireAvailableDevice(tilesPerIpu=-1)


class TestDescribedDevices:
    def test_simulated_devices_have_four_tiles_unless_asked(self) -> None:
        manager = popart.DeviceManager()
        assert [make({}).tilesPerIPU for make in (manager.createIpuModelDevice, manager.createSimDevice)] == [4, 4]
        assert manager.createSimDevice({"numIPUs": "2", "tilesPerIPU": "8"}).tilesPerIPU == 8

    def test_an_offline_device_has_all_tiles(self) -> None:
        options = {"tilesPerIPU": 4, "gatewayMode": "false"}
        device = popart.DeviceManager(System.named("bow-pod16")).createOfflineIPUDevice(options)
        assert (device.tilesPerIPU, device.ipuVersion) == (1472, "ipu2")

    def test_a_simulator_takes_no_version(self) -> None:
        with pytest.raises(popart.popart_exception, match=r"Invalid option `ipuVersion' .* type sim\. "):
            popart.DeviceManager().createSimDevice({"ipuVersion": "ipu1"})

    def test_versions(self) -> None:
        manager: Any = popart.DeviceManager()
        with manager.acquireAvailableDevice() as attached:
            assert attached.version == popart.versionString()
        assert attached.version == "<unknown-ipu-unattached>"
        assert manager.createCpuDevice().version == "<unknown-cpu>"
        assert manager.createSimDevice({}).version == "<unknown-sim>"
        assert manager.createOfflineIPUDevice({}).version == "<offline-ipu>"
        assert manager.createIpuModelDevice({"ipuVersion": "ipu1"}).version == "ipu1"


def test_random_selection_is_the_same_each_time() -> None:
    random = popart.DeviceSelectionCriterion.Random
    ids = []
    for _ in range(3):
        with popart.DeviceManager(System.named("pod16")).acquireAvailableDevice(selectionCriterion=random) as device:
            ids.append(device.id)
    assert len(set(ids)) == 1


def test_functions_of_the_module() -> None:
    assert popart.versionString() == "3.4.0"
    assert popart.versionNumber() == (3, 4, 0)
    assert popart.getTensorInfo(np.zeros((2, 3), np.float16)) == popart.TensorInfo("FLOAT16", [2, 3])
    popart.getLogger().setLevel("WARN")


@pytest.mark.parametrize(("acquire", "number"), [("acquireAvailableDevice", 32), ("acquireDeviceById", 99)])
def test_the_error_without_a_free_device_names_the_command_that_lists_users(acquire: str, number: int) -> None:
    with pytest.raises(popart.popart_exception) as caught:
        getattr(popart.DeviceManager(), acquire)(number)
    assert "Here `ipu-emu info` lists the IPUs and their users" in "".join(traceback.format_exception(caught.value))
