"""Prediction: the step time of a job with its interval, its memory, its bottleneck, and the effect of other rates.

The 90 % interval covers the uncertainty of the parameters, the prediction error of rows left out of the calibration,
and a margin for jobs unlike the rows. A fraction that no row determines may be ``unknown`` times smaller than
nominal; a factor of a release that no row determines has the spread of its prior.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp, log, sqrt

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import System
from ipu_emu.hardware.rates import NOMINAL, Rates
from ipu_emu.predict import host
from ipu_emu.predict.calibration.profile import PARAMETERS, Profile, rates_of
from ipu_emu.predict.job import Job, calibrated_release, without_effect
from ipu_emu.predict.links import domains_of
from ipu_emu.predict.memory import VERDICTS, PredictedMemory, Shape
from ipu_emu.predict.model import TERMS, WHAT_IF, StepModel, placed
from ipu_emu.predict.work_per_ipu import CLASSES
from ipu_emu.program.schedules import in_flight
from popdist_py.messages.suggestion import did_you_mean

#: Standard deviations on each side of a 90 % interval.
_NINETY = 1.645
#: Added to the spread of the logarithm for jobs unlike all rows; guesses, because no row can tell.
_UNLIKE = {
    **{"network": 0.10, "family": 0.25, "generation": 0.05, "domains": 0.05, "inference": 0.20, "dtype": 0.20},
    "release": 0.04,
}


@dataclass(frozen=True)
class Prediction:
    """The predicted step of ``model.job``, with rates of ``profile`` or nominal ones; ``notes`` explain changes."""

    model: StepModel
    profile: Profile | None
    unknown: float = 10.0
    factors: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def job(self) -> Job:
        return self.model.job

    @cached_property
    def rates(self) -> Rates:
        rates = NOMINAL if self.profile is None else self.profile.rates(self.job.release)
        return rates.what_if(dict(self.factors))

    @cached_property
    def shape(self) -> Shape:
        return Shape.of(self.job)

    @cached_property
    def terms(self) -> dict[str, float]:
        """Seconds by name; their sum is the step."""
        return {name: float(value) for name, value in self.model.terms(self.rates, self.shape).items()}

    @cached_property
    def step(self) -> float:
        return sum(self.terms.values())

    @property
    def throughput(self) -> float:
        """Samples per second."""
        return self.job.global_batch / self.step

    def _step_with(self, rates: Rates) -> float:
        return float(sum(self.model.terms(rates.what_if(dict(self.factors)), self.shape).values()))

    @cached_property
    def uncalibrated(self) -> float:
        """Samples per second at nominal rates."""
        return self.job.global_batch / self._step_with(NOMINAL)

    # ---------------------------------------------------------------- the interval

    @cached_property
    def interval(self) -> tuple[float, float]:
        """Samples per second, low and high."""
        if self.profile is None:
            return self.throughput, self.throughput
        slopes = np.array([self._slope(index) for index in range(len(PARAMETERS))])
        variance = float(slopes @ np.array(self.profile.covariance) @ slopes) + self.profile.spread**2
        variance += sum(_UNLIKE[kind] ** 2 for kind in self.unlike)
        variance += sum(
            (slope * PARAMETERS[parameter.name].spread) ** 2
            for slope, parameter in zip(slopes, self.profile.parameters, strict=True)
            if parameter.unit == "factor" and not parameter.identified
        )
        width = exp(_NINETY * sqrt(variance))
        return self.throughput / width / self._unknown_factor, self.throughput * width

    def _slope(self, index: int) -> float:
        """Derivative of the logarithm of the step time by that of a parameter."""
        return (log(self._changed(index, 1 + 1e-4)) - log(self.step)) / 1e-4

    def _changed(self, index: int, factor: float) -> float:
        assert self.profile is not None
        values = self.profile.values()
        values[index] *= factor
        return self._step_with(rates_of(values, self.job.release))

    @cached_property
    def _unknown_factor(self) -> float:
        """The factor on the step time if unknown parameters were ``unknown`` times worse."""
        values = np.ones(len(PARAMETERS)) if self.profile is None else self.profile.values()
        for index, parameter in enumerate(self.profile.parameters if self.profile else ()):
            if not parameter.identified and parameter.unit != "factor":
                values[index] *= self.unknown if parameter.unit == "milliseconds" else 1 / self.unknown
        return self._step_with(rates_of(values, self.job.release)) / self.step

    @cached_property
    def unlike(self) -> list[str]:
        """The properties in which the job differs from all rows; each adds to the spread."""
        profile, job = self.profile, self.job
        if profile is None:
            return []
        differences = []
        if job.network.family not in profile.families:
            differences.append("family")
        elif job.model not in profile.models:
            differences.append("network")
        if job.system.generation.name not in profile.generations:
            differences.append("generation")
        if domains_of(job.replicas, job.ipus, job.system) > profile.most_domains:
            differences.append("domains")
        if job.release not in profile.releases:
            differences.append("release")
        return differences + ["inference"] * (not job.training) + ["dtype"] * (job.dtype != "float16")

    # ---------------------------------------------------------------- other numbers

    @cached_property
    def latency(self) -> float:
        """Seconds of a micro-batch from the host through all stages, without copies between IPUs; not 1 / throughput.

        In a pipeline it takes as many slots as micro-batches are in flight; gradients are the results of training.
        """
        job = self.job
        slots = 1 if job.ipus == 1 or job.takes_turns else in_flight(job.schedule, job.ipus, training=job.training)
        input_seconds = float(host.limits(job, 1, job.batch)["network"]) / self.rates.factor("host")
        return input_seconds + slots * self.terms["compute"] / job.accumulation

    @property
    def limiting(self) -> str:
        """The longest term of the step."""
        return max(TERMS, key=self.terms.__getitem__)

    @cached_property
    def busiest(self) -> int:
        return self.model.busiest(self.rates, self.shape)

    @cached_property
    def slot_classes(self) -> dict[str, float]:
        """Seconds of a slot of the busiest IPU by class of operations."""
        batch = np.array([self.job.batch])
        seconds = self.model.class_seconds(self.rates, self.busiest, batch, recompute=self.job.recompute)
        return dict(zip(CLASSES, map(float, seconds[:, 0]), strict=True))

    def utilisation(self, *, hardware: bool) -> float:
        """Fraction of the peak rate of the matrix units; with ``hardware``, recomputed operations count too."""
        peak = self.job.system.generation.peak(self.job.itemsize) * self.job.total_ipus
        return self.model.flops(hardware=hardware) * self.throughput / self.job.packing / peak

    @cached_property
    def one_replica(self) -> float:
        """Samples per second of a single replica with the same accumulation."""
        job = replace(self.job, replicas=1, bn_span=1, hosts=1, instances=0)
        alone = replace(self, model=replace(self.model, job=job))
        return alone.throughput

    @property
    def verdict(self) -> str:
        """The worst verdict of all IPUs."""
        return self.fullest.verdict

    @property
    def fullest(self) -> PredictedMemory:
        """The IPU with the worst verdict; if several, the one that may need the most bytes."""
        return max(self.memories, key=lambda memory: (VERDICTS.index(memory.verdict), memory.high))

    @cached_property
    def memories(self) -> list[PredictedMemory]:
        return self.model.memories()

    @property
    def seconds_to_train(self) -> float | None:
        """Seconds of all epochs, without evaluation and checkpoints."""
        wanted = self.job.samples * self.job.epochs
        return wanted / self.throughput if wanted else None

    def changed(self, factors: Mapping[str, float]) -> Prediction:
        """The prediction for the same job with rates multiplied by ``factors``."""
        both = dict(self.factors)
        for name, factor in factors.items():
            both[name] = both.get(name, 1.0) * factor
        return replace(self, factors=both)

    @cached_property
    def warnings(self) -> list[str]:
        warnings = [*self.notes, *without_effect(self.job)]
        if self.profile is None:
            return [*warnings, "nominal rates, no calibration: real systems take longer"]
        said = {
            "family": f"not validated: no row is of a {self.job.network.family} network",
            "network": f"not validated: no row is of {self.job.model}",
            "generation": f"not validated: no row is of {self.job.system.generation.name} IPUs",
            "domains": f"not validated: no row has more than {self.profile.most_domains} IPU-Link domains",
            "inference": "not validated: no row is of inference",
            "dtype": f"not validated: no row is of {self.job.dtype}",
            "release": f"not validated: no row is of SDK {self.job.release}, which is predicted as "
            f"{calibrated_release(self.job.release)}",
        }
        warnings += [said[kind] for kind in self.unlike]
        if self._unknown_factor > 1.001:
            names = [p.name for p in self.profile.unidentified if p.unit != "factor"]
            rows = ", ".join(PARAMETERS[name].rows for name in names)
            warnings.append(
                f"{', '.join(names)}: no row determines it, so its nominal value is used, and the interval extends "
                f"down to what a value {self.unknown:g} times worse would give; calibrate with a row of {rows}"
            )
        if self.verdict != "fits":
            worst = self.fullest
            warnings.append(
                f"memory of IPU {worst.ipu}: {self.verdict}; between {worst.low / 2**20:,.0f} and "
                f"{worst.high / 2**20:,.0f} MiB of {worst.limit / 2**20:,.0f} MiB"
            )
        return warnings


def predict(
    job: Job,
    profile: Profile | None,
    *,
    unknown: float = 10.0,
    may_move_states: bool = False,
    notes: Sequence[str] = (),
) -> Prediction:
    """Predict a step; ``may_move_states``: to Streaming Memory if the job does not fit."""
    prediction = Prediction(placed(job), profile, unknown, notes=tuple(notes))
    if may_move_states and job.training and prediction.verdict == "does not fit" and not job.off_chip:
        moved = Prediction(placed(replace(job, off_chip=("states",))), profile, unknown, notes=tuple(notes))
        if moved.verdict != "does not fit":
            note = (
                "optimiser states do not fit on the IPUs, and are assumed to be in "
                "Streaming Memory (--off-chip states)"
            )
            return replace(moved, notes=(*moved.notes, note))
    return prediction


def what_if_factors(texts: Sequence[str]) -> dict[str, float]:
    """``gw-links=x2`` as factors on rates; raise EmulatorError for anything else."""
    factors: dict[str, float] = {}
    for text in texts:
        name, _, amount = text.partition("=")
        try:
            factor = float(amount.removeprefix("x"))
        except ValueError:
            factor = -1.0
        if name not in WHAT_IF or not 0 < factor < 1e6:
            raise EmulatorError(
                f"--what-if {text} is not valid; write one of {', '.join(WHAT_IF)} and a factor, as in gw-links=x2"
                + ("" if name in WHAT_IF else did_you_mean(name, WHAT_IF))
            )
        factors[name] = factors.get(name, 1.0) * factor
    return factors


def anchored(job: Job, profile: Profile, text: str) -> tuple[Profile, str]:
    """``pod16=29543``: scale the main compute fraction of the profile to get these samples/s on that system.

    ``pod16/10=29543``: with 10 micro-batches accumulated. Also returns the change.
    """
    where, _, amount = text.partition("=")
    name, _, count = where.partition("/")
    try:
        measured, accumulation = float(amount), int(count or job.accumulation)
        if not measured > 0:
            raise ValueError
    except ValueError:
        raise EmulatorError(
            f"--anchor {text} is not valid; write a system and its measured samples per second, as in pod16=29543"
        ) from None
    system = System.named(name, "--anchor ")
    replicas = max(1, system.ipus // job.ipus)
    there = replace(job, system=system, replicas=replicas, accumulation=accumulation, hosts=0, instances=0)
    base = predict(there, profile)
    slot = base.slot_classes
    share = "convolution_share" if slot["convolution"] > slot["product"] + slot["attention"] else "product_share"
    low, high = 1e-4, 1e4
    for _ in range(80):
        middle = sqrt(low * high)
        low, high = (middle, high) if _at(base, share, middle) < measured else (low, middle)
    anchored_profile = _with(profile, share, middle)
    if abs(predict(there, anchored_profile).throughput / measured - 1) > 1e-3:
        raise EmulatorError(
            f"--anchor {text} is out of reach: with unlimited compute the model gives "
            f"{_at(base, share, 1e4):,.0f} samples per second; check the accumulation and the batch"
        )
    before = next(parameter.value for parameter in profile.parameters if parameter.name == share)
    after = next(parameter.value for parameter in anchored_profile.parameters if parameter.name == share)
    return anchored_profile, f"{share} {before:.3f} is replaced by {after:.3f}, from --anchor {text}"


def _with(profile: Profile, share: str, factor: float) -> Profile:
    parameters = tuple(
        replace(parameter, value=parameter.value * factor) if parameter.name == share else parameter
        for parameter in profile.parameters
    )
    return replace(profile, parameters=parameters)


def _at(base: Prediction, share: str, factor: float) -> float:
    assert base.profile is not None
    return replace(base, profile=_with(base.profile, share, factor)).throughput
