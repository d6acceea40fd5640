"""Out of memory: the plan of an IPU compared with the engine's memory, and the error for models that do not fit."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from ipu_emu import models, popart
from ipu_emu.hardware import POD16
from ipu_emu.session.footprint import footprints, memory_need, memory_of, too_large_for_an_ipu
from ipu_emu.session.memory_remedies import Change, Remedies
from tests.ipu_emu.helpers.pipelined_models import PIPELINE, Tower
from tests.ipu_emu.helpers.sessions import options


def session(tiles: int, kind: str = "model", width: int = 64, layers: int = 4, batch: int = 4, **values: Any) -> Any:
    model = models.gpt2(batch=batch, layers=layers, width=width, heads=2, length=32, context=32, vocabulary=16)
    manager = popart.DeviceManager(POD16)
    ipus, halves = values.pop("ipus", 1), values.pop("halves", False)
    opts = options(**values)
    device = manager.acquireAvailableDevice(ipus * opts.localReplicas(), tiles)
    if kind == "offline":
        device = manager.createOfflineIpuFromDeviceInfo(device)
    optimizer = popart.Adam({"defaultLearningRate": (0.1, True)})
    flow = popart.DataFlow(1, [model.loss])
    transformer = popart.GraphTransformer(model.proto)
    if halves:
        transformer.convertFloatsToHalfs()
    return popart.TrainingSession(transformer.getModelProto(), flow, model.loss, optimizer, device, userOptions=opts)


def locations(storage: popart.TensorStorage, sharding: popart.ReplicatedTensorSharding) -> dict[str, Any]:
    """Options that give tensors of all kinds and sizes this location."""
    settings = popart.TensorLocationSettings(popart.TensorLocation(storage, sharding), 0, 0)
    return {f"{kind}TensorLocationSettings": settings for kind in ("weight", "optimizerState", "activation")}


ON, OFF = popart.TensorStorage.OnChip, popart.TensorStorage.OffChip
KEPT = {
    "on chip": {},
    "made again": {"autoRecomputation": popart.RecomputationType.Standard},
    "shared": locations(ON, popart.ReplicatedTensorSharding.On),
    "off chip": locations(OFF, popart.ReplicatedTensorSharding.On),
}


@pytest.mark.parametrize("way", KEPT)
@pytest.mark.parametrize("R", [1, 2])
@pytest.mark.filterwarnings("ignore:Replicated tensor sharding has no effect")
def test_the_plan_is_never_below_what_the_engine_holds(R: int, way: str) -> None:
    for training in (Tower(3).session(A=6, R=R, **PIPELINE, **KEPT[way]), Tower(2).session(A=2, R=R, **KEPT[way])):
        plan = footprints(training.executable, 1472)
        for ipu, need in enumerate(plan):
            assert training.engine.nbytes_of(ipu) <= R * need.data < R * need.total
            assert training.engine.streaming_nbytes_of(ipu) <= R * training.executable.plan.streaming_bytes_of(ipu)


def test_parts_add_up_to_the_plan() -> None:
    training = Tower(3).session(A=6, **PIPELINE)
    for ipu, need in enumerate(footprints(training.executable, 1472)):
        assert need.data == training.executable.plan.bytes_of(ipu)
        assert need.total == sum(need.parts().values())
    assert footprints(training.executable, 1472)[0].stashes > 0
    assert footprints(training.executable, 1472)[1].fifos > 0


@pytest.mark.parametrize("kind", ["model", "offline"])
def test_a_model_that_does_not_fit_is_refused_with_remedies(kind: str) -> None:
    with pytest.raises(popart.OutOfMemoryException) as caught:
        session(4, kind, R=2).prepareDevice()
    text = str(caught.value.args[0])
    assert text.startswith("Out of memory: IPU 0 needs ")
    assert "Remedies, each of which suffices:\n" in text
    needed, has, _ = (float(number) for number in re.findall(r"([\d.]+) MiB", text)[:3])
    assert has == pytest.approx(4 * 624 * 1024 / 2**20, abs=0.006)
    row = next(line for line in text.splitlines() if line.split()[:1] == ["0"])
    total, total_unit, free, free_unit = row.split()[-4:]
    assert (float(total), total_unit, free_unit) == (needed, "MiB", "MiB")
    assert -float(free) == pytest.approx(needed - has, abs=0.02)


def refused(tiles: int, **values: Any) -> str:
    with pytest.raises(popart.OutOfMemoryException) as caught:
        session(tiles, **values).prepareDevice()
    return str(caught.value.args[0])


def offered(text: str) -> list[tuple[list[str], str]]:
    """The remedies of a message: the settings of each, and the memory that is needed then."""
    _, _, listing = text.partition("Remedies, each of which suffices:\n")
    lines = [line.strip().rpartition(": ") for line in listing.splitlines()]
    return [(settings.split(" and "), need) for settings, _, need in lines]


def taken(settings: list[str]) -> dict[str, Any]:
    """Session options, and the IPUs of a replica, from a remedy's settings in Python."""
    opts: dict[str, Any] = {}
    for setting in settings:
        if setting == "a model after GraphTransformer(model).convertFloatsToHalfs()":
            opts["halves"] = True
            continue
        name, value = setting.split(" = ")
        value, _, spread = value.partition(" with ")
        kind, _, path = name.partition(".")
        if path:
            opts[kind] = popart.TensorLocationSettings(popart.TensorLocation(eval(f"popart.{value}")), 2, 8192)
        else:
            opts[kind] = eval(f"popart.{value}")
        if spread:
            opts["ipus"] = int(spread.split()[0])
    return opts


