"""Pipelines: every schedule has the bits of the run without a pipeline, regardless of timing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from ipu_emu import popart
from ipu_emu.popart import RecomputationType
from tests.helpers.sampling import sampled_product
from tests.ipu_emu.helpers.pipelined_models import EXPLICIT, KEPT, PIPELINE, Tower, threads

MEAN = {"accumulationAndReplicationReductionType": popart.ReductionType.Mean}
RUNNING = MEAN | {"meanAccumulationAndReplicationReductionStrategy": popart.MeanReductionStrategy.Running}
CLIPS = [popart.ClipNormSettings.clipAllWeights(0.2)]

HOW: dict[str, dict[str, Any]] = {
    "sharded": {"virtualGraphMode": popart.VirtualGraphMode.Manual},
    "popart": PIPELINE,
    "explicit": EXPLICIT,
    "grouped": PIPELINE | {"pipelineSchedule": "grouped"},
    "interleaved": PIPELINE | {"pipelineSchedule": "interleaved"},
    "sequential": PIPELINE | {"pipelineSchedule": "sequential"},
}
#: The IPU of each stage.
IPUS = {
    "in order": range,
    "reversed": lambda stages: reversed(range(stages)),
    "in turns": lambda stages: (stage % 2 for stage in range(stages)),
}
SCALED = {"lossScaling": (4.0, False)}
OPTIMIZERS = {
    "momentum": lambda: popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True), **SCALED}),
    "Lamb": lambda: popart.Adam({"defaultLearningRate": (0.01, True), **SCALED}, popart.AdamMode.Lamb),
    "clipped": lambda: popart.SGD({"defaultLearningRate": (0.1, False), **SCALED}, CLIPS),
}
LOSS_SCALING = {"automaticLossScalingSettings": popart.AutomaticLossScalingSettings(True, None, 2.0**-12, 0.01, 1)}
OPTIONS: dict[str, dict[str, Any]] = {"sum": {}, "mean": MEAN, "running mean": RUNNING, "loss scaling": LOSS_SCALING}
RECOMPUTE = (RecomputationType.NoRecompute, RecomputationType.Standard, RecomputationType.Pipeline)

AXES: dict[str, tuple[Any, ...]] = {
    "how": tuple(HOW),
    "stages": (2, 3, 4, 5),
    "ipus": tuple(IPUS),
    "rounds": (1, 2),
    "bps": (1, 2),
    "R": (1, 2),
    "dtype": (np.float32, np.float16),
    "optimizer": tuple(OPTIMIZERS),
    "options": tuple(OPTIONS),
    "returns": ("All", "Sum", "Final"),
    "recompute": RECOMPUTE,
    "kept": tuple(KEPT),
    "cpus": (1, 3),
}


def possible(case: Mapping[str, Any]) -> bool:
    """Interleaved stages need separate IPUs; recomputation of whole stages needs a pipeline on separate IPUs.

    Loss scaling adapts to gradients in FLOAT16.
    """
    if case["options"] == "loss scaling" and case["dtype"] is np.float32:
        return False
    shared = case["ipus"] == "in turns"
    by_stage = case["recompute"] is RecomputationType.Pipeline
    return not (shared and (case["stages"] == 2 or case["how"] == "interleaved" or by_stage)) and not (
        by_stage and case["how"] == "sharded"
    )


def pairwise() -> Iterator[dict[str, Any]]:
    """Cases with nearly all pairs of values of two axes, each the best of some random ones."""
    random, covered = np.random.default_rng(0), set()
    for _ in range(32):
        cases = [{name: values[random.integers(len(values))] for name, values in AXES.items()} for _ in range(150)]
        best = max(filter(possible, cases), key=lambda case: len(pairs(case) - covered))
        covered |= pairs(best)
        yield best


def pairs(case: Mapping[str, Any]) -> set[tuple[Any, ...]]:
    return set(combinations(case.items(), 2))


def trained(case: Mapping[str, Any], tower: Tower, **values: Any) -> dict[str, np.ndarray]:
    """Anchors and weights of two steps."""
    bps, A, R = case["bps"], 2 * case["stages"] * case["rounds"], case["R"]
    anchors = dict.fromkeys((tower.loss, tower.y), popart.AnchorReturnType(case["returns"]))
    options = OPTIONS[case["options"]] | values
    return tower.trained(bps=bps, A=A, R=R, anchors=anchors, optimizer=OPTIMIZERS[case["optimizer"]](), **options)


@pytest.mark.filterwarnings("ignore:Replicated tensor sharding has no effect")
@pytest.mark.parametrize("case", list(pairwise()), ids=lambda case: " ".join(map(str, list(case.values())[:3])))
def test_placement_and_schedule_change_no_bit(monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]) -> None:
    stages, dtype = case["stages"], case["dtype"]
    want = trained(case, Tower(stages, dtype=dtype))
    threads(monkeypatch, case["cpus"])
    placed = Tower(stages, IPUS[case["ipus"]](stages), dtype)
    weights = trained(case, placed, autoRecomputation=case["recompute"], **HOW[case["how"]], **KEPT[case["kept"]])
    assert weights.keys() == want.keys()
    for id in want:
        np.testing.assert_array_equal(weights[id], want[id], err_msg=id)


RATE = {"defaultLearningRate": (0.01, True)}
#: Optimisers that have fewer states than others of their kind.
FEW_STATES: dict[str, Any] = {
    **{mode.name: popart.Adaptive(RATE, mode) for mode in popart.AdaptiveMode},
    **{mode.name: popart.Adam(RATE, mode) for mode in (popart.AdamMode.AdamNoBias, popart.AdamMode.LambNoBias)},
}


@pytest.mark.parametrize("name", FEW_STATES)
def test_an_optimiser_may_have_few_states(name: str) -> None:
    tower, optimizer = Tower(2, plain=True), FEW_STATES[name]
    want = tower.trained(A=4, optimizer=optimizer)
    for how in ("sharded", "popart"):
        weights = tower.trained(A=4, optimizer=optimizer, **HOW[how])
        for id in want:
            np.testing.assert_array_equal(weights[id], want[id], err_msg=id)
    tower.trained(bps=4, optimizer=optimizer, **PIPELINE)


@pytest.mark.parametrize(("how", "stages"), sampled_product({"how": tuple(HOW), "stages": (2, 3, 5)}, strength=1))
def test_inference_gives_the_outputs_in_order(monkeypatch: pytest.MonkeyPatch, how: str, stages: int) -> None:
    threads(monkeypatch, 3)
    outputs = []
    for values in ({}, HOW[how]):
        tower = Tower(stages)
        session = tower.session(bps=4 * stages, training=False, anchors=[tower.y], **values)
        outputs.append(tower.run(session, bps=4 * stages))
    for id, value in outputs[0].items():
        np.testing.assert_array_equal(outputs[1][id], value, err_msg=id)
