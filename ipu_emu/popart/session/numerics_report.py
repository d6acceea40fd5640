"""NumericsReport: compares how the weights of two models changed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError
from ipu_emu.onnx.read import initializers

_Array = NDArray[np.float64]
_SMALL = 1e-8


class NumericsReport:
    """``NumericsReport(A0, A1, B0, B1)``: files of model A at start and end, and of model B at start and end.

    With dA and dB the changes of a FLOAT initializer, its relative error is
    ``sum((dA - dB)^2) / (|dA| |dB| + 1e-8)``.
    """

    def __init__(self, A0: str, A1: str, B0: str, B1: str) -> None:
        models = [_floats(model) for model in (A0, A1, B0, B1)]
        if len({len(model) for model in models}) > 1:
            raise EmulatorError("GraphProtos have different number of initializers")
        self._changes: dict[str, tuple[_Array, _Array]] = {}
        for id in models[0]:
            if any(id not in model for model in models):
                raise EmulatorError(
                    f"The initializer '{id}' is not in all four models; give four states of one model"
                )
            first, last, other_first, other_last = (model[id] for model in models)
            self._changes[id] = (last - first, other_last - other_first)

    def getRelativeErrors(self) -> dict[str, float]:
        """The relative error of each initializer."""
        return {id: self._error(id) for id in self._changes}

    def report(self, id: str) -> str:
        """The error of one initializer as text."""
        if id not in self._changes:
            raise EmulatorError(f"No report available for {id}")
        return f"|dA - dB|^2 / (|dA||dB| + 1e-8)  = {self._error(id):g}"

    def fullReport(self) -> str:
        """The errors of all initializers as text, a line each."""
        return "\n".join(f"{self.report(id)}  ({id})" for id in self._changes)

    def _error(self, id: str) -> float:
        a, b = self._changes[id]
        return float(((a - b) ** 2).sum() / (np.sqrt((a * a).sum()) * np.sqrt((b * b).sum()) + _SMALL))


def _floats(model: str) -> dict[str, _Array]:
    data = initializers(model).items()
    return {id: array.astype(np.float64) for id, array in data if array.dtype == np.float32}