@pytest.mark.parametrize(("tiles", "fewest"), [(6, 1), (7, 2)])
def test_a_session_with_the_options_of_a_remedy_needs_the_stated_memory(tiles: int, fewest: int) -> None:
    remedies = offered(refused(tiles))
    assert len(remedies) >= fewest
    for settings, promised in remedies:
        training = session(tiles, **taken(settings))
        training.prepareDevice(loadEngine=False)
        assert str(memory_need(training.executable, training.deviceInfo.device)) == promised


def test_under_poprun_ipus_are_requested_by_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("popdist_py.isPopdistEnvSet", lambda: True)
    assert "with poprun-py --ipus-per-replica 4" in refused(1)


def test_useless_changes_are_not_offered() -> None:
    text = refused(1, width=160, layers=2)
    assert "No known remedy suffices" in text
    assert "accumulatorTensorLocation" not in text
    assert "replicatedTensorSharding" not in text


@pytest.mark.parametrize(
    ("values", "without"),
    [({}, ""), ({"batch": 1}, "a model for micro-batches of 1/2"), ({"halves": True}, "convertFloatsToHalfs")],
    ids=["both", "micro-batch of 1", "FLOAT16"],
)
def test_changes_that_a_model_already_has_are_not_tried(
    values: dict[str, Any], without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def without_remedies(_: object, changes: list[Change[Any]], *__: object, **___: object) -> Remedies:
        tried.extend(change.advice for change in changes)
        return Remedies()

    monkeypatch.setattr("ipu_emu.session.memory_advice.find_remedies", without_remedies)
    refused(1, **values)
    for advice in ("a model for micro-batches of 1/2", "convertFloatsToHalfs"):
        assert any(advice in text for text in tried) is (advice != without)


def test_a_tensor_that_can_never_fit_is_named() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 512])
    w = builder.addInitializedInputTensor(np.zeros((512, 1024), np.float32), "wide")
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([x, w])], 0.1)
    optimizer = popart.SGD({"defaultLearningRate": (0.1, True)})

    def prepared(tiles: int) -> Any:
        device = popart.DeviceManager().createIpuModelDevice({"tilesPerIPU": tiles})
        model = builder.getModelProto(), popart.DataFlow(1, [loss]), loss, optimizer
        training = popart.TrainingSession(*model, device)
        training.prepareDevice(loadEngine=False)
        return training

    with pytest.raises(popart.OutOfMemoryException) as caught:
        prepared(3)
    text = str(caught.value.args[0])
    assert "More IPUs alone can never help" in text
    assert "reads wide (2.00 MiB) and in total 4.00 MiB at once" in text
    assert too_large_for_an_ipu(prepared(1472).executable, 2**30) == ""


def test_nothing_is_moved_off_chip_without_streaming_memory() -> None:
    model = models.mlp((64, 512, 4), batch=4)
    device = popart.DeviceManager().createIpuModelDevice({"ipuVersion": "ipu1", "tilesPerIPU": 1})
    optimizer = popart.Adam({"defaultLearningRate": (0.1, True)})
    training = popart.TrainingSession(model.proto, popart.DataFlow(1, [model.loss]), model.loss, optimizer, device)
    with pytest.raises(popart.OutOfMemoryException) as caught:
        training.prepareDevice()
    assert "OffChip" not in str(caught.value.args[0])


def test_devices_without_a_budget_run_any_program() -> None:
    manager = popart.DeviceManager()
    assert memory_of(manager.createCpuDevice().device) is None
    assert (
        memory_of(manager.createIpuModelDevice({"tilesPerIPU": 10, "ipuVersion": "ipu1"}).device) == 10 * 256 * 1024
    )
    assert memory_of(manager.createIpuModelDevice({}).device) == 4 * 624 * 1024
    assert memory_of(manager.createOfflineIPUDevice({"tilesPerIPU": 10}).device) == 1472 * 624 * 1024
    assert np.isfinite(footprints(Tower(2).session(A=2).executable, 1472)[0].total)
