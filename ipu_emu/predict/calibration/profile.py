"""Profile: the calibrated parameters of the model, with their uncertainty, and the rows that they were fitted to.

    convolution_share        fraction of the peak rate of the matrix units that convolutions reach
    product_share            the same for matrix products
    link_share               fraction of the rate of IPU-Links that collectives reach
    gateway_share            fraction of the rate of GW-Links that collectives reach
    host_wait                seconds that a step waits for each further host
    release_2.1_collectives  speed of collectives of SDK 2.1, relative to SDK 2.3

Nominal values are 1, and 10 us for hosts, the latency of a network: uncalibrated, everything runs at its peak rate.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError
from ipu_emu.hardware.rates import Rates
from ipu_emu.predict.job import RELEASES, calibrated_release
from popdist_py.files.bounded_read import read_file

#: Version of the file format.
_SCHEMA = "ipu-emu calibration 1"
_MOST_BYTES = 16 << 20
#: The largest standard deviation of the logarithm of a parameter, a factor of about 10,000.
_MOST_VARIANCE, _MOST_SPREAD = 85.0, 10.0
_FOLDER = files("ipu_emu.predict") / "calibration"
#: The rows from which the shipped profile was made.
SHIPPED_ROWS = _FOLDER / "rows.csv"


@dataclass(frozen=True)
class ParameterKind:
    """A parameter; its prior is log-normal around ``expected``; ``spread`` is the deviation of the logarithm.

    ``nominal`` is the value of a parameter that no row determines.
    """

    unit: str
    meaning: str
    expected: float
    spread: float
    most: float
    rows: str
    nominal: float = 1.0


PARAMETERS = {
    "convolution_share": ParameterKind(
        "share of the matrix peak", "what convolutions reach", 0.3, 1.0, 1.0, "a convolutional network"
    ),
    "product_share": ParameterKind(
        "share of the matrix peak", "what matrix products reach", 0.3, 1.0, 1.0, "a transformer"
    ),
    "link_share": ParameterKind(
        "share of the IPU-Link rate", "what collectives reach", 0.5, 1.0, 1.0, "several replicas and accumulations"
    ),
    "gateway_share": ParameterKind(
        "share of the GW-Link rate", "what collectives reach", 0.3, 2.3, 1.0, "several IPU-Link domains"
    ),
    # Between 10 us, the latency of a network, and 10 ms, that of a scheduler.
    "host_wait": ParameterKind(
        "milliseconds", "time that a step waits for each additional host", 0.3, 2.3, 1e3, "several hosts", 0.01
    ),
    "release_2.1_collectives": ParameterKind(
        "factor", "speed of collectives of SDK 2.1 relative to 2.3", 1.0, 1.0, 2.0, "SDK 2.1"
    ),
}


@dataclass(frozen=True)
class Parameter:
    """The ``value`` of a parameter with its standard deviation ``sigma``; nominal if no row determines it."""

    name: str
    value: float
    sigma: float
    unit: str
    meaning: str
    identified: bool


@dataclass(frozen=True)
class Profile:
    """A calibration: ``covariance`` of the parameters' logarithms; ``spread`` of the logarithm of an unmeasured step.

    ``leave_one_out``: the errors from which ``spread`` is computed. ``models``, ``generations``, ``releases`` and
    ``most_domains`` describe the rows, to decide whether a job is like them.
    """

    file: str
    rows: int
    parameters: tuple[Parameter, ...]
    covariance: tuple[tuple[float, ...], ...]
    spread: float
    models: tuple[str, ...]
    families: tuple[str, ...]
    generations: tuple[str, ...]
    releases: tuple[str, ...]
    most_domains: int
    residuals: dict[str, float] = field(default_factory=dict)
    leave_one_out: dict[str, Any] = field(default_factory=dict)

    def values(self) -> NDArray[np.float64]:
        return np.array([parameter.value for parameter in self.parameters])

    def rates(self, release: str) -> Rates:
        """The rates of a job of ``release``."""
        return rates_of(self.values(), release)

    @property
    def unidentified(self) -> list[Parameter]:
        return [parameter for parameter in self.parameters if not parameter.identified]

    def dump(self) -> dict[str, Any]:
        """The content of the file."""
        return {"schema": _SCHEMA, **{name: value for name, value in asdict(self).items() if name != "file"}}


def rates_of(values: Sequence[float] | NDArray[np.float64], release: str) -> Rates:
    """The rates for parameters in the order of ``PARAMETERS``."""
    convolution, product, links, gateway, wait, collectives = map(float, values)
    factor = 1.0 if calibrated_release(release) == RELEASES[-1] else collectives
    return Rates(convolution, product, links, gateway, factor, wait * 1e-3)


def load(path: str | Path) -> Profile:
    """Read a profile; raise EmulatorError if the file is not one."""
    try:
        return _profile(read_file(path, _MOST_BYTES), str(path))
    except OSError as error:
        raise EmulatorError(
            f"--calibration {path} cannot be read: {error.strerror}; give a file of calibrate"
        ) from None


@lru_cache(maxsize=1)  # pure: a file of this package
def shipped() -> Profile:
    """The profile in this package, fitted to ``SHIPPED_ROWS``."""
    return _profile((_FOLDER / "profile.json").read_text(), "shipped")


def _profile(text: str | bytes, name: str) -> Profile:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        fault = "it is not JSON"
    else:
        fault = _fault(document)
    if fault:
        raise EmulatorError(
            f"--calibration {name} is not a calibration: {fault}; make one with ipu-emu calibrate ROWS.csv -o {name}"
        )
    parts: dict[str, Any] = {key: document[key] for key in _PARTS if key in document}
    parts["parameters"] = tuple(Parameter(**parameter) for parameter in parts["parameters"])
    parts["covariance"] = tuple(map(tuple, parts["covariance"]))
    parts |= {key: tuple(part) for key, part in parts.items() if isinstance(part, list)}
    return Profile(name, **parts)


def _fault(document: Any) -> str:
    """Return why the content of a file is not a valid profile; '' if it is."""
    if not isinstance(document, dict):
        return "it is not JSON object"
    if document.get("schema") != _SCHEMA:
        return f"its schema is not '{_SCHEMA}'"
    missing = [key for key in _PARTS if key not in document and key not in _OPTIONAL]
    if missing:
        return f"it has no {missing[0]}"
    unknown = [key for key in document if key not in _PARTS and key != "schema"]
    if unknown:
        return f"it has an unknown part '{unknown[0]}'"
    wrong = [key for key, is_right in _PARTS.items() if key in document and not is_right(document[key])]
    if wrong:
        return f"its {wrong[0]} {'are' if wrong[0].endswith('s') else 'is'} not as calibrate writes them"
    return "" if _agree(document) else "its covariance and the values and sigmas of its parameters disagree"


def _agree(document: dict[str, Any]) -> bool:
    """Whether the covariance of the logarithms is valid, and agrees with the sigmas."""
    covariance = np.array(document["covariance"])
    sigmas = np.array([parameter["sigma"] / parameter["value"] for parameter in document["parameters"]])
    variances = np.diag(covariance)
    return bool(
        (np.abs(covariance) <= _MOST_VARIANCE).all()
        and np.allclose(covariance, covariance.T, rtol=1e-6, atol=1e-12)
        and np.linalg.eigvalsh(covariance).min() >= -1e-9
        and np.allclose(np.sqrt(np.abs(variances)), sigmas, rtol=1e-6, atol=1e-9)
    )


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300  # type: ignore[arg-type]


def _is_spread(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value <= _MOST_SPREAD  # type: ignore[operator]


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1e9


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_covariance(value: object) -> bool:
    rows = value if isinstance(value, list) else []
    size = len(PARAMETERS)
    return len(rows) == size and all(
        isinstance(row, list) and len(row) == size and all(map(_is_number, row)) for row in rows
    )


def _are_parameters(value: object) -> bool:
    every = value if isinstance(value, list) else []
    return all(map(_is_parameter, every)) and [parameter["name"] for parameter in every] == list(PARAMETERS)


def _is_parameter(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {field.name for field in fields(Parameter)}
        and all(isinstance(value[key], str) for key in ("name", "unit", "meaning"))
        and isinstance(value["identified"], bool)
        and all(_is_number(value[key]) for key in ("value", "sigma"))
        and 0 < value["value"] < 1e6
        and value["sigma"] >= 0
    )


#: The parts of a file, with the test whether each is valid.
_PARTS: Mapping[str, Callable[[object], bool]] = {
    "rows": _is_count,
    "parameters": _are_parameters,
    "covariance": _is_covariance,
    "spread": _is_spread,
    "models": _are_names,
    "families": _are_names,
    "generations": _are_names,
    "releases": _are_names,
    "most_domains": _is_count,
    "residuals": lambda value: isinstance(value, dict) and all(map(_is_number, value.values())),
    "leave_one_out": lambda value: isinstance(value, dict),
}
_OPTIONAL = ("residuals", "leave_one_out")
