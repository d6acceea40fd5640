"""Modelled clock: the time of ipu-emu clock for a program is within the interval of the prediction for its job."""

from __future__ import annotations

from typing import Any

import pytest

from ipu_emu.cli.arguments.compile_model import CompileRequest
from ipu_emu.hardware import System
from ipu_emu.hardware.rates import host_rate
from ipu_emu.predict.calibration.profile import shipped
from ipu_emu.predict.prediction import Prediction
from ipu_emu.program.clock import CostCategory, ModelledMachine, TimelineSegment, timeline
from tests.helpers.sampling import sampled_product

POD = System.named("pod16")
#: The margin for recomputation, which is compiled in another way than predicted.
MARGIN = 1.12

JOBS = sampled_product(
    {
        "model": ["mlp", "resnet8", "transformer", "resnet50", "vit-b16"],
        "ipus": [1, 2, 4],
        "batch": [1, 2, 4, 8, 16],
        "schedule": ["", "grouped", "popart", "interleaved"],
        "recompute": ["", "Standard"],
        "replicas": [1, 4],
    }
)


def both(**options: Any) -> tuple[CompileRequest, TimelineSegment, Prediction, bool]:
    """A request, its clock, its prediction, and whether its plan fits."""
    request = CompileRequest(**options)
    profile = shipped()
    predicted = request.predicted(POD, profile, "2.3")
    assert predicted is not None
    compiled = request.compiled(POD)
    machine = ModelledMachine(POD, request.replicas, request.ipus, profile.rates("2.3"))
    return request, timeline(compiled.executable, machine), predicted, compiled.need.fits


@pytest.mark.parametrize(("model", "ipus", "batch", "schedule", "recompute", "replicas"), JOBS)
def test_the_clock_is_within_the_interval(
    model: str, ipus: int, batch: int, schedule: str, recompute: str, replicas: int
) -> None:
    ipus = min(ipus, 2) if model in ("mlp", "transformer") else ipus  # which has too few layers for more
    options = {"model": model, "ipus": ipus, "batch": batch, "recompute": recompute, "replicas": replicas}
    options |= {"schedule": schedule if ipus > 1 else "", "accumulation": 4 * ipus, "optimiser": "momentum"}
    request, clock, predicted, fits = both(**options)
    low, high = predicted.interval
    assert low / MARGIN <= request.samples / clock.seconds <= high * MARGIN
    assert (predicted.verdict != "does not fit") if fits else (predicted.verdict != "fits")


@pytest.mark.parametrize(("model", "batch"), [("mlp", 1), ("mlp", 16), ("resnet8", 1), ("transformer", 1)])
@pytest.mark.parametrize("training", [False, True])
def test_short_ops_take_what_their_starts_and_syncs_take(model: str, batch: int, training: bool) -> None:
    """In small networks they are nearly the whole step."""
    _, clock, predicted, _ = both(model=model, batch=batch, training=training, accumulation=4)
    assert clock.seconds == pytest.approx(predicted.step, rel=0.12)
    assert predicted.slot_classes["starts"] > 0.5 * sum(predicted.slot_classes.values())


@pytest.mark.parametrize(("model", "replicas", "batch"), [("resnet8", 2, 8), ("resnet50", 16, 8), ("resnet50", 4, 1)])
def test_shared_statistics_take_one_message_in_each_pass(model: str, replicas: int, batch: int) -> None:
    options = {"model": model, "replicas": replicas, "batch": batch, "accumulation": 4}
    request, clock, predicted, _ = both(**options, bn_span=2)
    low, high = predicted.interval
    assert low <= request.samples / clock.seconds <= high
    _, plain, alone, _ = both(**options)
    more = clock.by_category()[CostCategory.COLLECTIVE] - plain.by_category()[CostCategory.COLLECTIVE]
    terms = [sum(prediction.terms[name] for name in ("ipu_links", "fixed")) for prediction in (predicted, alone)]
    assert more == pytest.approx(terms[0] - terms[1], rel=0.03)


