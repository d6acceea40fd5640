"""Predictions: terms that add up and follow their rates, intervals, memory of published configurations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gcl import LINK_BANDWIDTH, LinkClass
from ipu_emu.cli.arguments.compile_model import CompileRequest
from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import System
from ipu_emu.hardware.rates import NOMINAL, Rates
from ipu_emu.predict.calibration.fit import profile_of
from ipu_emu.predict.calibration.profile import SHIPPED_ROWS, Profile, shipped
from ipu_emu.predict.calibration.rows import layer_counts, read_rows
from ipu_emu.predict.job import Job
from ipu_emu.predict.memory import Shape
from ipu_emu.predict.model import placed
from ipu_emu.predict.placement import by_counts
from ipu_emu.predict.prediction import Prediction, anchored, predict, what_if_factors
from ipu_emu.program.clock import ModelledMachine, timeline
from ipu_emu.program.clock.pricing import CostCategory


def job(model: str, system: str = "pod16", **options: Any) -> Job:
    if isinstance(options.get("layers"), str):
        options["layers"] = layer_counts(options["layers"])
    return Job(model, System.named(system), **options)


RESNET = job("resnet50", replicas=16, batch=20, accumulation=10, recompute=True, optimiser="lars", bn_span=2)
POD64 = System.named("pod64")
PAIR = replace(RESNET, system=System.named("pod128"), replicas=128, accumulation=2)
BERT = job(
    "bert-large",
    replicas=4,
    ipus=4,
    batch=2,
    accumulation=192,
    length=512,
    masked=76,
    packing=2,
    vocabulary=30400,
    optimiser="lamb",
    recompute=True,
    layers="3,7,7,7",
    shared=("states",),
    off_chip=("states",),
)
#: Published configurations that ran on real IPUs.
RAN = {
    "ResNet-50": RESNET,
    "BERT-large 512 on 4": BERT,
    "BERT-large 512 on 8": replace(
        BERT, replicas=2, ipus=8, accumulation=96, layers=layer_counts("0,3,3,3,3,4,4,4"), off_chip=()
    ),
    "BERT-large 128 on 4": replace(BERT, length=128, masked=20, batch=8, accumulation=2048, packing=1.17),
    "BERT-base 128 on 4": job(
        "bert-base",
        replicas=4,
        ipus=4,
        batch=32,
        accumulation=512,
        recompute=True,
        optimiser="lamb",
        layers="0,4,4,4",
    ),
    "GPT-2 on 4": job("gpt2", replicas=4, ipus=4, batch=1, accumulation=2048, recompute=True, optimiser="adam"),
    "ViT-B on 4": job(
        "vit-b16", "pod64", replicas=16, ipus=4, batch=8, accumulation=512, recompute=True, optimiser="adam"
    ),
}


def test_sharded_weights_are_gathered_twice_in_each_slot() -> None:
    unshared = replace(BERT, off_chip=())
    plain, sharded = (predict(job, None).terms for job in (unshared, replace(unshared, shared=("weights", "states"))))
    slots = BERT.accumulation * (1 + plain["ramps"] / plain["compute"])
    gathered = (sharded["ipu_links"] - plain["ipu_links"]) / (2 * slots)
    # An IPU gathers all but its own quarter, by itself over its rail.
    received = 2 * placed(unshared).work.trained.max() * 3 / 4
    assert gathered == pytest.approx(received / LINK_BANDWIDTH[LinkClass.UP], rel=0.01)
    assert sum(sharded.values()) > sum(plain.values())
    alone = predict(replace(unshared, replicas=1, shared=("weights", "states")), None).terms
    assert alone["ipu_links"] == predict(replace(unshared, replicas=1), None).terms["ipu_links"]


@pytest.mark.parametrize("job", [RESNET, PAIR, *RAN.values()])
def test_terms_add_up(job: Job) -> None:
    prediction = predict(job, shipped())
    assert sum(prediction.terms.values()) == pytest.approx(job.global_batch / prediction.throughput, rel=1e-9)
    assert all(seconds >= 0 for seconds in prediction.terms.values())


@pytest.mark.parametrize(
    ("rate", "term", "job"),
    [
        ("ipu-links", "ipu_links", RESNET),
        ("gw-links", "gw_links", PAIR),
        ("streaming", "streaming", BERT),
        ("host", "host", replace(RESNET, overlap_io=False)),
    ],
)
def test_twice_the_rate_halves_its_term_exactly(rate: str, term: str, job: Job) -> None:
    prediction = predict(job, shipped())
    faster = prediction.changed(what_if_factors([f"{rate}=x2"]))
    assert prediction.terms[term] > 0
    for name, seconds in prediction.terms.items():
        assert faster.terms[name] == (seconds / 2 if name == term else seconds)


def test_a_step_waits_for_every_further_host() -> None:
    """One after the other, in groups if there are many; not without a calibration, in inference or on one host."""
    waits = [Rates(host_wait=2.0).waits(hosts) for hosts in (1, 4, 8, 64, 128)]
    assert waits == [0, 6, 14, 126, 128]
    wait = shipped().rates("2.3").host_wait
    hosts = [predict(replace(PAIR, hosts=count), shipped()).terms["host"] for count in (1, 4, 8)]
    assert hosts == pytest.approx([0, 3 * wait, 7 * wait])
    assert predict(PAIR, None).terms["host"] == 0
    assert predict(replace(PAIR, training=False, recompute=False), shipped()).terms["host"] == 0
    request = CompileRequest("resnet8", replicas=64)
    executable = request.compiled(POD64).executable
    far, near = (timeline(executable, ModelledMachine(POD64, 64, rates=Rates(host_wait=wait))) for wait in (2.0, 0.0))
    assert far.seconds - near.seconds == pytest.approx(3 * 2.0)


@pytest.mark.parametrize("model", ["gpt2", "vit-b16"])
def test_every_ipu_recomputes_as_compiled_programs_do(model: str) -> None:
    model_placed = predict(job(model, ipus=4, recompute=True), None).model
    forward = replace(model_placed, job=replace(model_placed.job, training=False, recompute=False))
    for ipu in range(4):
        again, plain = (
            model_placed.sample_seconds(NOMINAL, ipu, recompute=recompute).sum() for recompute in (True, False)
        )
        assert again - plain == pytest.approx(forward.sample_seconds(NOMINAL, ipu, recompute=False).sum())


def test_statistics_of_neighbours_take_no_longer_on_more_replicas() -> None:
    """The time of ipu-emu clock: two collectives of each normalisation in each pass, between two replicas."""
    request = CompileRequest("resnet8", replicas=16, bn_span=2)
    executable = request.compiled(POD64).executable
    busy = [timeline(executable, ModelledMachine(POD64, count)).by_category() for count in (2, 16)]
    assert all(seconds[CostCategory.COLLECTIVE] < 100e-6 for seconds in busy)


def test_compute_is_that_of_the_busiest_ipu() -> None:
    """Seven layers of BERT-large and its pooler, forward, recomputed and twice backward, at the share of the peak."""
    prediction = predict(BERT, shipped())
    share = prediction.rates.product
    tokens, h, length = 2 * 512, 1024, 512
    flops = 7 * 4 * tokens * (24 * h * h + 4 * length * h) + 4 * 2 * (2 * h * h + 4 * h)
    assert prediction.busiest == 3
    matrix = prediction.slot_classes["product"] + prediction.slot_classes["attention"]
    assert matrix == pytest.approx(flops / (1472 * 1.33e9 * 128 * share), rel=1e-9)
    assert prediction.terms["ramps"] == pytest.approx(prediction.terms["compute"] * 3 / 192)


def test_schedules_take_their_slots() -> None:
    """Interleaved stages wait for each other in every slot; without a pipeline, IPUs work in turn."""
    vit = job("vit-b16", replicas=4, ipus=4, batch=8, accumulation=192)
    steps = {kind: predict(replace(vit, schedule=kind), None).step for kind in ("grouped", "popart", "interleaved")}
    assert steps["popart"] == pytest.approx(steps["grouped"], rel=1e-3)
    assert steps["interleaved"] > steps["grouped"]
    assert predict(replace(vit, schedule="sequential"), None).step > 3 * steps["grouped"]


def test_a_tied_head_refuses_the_interleaved_schedule_in_the_words_of_the_compiler() -> None:
    with pytest.raises(EmulatorError, match="does not currently support multiple") as refused:
        predict(replace(BERT, schedule="interleaved"), None)
    small = CompileRequest("gpt2", ipus=2, schedule="interleaved", accumulation=4, length=16)
    with pytest.raises(EmulatorError) as compiled:
        small.compiled_until("form-stages")
    assert str(compiled.value) == str(refused.value)


@pytest.mark.parametrize("name", RAN)
def test_published_configurations_fit(name: str) -> None:
    assert predict(RAN[name], shipped()).verdict != "does not fit"


def test_configurations_that_could_not_run_do_not_fit() -> None:
    single = replace(BERT, ipus=1, replicas=1, layers=())
    for job in (replace(RESNET, recompute=False), single, replace(BERT, recompute=False)):
        prediction = predict(job, shipped(), may_move_states=True)
        assert prediction.verdict == "does not fit"
        assert any("does not fit" in line for line in prediction.warnings)


def test_states_go_to_streaming_memory_rather_than_not_fit() -> None:
    job = replace(BERT, length=128, masked=20, batch=8, shared=(), off_chip=())
    assert predict(job, shipped()).verdict == "does not fit"
    moved = predict(job, shipped(), may_move_states=True)
    assert moved.verdict != "does not fit"
    assert moved.terms["streaming"] > 0
    assert "Streaming Memory" in moved.warnings[0]


def test_a_balanced_placement_fits_bert_large_on_four_ipus() -> None:
    balanced = predict(replace(BERT, layers=()), shipped())
    assert balanced.verdict == "fits"
    assert balanced.throughput > predict(BERT, shipped()).throughput
    first = balanced.model.work.placement[0]
    assert (first[0].name, first[-1].name) == ("embedding", "words")


def test_parts_of_layers() -> None:
    counts = layer_counts("1/1,3/3,4/3,4/5")
    placement = by_counts(RAN["BERT-base 128 on 4"].network, counts)
    kinds = [[block.kind for block in blocks if block.kind in ("attention", "feed-forward")] for blocks in placement]
    assert [(ipu_kinds.count("attention"), ipu_kinds.count("feed-forward")) for ipu_kinds in kinds] == list(counts)
    with pytest.raises(EmulatorError, match=r"11.*bert-base.*12 layers"):
        by_counts(RAN["BERT-base 128 on 4"].network, layer_counts("0,4,4,3"))
    with pytest.raises(EmulatorError, match="attention before feed-forward"):
        by_counts(RAN["BERT-base 128 on 4"].network, layer_counts("0/4,4/4,4/4,4/0"))


def test_the_interval_contains_the_prediction_and_is_wider_for_unlike_jobs() -> None:
    def width(prediction: Prediction) -> float:
        low, high = prediction.interval
        assert low < prediction.throughput < high
        return high / low

    known = width(predict(RESNET, shipped()))
    bow = predict(replace(RESNET, system=System.named("bow-pod16")), shipped())
    other = predict(job("unet", batch=1, recompute=True), shipped())
    assert 1.05 < known < 1.25
    assert known < width(bow) < width(other)
    assert any("not validated: no row is of Bow" in line for line in bow.warnings)
    assert any("not validated: no row is of unet" in line for line in other.warnings)


def test_an_unknown_rate_widens_the_interval_downwards() -> None:
    lost = {"value": 1.0, "sigma": 0.0, "identified": False}
    known = shipped().parameters
    parameters = tuple(
        replace(parameter, **lost) if parameter.name == "gateway_share" else parameter for parameter in known
    )
    unknown: Profile = replace(shipped(), parameters=parameters)
    single, two = predict(RESNET, unknown), predict(PAIR, unknown)
    assert not any("gateway_share" in line for line in single.warnings)
    assert any("gateway_share: no row determines it" in line for line in two.warnings)
    low, high = two.interval
    assert two.throughput / low > 1.03 * high / two.throughput
    assert predict(PAIR, unknown, unknown=100).interval[0] < low


def test_a_release_that_no_row_is_of_widens_the_interval_so_that_it_holds_its_rows() -> None:
    rows = read_rows(SHIPPED_ROWS.read_text(), "rows.csv")
    profile = profile_of([row for row in rows if row.job.release == "2.3"], "rows of SDK 2.3")
    old = [row for row in rows if row.job.release == "2.1"]
    held = 0
    for row in old:
        low, high = predict(row.job, profile).interval
        held += low <= row.job.global_batch / row.seconds <= high
    assert held >= 0.8 * len(old)


def test_an_anchor_replaces_one_share() -> None:
    profile, note = anchored(replace(PAIR, accumulation=10), shipped(), "pod16=29543")
    assert "convolution_share" in note
    assert predict(RESNET, profile).throughput == pytest.approx(29543, rel=1e-3)
    same, _ = anchored(PAIR, shipped(), "pod16/10=29543")
    assert same.values() == pytest.approx(profile.values())
    for text in ("pod16", "pod16=0", "pod17=3", "pod16=1e12"):
        with pytest.raises(EmulatorError):
            anchored(PAIR, shipped(), text)


def test_input_limits_where_it_does_not_overlap_or_is_slow() -> None:
    prediction = predict(RESNET, shipped())
    assert prediction.terms["host"] == 0
    plain = predict(replace(RESNET, overlap_io=False, input_dtype="float16"), shipped())
    assert plain.terms["host"] == pytest.approx(10 * 20 * 4 * (150_528 * 2 + 4) / 12.5e9)
    slow = predict(replace(RESNET, host_rate=1e9), shipped())
    assert slow.throughput == pytest.approx(1e9 / 150_532, rel=0.01 + slow.terms["ipu_links"] / slow.step)
    assert slow.limiting == "host"


def test_instances_use_as_many_hosts_at_most() -> None:
    """A single instance uses one of a Pod64's four hosts, so only that host prepares input."""
    job = replace(PAIR, system=System.named("pod64"), replicas=64, host_rate=1e9, hosts=4)
    every, single = predict(replace(job, instances=32), None), predict(replace(job, instances=1), None)
    assert every.step == predict(job, None).step
    assert single.throughput == pytest.approx(every.throughput / 4, rel=0.05)
    assert single.one_replica > 0
    with pytest.raises(EmulatorError, match=r"--instances 7.*64 replicas"):
        replace(job, instances=7)


