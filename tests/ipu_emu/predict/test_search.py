"""Search and sweep: many configurations as arrays equal single predictions; ranks, and Pareto fronts."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import System
from ipu_emu.predict.calibration.profile import shipped
from ipu_emu.predict.job import Job
from ipu_emu.predict.prediction import predict
from ipu_emu.predict.search import Configurations, search, sweep, sweep_values

RESNET = Job("resnet50", System.named("pod64"), replicas=2, bn_span=2, optimiser="momentum", recompute=True)
BERT = Job("bert-large", System.named("bow-pod64"), optimiser="lamb")


def table(throughput: list[float], batch: list[float], spread: float = 0.01) -> Configurations:
    columns = {"ipus": np.ones(len(throughput), int)}
    sizes = np.ones(len(throughput))
    return Configurations(
        columns, np.array(throughput), np.array(batch), sizes, 10.0, 2 * sizes, spread, len(throughput)
    )


def test_a_sweep_gives_what_single_predictions_give() -> None:
    configurations = sweep(
        RESNET, shipped(), {"replicas": [2, 64], "batch": [1, 20], "accumulation": [3], "recompute": [0, 1]}
    )
    assert len(configurations) == 8
    for row in configurations.rows(8):
        alone = predict(
            replace(
                RESNET,
                replicas=row["replicas"],
                batch=row["batch"],
                accumulation=row["accumulation"],
                recompute=row["recompute"],
            ),
            shipped(),
        )
        assert row["samples_per_second"] == pytest.approx(alone.throughput, rel=1e-9)
        assert row["verdict"] == alone.verdict
        assert row["low_bytes"] == pytest.approx(alone.memories[0].low)


def test_a_sweep_over_pipelines_too() -> None:
    base = replace(BERT, shared=("states",), recompute=True)
    configurations = sweep(base, shipped(), {"ipus": [4, 8], "replicas": [8], "batch": [2], "accumulation": [64]})
    for row in configurations.rows(2):
        job = replace(base, ipus=row["ipus"], replicas=8, batch=2, accumulation=64)
        wanted = predict(job, shipped()).throughput
        assert row["samples_per_second"] == pytest.approx(wanted, rel=1e-9)


def test_a_search_keeps_the_global_batch_the_system_and_the_memory() -> None:
    configurations = search(BERT, shipped(), global_batch=4608)
    assert len(configurations) > 100
    assert set(configurations.global_batch) == {4608}
    assert (configurations.columns["ipus"] * configurations.columns["replicas"] <= 64).all()
    assert (configurations.low <= configurations.limit).all()
    assert (np.diff(configurations.throughput) <= 0).all()
    assert configurations.rows(1)[0]["rank"] == 1


def test_ties_share_a_rank() -> None:
    ranks = table([100.0, 99.5, 90.0, 89.9, 50.0], [1, 2, 3, 4, 5]).ranked().ranks
    assert list(ranks) == [1, 1, 3, 3, 5]


def test_the_front_has_the_rows_that_no_other_dominates() -> None:
    front = table([10.0, 9.0, 20.0, 20.0, 15.0], [1, 1, 4, 8, 4]).pareto()
    assert list(zip(front.global_batch, front.throughput, strict=True)) == [(1, 10.0), (4, 20.0)]


def test_two_hundred_thousand_configurations_a_second() -> None:
    axes = {"replicas": [2, 4, 8, 16, 32, 64], "batch": list(range(1, 33)), "accumulation": list(range(1, 1043))}
    sweep(RESNET, shipped(), axes)
    start = time.process_time()
    configurations = sweep(RESNET, shipped(), axes)
    assert len(configurations) > 200_000
    assert len(configurations) / (time.process_time() - start) > 200_000


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("batch=1..4", [1, 2, 3, 4]),
        ("replicas=1,2,4", [1, 2, 4]),
        ("replicas=16..128x2", [16, 32, 64, 128]),
        ("recompute=0,1", [0, 1]),
        ("batch=3,1..4", [3, 1, 2, 4]),
    ],
)
def test_values(text: str, values: list[int]) -> None:
    assert sweep_values(text)[1] == values


@pytest.mark.parametrize(
    "text",
    [
        *("batch", "colour=1", "batch=0", "batch=4..1", "recompute=2", "batch=1.5", "batch="),
        *("batch=1..8x0", "batch=1..8x1", "batch=1..8x-2", "batch=1..9000000,1..9000000"),
    ],
)
def test_invalid_values_are_refused(text: str) -> None:
    with pytest.raises(EmulatorError, match="is not valid"):
        sweep_values(text)


def test_mistakes() -> None:
    with pytest.raises(EmulatorError, match="no micro-batch and accumulation"):
        search(BERT, shipped(), global_batch=1.5)
    with pytest.raises(EmulatorError, match="does not divide 3 replicas"):
        sweep(RESNET, shipped(), {"replicas": [3]})
    with pytest.raises(EmulatorError, match="at most"):
        sweep(RESNET, shipped(), {"batch": range(1, 10_000), "accumulation": range(1, 10_000)})
    small = replace(BERT, model="llama-7b", system=System.named("pod4"))
    with pytest.raises(EmulatorError, match="no configuration of llama-7b fits"):
        search(small, shipped(), global_batch=64)