@pytest.mark.parametrize("shared", [(), ("states",)])
@pytest.mark.parametrize("ipus", [2, 4])
def test_ipus_reduce_their_own_gradients_in_turn(ipus: int, shared: tuple[str, ...]) -> None:
    """The last IPU of ResNet-50 has most of the gradients."""
    options = {"model": "resnet50", "ipus": ipus, "replicas": 4, "batch": 4, "schedule": "grouped"}
    request, clock, predicted, _ = both(**options, accumulation=16, shared=shared, optimiser="momentum")
    low, high = predicted.interval
    assert low <= request.samples / clock.seconds <= high
    reduced = clock.by_category()[CostCategory.COLLECTIVE]
    alone = both(**options | {"replicas": 1}, accumulation=16, optimiser="momentum")[2]
    assert reduced == pytest.approx(predicted.terms["ipu_links"] - alone.terms["ipu_links"], rel=0.1)


def test_ipus_that_take_turns_share_a_network_and_copy_in_both_passes() -> None:
    request, clock, predicted, _ = both(model="resnet50", ipus=2, batch=4, accumulation=4)
    busy, terms = clock.by_category(), predicted.terms
    assert busy[CostCategory.HOST] == pytest.approx(terms["host"], rel=0.02)
    assert busy[CostCategory.COPY] == pytest.approx(terms["ipu_links"], rel=0.02)
    assert host_rate(1) * 2 == host_rate(2) == host_rate(4) / 2
    assert request.samples / clock.seconds == pytest.approx(predicted.throughput, rel=0.02)


@pytest.mark.parametrize(("model", "ipus", "batch"), [("resnet50", 4, 4), ("resnet50", 4, 1), ("resnet50", 2, 1)])
def test_interleaved_stages_wait_for_the_longest_task_of_a_slot(model: str, ipus: int, batch: int) -> None:
    """The busiest IPU of ResNet-50 is not the one that receives most from its neighbours."""
    options = {"model": model, "ipus": ipus, "batch": batch, "accumulation": 16, "optimiser": "momentum"}
    request, clock, predicted, _ = both(**options, schedule="interleaved")
    assert request.samples / clock.seconds == pytest.approx(predicted.throughput, rel=0.06)


def test_results_of_inference_go_to_the_host() -> None:
    """Logits of 1,024 positions take longer than the network."""
    _, clock, predicted, _ = both(model="gpt2", training=False)
    assert clock.by_category()[CostCategory.HOST] == pytest.approx(predicted.terms["host"], rel=0.001)
    assert predicted.limiting == "host"


@pytest.mark.parametrize("off_chip", ["weights", "states", "accumulators", "activations"])
@pytest.mark.parametrize(("accumulation", "recompute"), [(1, ""), (4, ""), (4, "Standard")])
def test_off_chip_tensors_are_transferred_as_often_as_compiled(
    off_chip: str, accumulation: int, recompute: str
) -> None:
    options = {"model": "resnet50", "batch": 1, "optimiser": "momentum", "recompute": recompute}
    _, clock, predicted, _ = both(**options, accumulation=accumulation, off_chip=(off_chip,))
    assert clock.seconds == pytest.approx(predicted.step, rel=0.05)
    streamed = clock.by_category().get(CostCategory.STREAMING, 0.0)
    assert streamed == pytest.approx(predicted.terms["streaming"], rel=0.06)


def test_off_chip_accumulators_of_a_tied_table_are_two_sums() -> None:
    options = {"model": "bert-base", "length": 32, "masked": 4, "accumulation": 4, "off_chip": ("accumulators",)}
    _, clock, predicted, _ = both(**options)
    assert clock.seconds == pytest.approx(predicted.step, rel=0.01)


@pytest.mark.parametrize(("ipus", "schedule"), [(1, ""), (2, ""), (2, "grouped")])
def test_off_chip_weights_are_loaded_for_every_micro_batch_of_inference(ipus: int, schedule: str) -> None:
    """IPUs of a pipeline load theirs at the same time, others in turn."""
    options = {"model": "bert-base", "length": 32, "masked": 4, "ipus": ipus, "schedule": schedule}
    _, clock, predicted, _ = both(**options, training=False, accumulation=6, off_chip=("weights",))
    assert clock.seconds == pytest.approx(predicted.step, rel=0.1)
    assert predicted.limiting == "streaming"