def test_sharding_states_changes_memory_not_the_collective() -> None:
    """Reduce-scatter and all-gather together move what an all-reduce moves."""
    alone = predict(replace(BERT, shared=(), off_chip=()), None)
    shared = predict(replace(BERT, off_chip=()), None)
    assert shared.memories[1].parts["states"] == alone.memories[1].parts["states"] / 4
    assert shared.terms["ipu_links"] == pytest.approx(alone.terms["ipu_links"], rel=0.01)
    assert shared.terms["update"] < alone.terms["update"]


def test_merged_collectives_have_fewer_latencies() -> None:
    merged, single = (predict(replace(RESNET, merge_collectives=merge), None) for merge in (True, False))
    assert single.terms["fixed"] > merged.terms["fixed"]


def test_arrays_give_what_single_jobs_give() -> None:
    import numpy as np

    jobs = [replace(RESNET, replicas=r, batch=b, accumulation=a) for r, b, a in ((16, 20, 10), (2, 4, 1), (8, 8, 3))]
    rates = Rates(0.3, 0.3, 0.4, 0.05)
    shape = Shape(
        *(np.array([getattr(job, name) for job in jobs]) for name in ("replicas", "batch", "accumulation")),
        np.array([True] * 3),
        np.array([False] * 3),
        np.array([False] * 3),
    )
    together = placed(RESNET).terms(rates, shape)
    for index, job in enumerate(jobs):
        alone = placed(job).terms(rates, Shape.of(job))
        for name, seconds in alone.items():
            assert together[name][index] == pytest.approx(float(seconds), rel=1e-12, abs=1e-18)


