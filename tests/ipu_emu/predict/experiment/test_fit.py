"""Fit: steps of a machine whose terms are known are taken apart again, and noise widens the intervals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipu_emu.predict.experiment.fit import Fit, fit
from ipu_emu.predict.experiment.limits import limits
from ipu_emu.predict.experiment.measuring import Measurements, measure
from ipu_emu.predict.experiment.plan import Configuration, Plan
from ipu_emu.predict.experiment.step_use import StepUse

T, C, CALL, BYTE = 2e-3, 5e-3, 1e-4, 2e-9


class Machine:
    """Steps of 64 samples in all, or of 64 for each replica, on ``cores``; replicas take turns in their instance."""

    def __init__(self, *, weak: bool = False, noise: float = 0.0, cores: int = 2, seed: int = 0) -> None:
        self.weak, self.noise, self.cores = weak, noise, cores
        self.random = np.random.default_rng(seed)
        self.order: list[str] = []

    def __call__(self, configuration: Configuration, folder: Path, seconds: float) -> StepUse:
        self.order.append(configuration.name)
        n = configuration.instances
        samples = 64.0 * (configuration.replicas if self.weak else 1)
        work = (T * samples / min(n, self.cores) + C) * (1 + self.noise * self.random.standard_normal())
        calls, nbytes = 4.0 * (n > 1), 1e6 * (n > 1)
        moving, waiting = CALL * calls + BYTE * nbytes, 0.03 * work * (n > 1)
        parts = (work - C, 0.0, waiting, moving, C)
        return StepUse(sum(parts), parts=parts, calls=calls, nbytes=nbytes, samples=samples)


def experiment(machine: Machine) -> tuple[Measurements, Fit]:
    plan = replace(Plan.of(["train.py"], "1x1,1x2,2x2,1x4,2x4,4x4", (1,), seconds=2.0), cores=2)
    runs = measure(plan, machine)
    return runs, fit(runs)


@pytest.mark.parametrize("weak", [False, True])
def test_known_terms_are_recovered(weak: bool) -> None:
    runs, fitted = experiment(Machine(weak=weak))
    assert fitted.shares.scaling == ("weak" if weak else "strong")
    assert fitted.lanes == "instances"
    for name, value in (("t", T), ("t_cores", T), ("c", C), ("straggling", 0.03)):
        assert fitted.terms[name].value == pytest.approx(value, rel=1e-6), name
    assert fitted.terms["call"].value * 4 + fitted.terms["byte"].value * 1e6 == pytest.approx(4 * CALL + 1e6 * BYTE)
    for configuration in runs.uses:
        assert abs(fitted.residual(configuration, runs.median(configuration, "seconds", range(runs.rounds)))) < 1e-6


def test_noise_widens_the_intervals() -> None:
    calm, noisy = (experiment(Machine(noise=noise))[1].terms["t"] for noise in (0.001, 0.1))
    assert noisy.high - noisy.low > 5 * (calm.high - calm.low)
    assert calm.low <= calm.value <= calm.high


def test_what_is_not_there_cannot_be_told_from_0() -> None:
    runs, fitted = experiment(Machine(cores=99))
    assert fitted.terms["t_cores"].is_zero
    assert not fitted.terms["t"].is_zero
    assert not any("share" in limit.text for c in runs.uses for limit in limits(runs, fitted, c))


def test_the_first_limit_where_instances_share_cores() -> None:
    runs, fitted = experiment(Machine())
    first = limits(runs, fitted, Configuration(4, 4))[0]
    assert first.text == "4 instances share 2 cores: compute cannot scale here"
    assert first.share == pytest.approx(0.5)


def test_without_samples_the_times_tell_strong_from_weak() -> None:
    for weak in (False, True):
        machine = Machine(weak=weak)

        def unknown(*arguments: Any, machine: Machine = machine) -> StepUse:
            return StepUse(machine(*arguments).seconds, "a line that it printed")

        plan = replace(Plan.of(["train.py"], "1x1,1x2,2x2", (1,), seconds=0.5), cores=2)
        fitted = fit(measure(plan, unknown))
        assert fitted.shares.scaling == ("weak" if weak else "strong")
        assert fitted.terms["t"].value == pytest.approx(64 * T, rel=0.2)
