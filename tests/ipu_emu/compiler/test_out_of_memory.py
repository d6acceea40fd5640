"""Out of memory: the plan of an IPU against what the engine holds, and what is said where a model does not fit."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from ipu_emu import models, popart
from ipu_emu.compiler.out_of_memory import Remedy, cheapest, memory_of, remedies
from ipu_emu.popart.options.memory_advice import MEMORY_ADVICE
from ipu_emu.program.footprint import footprints
from tests.ipu_emu.helpers.pipelined_models import PIPELINE, Tower
from tests.ipu_emu.helpers.sessions import options


def session(tiles: int, kind: str = "model", width: int = 64, **values: Any) -> Any:
    model = models.gpt2(batch=4, layers=4, width=width, heads=2, length=32, context=32, vocabulary=16)
    manager = popart.DeviceManager()
    make = {"model": manager.createIpuModelDevice, "offline": manager.createOfflineIPUDevice}[kind]
    opts = options(**values)
    device = make({"numIPUs": opts.localReplicas(), "tilesPerIPU": tiles})
    optimizer = popart.Adam({"defaultLearningRate": (0.1, True)})
    flow = popart.DataFlow(1, [model.loss])
    return popart.TrainingSession(model.proto, flow, model.loss, optimizer, device, userOptions=opts)


def kept(storage: popart.TensorStorage, sharding: popart.ReplicatedTensorSharding) -> dict[str, Any]:
    """Tensors of all kinds are kept so, however small they are."""
    settings = popart.TensorLocationSettings(popart.TensorLocation(storage, sharding), 0, 0)
    return {f"{kind}TensorLocationSettings": settings for kind in ("weight", "optimizerState", "activation")}


ON, OFF = popart.TensorStorage.OnChip, popart.TensorStorage.OffChip
KEPT = {
    "on chip": {},
    "made again": {"autoRecomputation": popart.RecomputationType.Standard},
    "shared": kept(ON, popart.ReplicatedTensorSharding.On),
    "off chip": kept(OFF, popart.ReplicatedTensorSharding.On),
}


@pytest.mark.parametrize("way", KEPT)
@pytest.mark.parametrize("R", [1, 2])
@pytest.mark.filterwarnings("ignore:Replicated tensor sharding has no effect")
def test_the_plan_is_never_below_what_the_engine_holds(R: int, way: str) -> None:
    for made in (Tower(3).session(A=6, R=R, **PIPELINE, **KEPT[way]), Tower(2).session(A=2, R=R, **KEPT[way])):
        plan = footprints(made.executable, 1472)
        for ipu, need in enumerate(plan):
            assert made.engine.nbytes_of(ipu) <= R * need.data < R * need.total
            assert made.engine.streaming_nbytes_of(ipu) <= R * made.executable.plan.streaming_bytes_of(ipu)


def test_parts_add_up_to_the_plan() -> None:
    made = Tower(3).session(A=6, **PIPELINE)
    for ipu, need in enumerate(footprints(made.executable, 1472)):
        assert need.data == made.executable.plan.bytes_of(ipu)
        assert need.total == sum(need.parts().values())
    assert footprints(made.executable, 1472)[0].stashes > 0
    assert footprints(made.executable, 1472)[1].fifos > 0


@pytest.mark.parametrize("kind", ["model", "offline"])
def test_a_model_that_does_not_fit_is_refused_with_remedies(kind: str) -> None:
    with pytest.raises(popart.OutOfMemoryException) as caught:
        session(4, kind, R=2).prepareDevice()
    text = str(caught.value.args[0])
    assert text.startswith("Out of memory: IPU 0 needs ")
    assert len(re.findall(r"saves about [\d.,]+ [KM]iB", text)) == 3
    needed, has, _ = (float(number) for number in re.findall(r"([\d.]+) MiB", text)[:3])
    assert has == pytest.approx(4 * 624 * 1024 / 2**20, abs=0.006)
    row = next(line for line in text.splitlines() if line.split()[:1] == ["0"])
    total, total_unit, free, free_unit = row.split()[-4:]
    assert (float(total), total_unit, free_unit) == (needed, "MiB", "MiB")
    assert -float(free) == pytest.approx(needed - has, abs=0.02)


OFF_CHIP = popart.TensorLocationSettings(popart.TensorLocation(popart.TensorStorage.OffChip))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("autoRecomputation", {"autoRecomputation": popart.RecomputationType.Standard}),
        ("activationTensorLocationSettings", {"activationTensorLocationSettings": OFF_CHIP}),
        ("state off chip", {"optimizerStateTensorLocationSettings": OFF_CHIP}),
    ],
)
def test_a_remedy_saves_what_it_says(name: str, settings: dict[str, Any]) -> None:
    made = session(1472)
    executable, step = made._compilation.lowered(), made._compilation.step
    found = list(remedies(executable, made.deviceInfo.device, 0, step=step, advice=MEMORY_ADVICE))
    (said,) = [remedy.saved for remedy in found if name in remedy.what]
    plain, other = (
        footprints(each, 1472)[0] for each in (executable, session(1472, **settings)._compilation.lowered())
    )
    assert said == pytest.approx(plain.data - other.data, rel=0.1) or said == plain.total - other.total


def test_the_cheapest_that_suffice_come_first() -> None:
    savings = {"a": (5, 0.1), "b": (20, 0.9), "c": (15, 0.2), "d": (9, 0.5), "nothing": (0, 0.0)}
    found = cheapest([Remedy(what, saved, price) for what, (saved, price) in savings.items()], 10)
    assert [(remedy.what, remedy.suffices) for remedy in found] == [("c", True), ("b", True), ("d", False)]
    assert str(found[0]) == "c (saves about 15 B, which suffices)"


def test_nothing_goes_off_chip_where_there_is_no_streaming_memory() -> None:
    made = session(1216)
    executable, step = made._compilation.lowered(), made._compilation.step
    device = popart.DeviceManager().createIpuModelDevice({"ipuVersion": "ipu1"}).device
    found = list(remedies(executable, device, 0, step=step))
    assert found
    assert not any("off chip" in remedy.what for remedy in found)


def test_devices_without_a_budget_run_what_they_are_given() -> None:
    manager = popart.DeviceManager()
    assert memory_of(manager.createCpuDevice().device) is None
    assert (
        memory_of(manager.createIpuModelDevice({"tilesPerIPU": 10, "ipuVersion": "ipu1"}).device) == 10 * 256 * 1024
    )
    assert memory_of(manager.createIpuModelDevice({}).device) == 1472 * 624 * 1024
    assert np.isfinite(footprints(Tower(2).session(A=2).executable, 1472)[0].total)
