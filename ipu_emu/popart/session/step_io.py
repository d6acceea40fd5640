"""Step I/O: PyStepIO, PyStepIOCallback, FeedStepIO and PyWeightsIO, the data that users give to a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError
from ipu_emu.hostio import ArrayFeed, CallbackFeed, StepFeed


class IStepIO:
    """Base of the step data that ``run`` takes."""

    checksSizes = True

    def enableRuntimeAsserts(self, enable: bool) -> None:
        """Check the sizes of arrays in the first run of a session (default) or not; callbacks have none."""
        self.checksSizes = bool(enable)


class IWeightsIO:
    """Base of the arrays that ``readWeights`` and ``writeWeights`` take."""


class PyStepIO(ArrayFeed, IStepIO):
    """Step data in numpy arrays by tensor id, as [batches per step, accumulation, replicas, micro-batch...]."""


class FeedStepIO(StepFeed, PyStepIO):
    """``session.run(FeedStepIO(feed, anchors))`` takes the next step of the feed. An extension of PopART."""


class PyStepIOCallback(CallbackFeed, IStepIO):
    """Step data by functions: (input, input complete, output, output complete)."""

    def __init__(
        self,
        input_callback: Callable[[str, bool], NDArray[Any] | None],
        input_complete_callback: Callable[[str], object],
        output_callback: Callable[[str], NDArray[Any]],
        output_complete_callback: Callable[[str], object],
    ) -> None:
        super().__init__(input_callback, input_complete_callback, output_callback, output_complete_callback)


class PyWeightsIO(IWeightsIO):
    """Weights in numpy arrays by tensor id; they are read and written in place."""

    def __init__(self, weights: Mapping[str, NDArray[Any]]) -> None:
        for id, array in weights.items():
            if not np.asarray(array).flags.c_contiguous:
                raise EmulatorError(
                    f"PyWeightsIO is unable to use the provided numpy output array for tensor '{id}' as it is not "
                    "c-contiguous. Please use a function like `numpy.ascontiguousarray()` to make contiguous before "
                    "passing to PyWeightsIO"
                )
        self.weights = dict(weights)