def test_global_batches() -> None:
    assert RESNET.for_global_batch(3200).accumulation == 10
    assert BERT.for_global_batch(3072).accumulation == 192
    with pytest.raises(EmulatorError, match="the nearest is 3200"):
        RESNET.for_global_batch(3300)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"replicas": 17}, "17 replicas of 1 IPU requested; Pod16 has 16 IPUs"),
        ({"ipus": 3}, "3 IPUs per replica are not possible"),
        ({"batch": 0}, "batch 0 is not possible"),
        (
            {"optimiser": "adagrad"},
            "optimiser 'adagrad' is unknown; use sgd, momentum, lars, rmsprop",
        ),
        ({"embedding_ipu": 1}, "a replica has IPUs 0 to 0"),
        ({"ipus": 0}, "^0 IPUs per replica are not possible; use 1, 2, 4, 8, 16$"),
        ({"bn_span": 2}, "--bn-span 2 does not divide 1 replica"),
        ({"off_chip": ("gradients",)}, "'gradients' cannot be off chip"),
        ({"hosts": 1000}, "^--hosts 1,000: Pod16 has 4 IPU-Machines; use at most 4$"),
        ({"release": "two"}, "release 'two' is not a number of an SDK; use one such as 2.3"),
    ],
)
def test_mistakes(options: dict[str, Any], said: str) -> None:
    with pytest.raises(EmulatorError, match=said):
        job("resnet50", **options)


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("mlp", {"bn_span": 2, "replicas": 2}, "mlp has no batch normalisation; leave out --bn-span"),
        ("resnet50", {"packing": 2}, "--packing 2: a sample of resnet50 is not a sequence"),
        ("bert-base", {"input_dtype": "uint8"}, "--input-dtype uint8: the input of bert-base is word numbers"),
    ],
)
def test_options_that_the_network_cannot_have(model: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(EmulatorError, match=said):
        predict(job(model, **options), shipped())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schedule": "popart"}, "--schedule has no effect: a single IPU has no pipeline"),
        ({"ipus": 2, "embedding_ipu": 1}, "--embedding-ipu has no effect: resnet50 has no embedding"),
        ({"off_chip": ("states",)}, "--off-chip states has no effect: sgd has no states"),
        ({"off_chip": ("accumulators",)}, "--off-chip accumulators has no effect: a single micro-batch needs none"),
        ({"shared": ("weights",)}, "--shared weights has no effect: there is one replica"),
        ({"merge_collectives": False}, "--no-merge-collectives has no effect: there is one replica"),
        ({"hosts": 2}, "--hosts has no effect: only 1 host can have a replica"),
        ({"training": False, "optimiser": "adam"}, "--optimiser has no effect: inference has no backward pass"),
        ({"training": False, "recompute": True}, "--recompute has no effect: inference has no backward pass"),
    ],
)
def test_options_without_effect_are_named(options: dict[str, Any], said: str) -> None:
    name = said.partition(" has ")[0]
    changed, plain = predict(job("resnet50", **options), shipped()), predict(job("resnet50"), shipped())
    assert said in changed.warnings
    assert not any(name in line for line in plain.warnings)
    if changed.job.training and changed.job.ipus == 1:
        assert changed.terms == plain.terms


@pytest.mark.parametrize(
    ("release", "counts_as"), [("1.4", "2.1"), ("2.1.0", "2.1"), ("2.2", "2.1"), ("2.5", "2.3"), ("3.10.1", "2.3")]
)
def test_other_releases_count_as_the_last_calibrated_one_before(release: str, counts_as: str) -> None:
    prediction, known = (predict(replace(RESNET, release=name), shipped()) for name in (release, counts_as))
    assert prediction.terms == known.terms
    assert prediction.interval[0] < known.interval[0] < known.interval[1] < prediction.interval[1]
    assert f"not validated: no row is of SDK {release}, which is predicted as {counts_as}" in prediction.warnings
    assert not any("SDK" in line for line in known.warnings)


def test_without_a_calibration_everything_runs_at_its_peak() -> None:
    prediction = predict(RESNET, None)
    assert prediction.rates == NOMINAL
    assert prediction.interval == (prediction.throughput, prediction.throughput)
    assert prediction.throughput == pytest.approx(predict(RESNET, shipped()).uncalibrated)
