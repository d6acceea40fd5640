"""Weight preloading: off-chip weights are loaded while the previous phase computes, with the bits of one IPU."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.engine.threads.worker_threads import Workers
from ipu_emu.program.instructions import Instruction, Preload, Repeat
from ipu_emu.session.options.tuning_enums import ExecutionPhaseIOSchedule
from tests.ipu_emu.helpers.pipelined_models import OFF, SHARED, WHOLE, located
from tests.ipu_emu.helpers.sessions import options

PHASES, WIDTH = 5, 16
OFF_CHIP = located(OFF, WHOLE, "weight")


class Phased:
    """A layer in each phase, on two IPUs in turn; on one IPU all weights are on it."""

    def __init__(self, ipus: int, *, A: int = 1, R: int = 1, io: Any = ExecutionPhaseIOSchedule.Preload, **how: Any):
        builder, random = popart.Builder(), np.random.default_rng(0)
        self.x = y = builder.addInputTensor("FLOAT", [8, WIDTH])
        self.weights: dict[str, np.ndarray] = {}
        for phase in range(PHASES):
            with builder.executionPhase(phase):
                value = (random.standard_normal((WIDTH, WIDTH)) / 4).astype(np.float32)
                weight = builder.addInitializedInputTensor(value, f"w{phase}")
                self.weights[weight] = np.empty_like(value)
                y = builder.aiOnnx.tanh([builder.aiOnnx.matmul([y, weight])])
                if phase == PHASES - 1:
                    self.loss = builder.aiGraphcore.l1loss([y], 0.1)
        opts = options(A=A, R=R, **(how if ipus > 1 else {}))
        if ipus > 1:
            opts.virtualGraphMode = popart.VirtualGraphMode.ExecutionPhases
            opts.executionPhaseSettings.phases, opts.executionPhaseSettings.weightIOSchedule = PHASES, io
        self.shape = (A, R, 8, WIDTH)
        device = popart.DeviceManager().createSimDevice({"numIPUs": ipus * R, "tilesPerIPU": 1472})
        flow = popart.DataFlow(1, {self.loss: popart.AnchorReturnType("All")})
        self.session = popart.TrainingSession(
            builder.getModelProto(), flow, self.loss, popart.ConstSGD(0.1), device, userOptions=opts
        )
        self.session.prepareDevice()

    def trained(self, steps: int = 3) -> list[np.ndarray]:
        """Losses of the steps, and the weights at the end."""
        self.session.weightsFromHost()
        anchors, losses = self.session.initAnchorArrays(), []
        for step in range(steps):
            data = np.random.default_rng(step).standard_normal(self.shape).astype(np.float32)
            self.session.run(popart.PyStepIO({self.x: data}, anchors))
            losses.append(anchors[self.loss].copy())
        self.session.weightsToHost()
        self.session.readWeights(popart.PyWeightsIO(self.weights))
        return [*losses, *self.weights.values()]


def preloads(program: Any) -> list[Preload]:
    preloads_inside: list[Preload] = []
    for part in program:
        inner: tuple[Instruction, ...] = part.body if isinstance(part, Repeat) else ()
        preloads_inside += [part] if isinstance(part, Preload) else preloads(inner)
    return preloads_inside


HOW: dict[str, dict[str, Any]] = {
    "off chip": OFF_CHIP,
    "made again": {**OFF_CHIP, "autoRecomputation": popart.RecomputationType.Standard},
    "shared": located(OFF, SHARED, "weight", "optimizerState"),
}


@pytest.mark.parametrize("thread", [True, False])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("A", "R"), [(1, 1), (3, 1), (2, 2)])
@pytest.mark.filterwarnings("ignore:Replicated tensor sharding has no effect")
def test_no_bit_differs(A: int, R: int, how: str, thread: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipu_emu.engine.engine.WORTH_PRELOADING", 0 if thread else 10**18)
    before = set(threading.enumerate())
    phased = Phased(2, A=A, R=R, **HOW[how])
    started = set(threading.enumerate()) - before
    assert {worker.name for worker in started} == ({"host-io-0"} if thread else set())
    for weight, want in zip(phased.trained(), Phased(1, A=A, R=R).trained(), strict=True):
        np.testing.assert_array_equal(weight, want)
    phased.session.close()
    assert not any(worker.is_alive() for worker in started)


def test_a_phase_fetches_the_weight_of_the_next() -> None:
    program = Phased(2, **OFF_CHIP).session.executable.program
    forward = preloads(program)[: PHASES - 1]
    for phase, part in enumerate(forward, start=1):
        assert {leaf.op.inputs[0] for leaf in part.loads} == {f"w{phase}"}
        assert {leaf.op.place.ipu for leaf in part.loads} == {phase % 2}
    backward = [leaf.op.inputs[0] for part in preloads(program)[PHASES - 1 :] for leaf in part.loads]
    assert backward == [f"w{phase}" for phase in range(PHASES - 2, 0, -1)]


def test_compute_hides_a_part_of_modelled_loads() -> None:
    sooner, later = (Phased(2, io=io, **OFF_CHIP).session for io in ExecutionPhaseIOSchedule)
    assert preloads(later.executable.program) == []
    before, after = (session.modelledSeconds() for session in (later, sooner))
    hidden = before["total"] - after["total"]
    assert 0 < hidden < before["Streaming Memory"] == after["Streaming Memory"]


def test_a_load_that_fails_ends_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipu_emu.engine.engine.WORTH_PRELOADING", 0)
    phased = Phased(2, **OFF_CHIP)
    phased.session.weightsFromHost()
    anchors = phased.session.initAnchorArrays()
    data = {phased.x: np.zeros(phased.shape, np.float32)}

    def fail(workers: Workers, parts: Any, **_: Any) -> None:
        raise OSError("the store is gone")

    with monkeypatch.context() as broken:
        broken.setattr(Workers, "start", fail)
        with pytest.raises(OSError, match="the store is gone"):
            phased.session.run(popart.PyStepIO(data, anchors))
    phased.session.run(popart.PyStepIO(data, anchors))
