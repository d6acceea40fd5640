"""Fit: the parameters of the model from measured rows, their uncertainty, and cross-validation.

Least squares of the logarithms of step times by Gauss-Newton steps. The weight of a row is one
divided by the number of rows of its configuration. A prior (``ParameterKind.spread``) keeps parameters that the rows
determine only weakly near their expected values. A parameter that no row determines keeps its nominal value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError
from ipu_emu.predict.calibration.profile import PARAMETERS, Parameter, Profile, rates_of
from ipu_emu.predict.calibration.rows import Row
from ipu_emu.predict.job import Job
from ipu_emu.predict.memory import Shape
from ipu_emu.predict.model import StepModel, placed

Values = NDArray[np.float64]

#: Standard deviation of the logarithm of a measured row, which weighs rows against the prior.
_ROW_SPREAD = 0.03
_STEP, _ITERATIONS, _CONVERGED = 1e-5, 40, 1e-6
#: Rows determine a parameter if a relative change of it changes them by at least this fraction, and if its posterior
#: spread is at most this fraction of the prior one, or of one that is a rough guess.
_STRENGTH, _DETERMINED, _ROUGH = 0.02, 0.9, 0.5
#: Least spread of a prediction, if there are too few rows to leave one out.
_LEAST_SPREAD = 0.02
#: Spread of predictions if no row can be left out.
_UNKNOWN_SPREAD = 3 * _ROW_SPREAD
_KINDS = tuple(PARAMETERS.values())


@dataclass(frozen=True)
class Fit:
    """``values`` of the parameters, the ``covariance`` of their logarithms, and whether the rows determine each."""

    values: Values
    covariance: Values
    identified: tuple[bool, ...]


class _Steps:
    """Predicted seconds of steps: a job is placed once, and evaluated once for the same values of the parameters.

    Fits that leave rows out begin at the same values.
    """

    def __init__(self) -> None:
        self._models: dict[Job, StepModel] = {}
        self._known: dict[tuple[int, bytes], float] = {}

    def models(self, rows: Sequence[Row]) -> list[StepModel]:
        """The model of each row; rows of equal jobs share one."""
        return [self._models.get(row.job) or self._models.setdefault(row.job, placed(row.job)) for row in rows]

    def predicted(self, models: Sequence[StepModel], values: Values) -> Values:
        """The seconds of a step of each of ``models``, which are of this object."""
        return np.array([self._seconds(model, values, values.tobytes()) for model in models])

    def _seconds(self, model: StepModel, values: Values, key: bytes) -> float:
        known = self._known.get((id(model), key))
        return self._known.setdefault((id(model), key), step_seconds(model, values)) if known is None else known


def fitted(rows: Sequence[Row], start: Values | None = None, steps: _Steps | None = None) -> Fit:
    """Fit the parameters to ``rows``; drop, one after the other, those that the rows do not determine.

    ``start``: initial values of the parameters. ``steps``: of other fits to rows of the same jobs.
    """
    steps = steps or _Steps()
    models = steps.models(rows)
    free = [True] * len(_KINDS)
    while True:
        fit, slope = _fit(rows, steps, models, free, start)
        worst = _least_determined(fit, slope, free)
        if worst is None:
            return fit
        free[worst] = False


def _fit(
    rows: Sequence[Row], steps: _Steps, models: Sequence[StepModel], free: Sequence[bool], start: Values | None
) -> tuple[Fit, Values]:
    """Return the fit of the ``free`` parameters, and the weighted slopes there."""
    near = np.log([kind.expected for kind in _KINDS] if start is None else start)
    logs = np.where(free, near, np.log([kind.nominal for kind in _KINDS]))
    chosen = np.flatnonzero(free)
    weights, measured = _weights(rows), np.log([row.seconds for row in rows])
    expected = np.log([_KINDS[index].expected for index in chosen])
    hold = np.diag([_ROW_SPREAD / _KINDS[index].spread for index in chosen])
    most = np.log([kind.most for kind in _KINDS])
    for _ in range(_ITERATIONS):
        slope, now = _slope(steps, models, logs)
        system = np.vstack([slope[:, chosen] * weights[:, None], hold])
        wanted = np.concatenate([(measured - now) * weights, hold @ (expected - logs[chosen])])
        step = np.clip(np.linalg.lstsq(system, wanted, rcond=None)[0], -0.5, 0.5)
        logs[chosen] = np.minimum(logs[chosen] + step, most[chosen])
        if np.abs(step).max(initial=0.0) < _CONVERGED:
            break
    slope = _slope(steps, models, logs)[0] * weights[:, None]
    covariance = np.zeros((len(_KINDS), len(_KINDS)))
    system = np.vstack([slope[:, chosen], hold])
    covariance[np.ix_(chosen, chosen)] = _ROW_SPREAD**2 * np.linalg.inv(system.T @ system)
    return Fit(np.exp(logs), covariance, tuple(map(bool, free))), slope


def _least_determined(fit: Fit, slope: Values, free: Sequence[bool]) -> int | None:
    """Return the free parameter that the rows determine least, None if they determine all."""
    weakest: tuple[float, int] | None = None
    for index in np.flatnonzero(free):
        kind, strength = _KINDS[index], float(np.linalg.norm(slope[:, index]))
        left = float(np.sqrt(fit.covariance[index, index])) / kind.spread
        if (strength < _STRENGTH or (kind.spread >= _ROUGH and left > _DETERMINED)) and (
            weakest is None or strength < weakest[0]
        ):
            weakest = (strength, int(index))
    return None if weakest is None else weakest[1]


def _weights(rows: Sequence[Row]) -> Values:
    copies = Counter(row.configuration for row in rows)
    return np.sqrt([1 / copies[row.configuration] for row in rows])


def step_seconds(model: StepModel, values: Values) -> float:
    """The seconds of a step for parameters in the order of ``PARAMETERS``."""
    return float(sum(model.terms(rates_of(values, model.job.release), Shape.of(model.job)).values()))


def _slope(steps: _Steps, models: Sequence[StepModel], logs: Values) -> tuple[Values, Values]:
    """Return [row, parameter] derivatives of the logarithms of step times, and the logarithms."""
    now, *shifted = (
        np.log(steps.predicted(models, np.exp(point))) for point in (logs, *(logs + _STEP * np.eye(len(logs))))
    )
    return np.stack([(shifted_logs - now) / _STEP for shifted_logs in shifted], 1), now


def leave_one_out(rows: Sequence[Row], steps: _Steps | None = None) -> dict[str, Any]:
    """Return the prediction error of each configuration by a fit of all others; ``steps`` as in ``fitted``.

    A parameter that only this configuration determines has its nominal value in that fit; ``needs`` lists it by row.
    """
    steps = steps or _Steps()
    everything = fitted(rows, None, steps)
    errors: dict[str, float] = {}
    needs: dict[str, list[str]] = {}
    for configuration in dict.fromkeys(row.configuration for row in rows):
        others = [row for row in rows if row.configuration != configuration]
        left_out = [row for row in rows if row.configuration == configuration]
        if not others:
            raise EmulatorError("--leave-one-out needs rows of several configurations; these are of one")
        fit = fitted(others, everything.values, steps)
        known = zip(PARAMETERS, everything.identified, fit.identified, strict=True)
        lost = [name for name, had, has in known if had and not has]
        expected = steps.predicted(steps.models(left_out), fit.values)
        for row, seconds in zip(left_out, expected, strict=True):
            errors[row.name] = float(seconds) / row.seconds - 1
            if lost:
                needs[row.name] = lost
    size = np.abs(list(errors.values()))
    return {"mean": float(size.mean()), "most": float(size.max()), "errors": errors, "needs": needs}


def _spread(left_out: dict[str, Any]) -> float:
    """Return the root mean square error of left-out rows, capped for those that need a nominal value."""
    errors, needs = left_out["errors"], left_out["needs"]
    residuals = [min(abs(error), _UNKNOWN_SPREAD) if name in needs else error for name, error in errors.items()]
    return float(np.sqrt(np.mean(np.square(residuals))))


def profile_of(rows: Sequence[Row], name: str) -> Profile:
    """Return the profile fitted to ``rows``."""
    steps = _Steps()
    fit = fitted(rows, None, steps)
    expected = steps.predicted(steps.models(rows), fit.values)
    residuals = {row.name: float(seconds) / row.seconds - 1 for row, seconds in zip(rows, expected, strict=True)}
    several = len({row.configuration for row in rows}) > 1
    left_out = leave_one_out(rows, steps) if several else {}
    spread = _spread(left_out) if left_out else _UNKNOWN_SPREAD
    sigmas = np.sqrt(np.diag(fit.covariance)) * fit.values
    parameters = tuple(
        Parameter(label, float(value), float(sigma), kind.unit, kind.meaning, known)
        for (label, kind), value, sigma, known in zip(
            PARAMETERS.items(), fit.values, sigmas, fit.identified, strict=True
        )
    )
    jobs = [row.job for row in rows]
    return Profile(
        name,
        len(rows),
        parameters,
        tuple(tuple(map(float, line)) for line in fit.covariance),
        max(_LEAST_SPREAD, spread),
        tuple(sorted({job.model for job in jobs})),
        tuple(sorted({job.network.family for job in jobs})),
        tuple(sorted({job.system.generation.name for job in jobs})),
        tuple(sorted({job.release for job in jobs})),
        max(-(-job.total_ipus // job.system.domain_size) for job in jobs),
        residuals,
        left_out,
    )
