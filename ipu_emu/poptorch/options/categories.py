"""Categories of options: training, precision, tracing, and the processes of a job."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch

import popdist_py
from ipu_emu.poptorch.enums import MeanReductionStrategy, ReductionType
from ipu_emu.poptorch.options.option_group import OptionGroup, checked, of_kind, positive
from ipu_emu.session.options.without_effect import say_without_effect

__all__ = ["_DistributedOptions", "_JitOptions", "_PopartOptions", "_PrecisionOptions", "_TrainingOptions"]


class _TrainingOptions(OptionGroup):
    """``options.Training``."""

    without_effect = frozenset(["convolution_dithering"])

    def __init__(self) -> None:
        super().__init__(
            gradient_accumulation=1,
            accumulation_and_replication_reduction_type=ReductionType.Mean,
            meanAccumulationAndReplicationReductionStrategy=MeanReductionStrategy.Post,
            auto_loss_scaling=False,
            convolution_dithering=False,
        )

    def gradientAccumulation(self, gradient_accumulation: int) -> _TrainingOptions:
        """Update the weights after this many micro-batches."""
        return self.set(gradient_accumulation=positive("gradient_accumulation", gradient_accumulation))

    def accumulationAndReplicationReductionType(self, reduction_type: ReductionType) -> _TrainingOptions:
        """Combine gradients by their sum or their mean."""
        if of_kind(reduction_type, ReductionType) is ReductionType.NoReduction:
            raise ValueError("The reduction type must be ReductionType.Mean or ReductionType.Sum")
        return self.set(accumulation_and_replication_reduction_type=reduction_type)

    def setMeanAccumulationAndReplicationReductionStrategy(self, strategy: MeanReductionStrategy) -> _TrainingOptions:
        """Divide a mean at the end, or keep a running mean."""
        return self.set(meanAccumulationAndReplicationReductionStrategy=of_kind(strategy, MeanReductionStrategy))

    def setAutomaticLossScaling(self, enabled: bool) -> _TrainingOptions:
        """Adapt the loss scaling to the size of gradients."""
        return self.set(auto_loss_scaling=checked("auto_loss_scaling", enabled, bool))

    def setConvolutionDithering(self, enabled: bool) -> _TrainingOptions:
        """Accept dithering, which only concerns the tiles of an IPU."""
        return self.set(convolution_dithering=checked("convolution_dithering", enabled, bool))


class _PrecisionOptions(OptionGroup):
    """``options.Precision``."""

    without_effect = frozenset(["norm_stable"])

    def __init__(self) -> None:
        super().__init__(
            floating_point_exceptions=False, stochastic_rounding=False, partials_type=None, norm_stable=False
        )

    def enableFloatingPointExceptions(self, enabled: bool) -> _PrecisionOptions:
        """Raise an error if an op computes an infinity or NaN."""
        return self.set(floating_point_exceptions=checked("floating_point_exceptions", enabled, bool))

    def enableStochasticRounding(self, enabled: bool) -> _PrecisionOptions:
        """Round FLOAT16 results stochastically."""
        return self.set(stochastic_rounding=checked("stochastic_rounding", enabled, bool))

    def setPartialsType(self, dtype: torch.dtype) -> _PrecisionOptions:
        """Accept the type of partial sums, which are computed in float32 in any case."""
        if dtype not in (torch.float, torch.half):
            raise ValueError("setPartialsType must be called with torch.float or torch.half")
        if dtype is torch.half:
            say_without_effect("The option", ["partials_type"])
        self.checkIsFrozen()
        self._values["partials_type"] = dtype
        return self

    def halfFloatCasting(self, behaviour: object) -> _PrecisionOptions:
        """Do nothing: types are promoted as in PyTorch."""
        warnings.warn("halfFloatCasting is deprecated and has no effect", stacklevel=2)
        return self

    def runningStatisticsAlwaysFloat(self, enabled: bool) -> _PrecisionOptions:
        """Do nothing: running statistics have the type that the module gives them."""
        warnings.warn("runningStatisticsAlwaysFloat is deprecated and has no effect", stacklevel=2)
        return self


class _JitOptions(OptionGroup):
    """``options.Jit``: deprecated."""

    def __init__(self) -> None:
        super().__init__(trace_model=False)

    def traceModel(self, enabled: bool) -> _JitOptions:
        """Raise an error for the old way of tracing."""
        if enabled:
            raise ValueError("Jit.traceModel(True) is no longer supported: models are traced by the dispatcher")
        warnings.warn("Jit.traceModel(False) is deprecated and has no effect", stacklevel=2)
        return self


class _DistributedOptions(OptionGroup):
    """``options.Distributed``: this process among those of a job."""

    def __init__(self) -> None:
        super().__init__(num_distributed_processes=1, distributed_process_id=0)
        if popdist_py.isPopdistEnvSet():  # whatever the MPI is that started the instances
            self.configureProcessId(popdist_py.getInstanceIndex(), popdist_py.getNumInstances())
        else:
            self.setEnvVarNames("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")

    def disable(self) -> _DistributedOptions:
        """Run as the only process, regardless of the environment."""
        return self.set(num_distributed_processes=1, distributed_process_id=0)

    def configureProcessId(self, process_id: int, num_processes: int) -> _DistributedOptions:
        """Set the index of this process and the number of processes."""
        checked("process_id", process_id, int)
        if not 0 <= process_id < checked("num_processes", num_processes, int):
            raise AssertionError(
                f"process_id {process_id} must be at least 0 and below num_processes {num_processes}"
            )
        return self.set(num_distributed_processes=num_processes, distributed_process_id=process_id)

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> _DistributedOptions:
        """Read both numbers from these environment variables, if they are set."""
        count, number = (os.environ.get(name) for name in (var_num_processes, var_process_id))
        if count is None or number is None:
            return self
        if not (count.isdecimal() and number.isdecimal()):
            raise AssertionError(
                f"The variables {var_num_processes} and {var_process_id} must be whole numbers, found '{count}' and "
                f"'{number}'"
            )
        return self.configureProcessId(int(number), int(count))

    @property
    def processId(self) -> int:
        """Index of this process."""
        return int(self._values["distributed_process_id"])

    @property
    def numProcesses(self) -> int:
        """Number of processes."""
        return int(self._values["num_distributed_processes"])


class _PopartOptions(OptionGroup):
    """``options._Popart``; they take effect, and wrong ones raise an error, when a model is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self._options: dict[str, Any] = {}
        self._patterns: dict[str, bool] = {}
        self._level = 2

    @property
    def options(self) -> dict[str, Any]:
        """The values of session options by key."""
        return self._options

    def set(self, key: str = "", value: Any = None, **values: Any) -> _PopartOptions:
        """Set one session option; nested ones have dots in their keys."""
        self.checkIsFrozen()
        if not key or values:
            raise TypeError("_Popart.set takes the name of a session option and its value")
        self._options[key] = value
        return self

    def setEngineOptions(self, options: dict[str, Any]) -> _PopartOptions:
        """Set options of the engine."""
        return self.set("engineOptions", dict(options))

    def setPatterns(self, patterns: dict[str, bool], level: int = 2) -> _PopartOptions:
        """Choose the patterns of the compiler by name, at level 0 (none) to 3 (all); they do not affect results."""
        self.checkIsFrozen()
        if level not in range(4):
            raise ValueError(f"Invalid patterns level {level}; use 0, 1, 2 or 3")
        self._patterns, self._level = dict(patterns), level
        return self

    def __repr__(self) -> str:
        return f"PopartOptions({self.options!r})"
