"""Options: how a Keras model runs on the device, as its ``set_..._options`` methods set it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from ipu_emu.tensorflow.api.gradient_accumulation import GradientAccumulationReductionMethod


class ReplicatedMetricReductionMethod(Enum):
    """How the metrics of several replicas are combined: the last one's, a list of all, their sum or their mean."""

    NONE = "NONE"
    LIST = "LIST"
    SUM = "SUM"
    MEAN = "MEAN"

    @classmethod
    def parse(cls, value: Any) -> ReplicatedMetricReductionMethod:
        """Return a member given as such or by name in any letter case; raise ValueError for others."""
        name = value.name if isinstance(value, cls) else str(value).upper()
        if name not in cls.__members__:
            raise ValueError(
                f"Cannot parse {value!r} as one of ReplicatedMetricReductionMethod, which has "
                f"{', '.join(cls.__members__)}"
            )
        return cls[name]


@dataclass(frozen=True)
class ModelOptions:
    """``steps`` is the number of mini-batches of an update per replica, ``pipelining`` has keyword arguments of
    the pipeline call. Models with and without stages have separate options, selected by ``pipelined``.
    """

    steps: int | None = None
    reduction: str = "SUM"
    optimiser: Mapping[str, Any] = field(default_factory=dict)
    pipeline_steps: int | None = None
    pipeline_reduction: str = "SUM"
    device_mapping: list[int] | None = None
    accumulate_outfeed: bool = False
    pipelining: Mapping[str, Any] = field(default_factory=dict)
    metrics: ReplicatedMetricReductionMethod = ReplicatedMetricReductionMethod.NONE
    asynchronous: bool = False
    infeed: Mapping[str, Any] = field(default_factory=dict)
    outfeed: Mapping[str, Any] = field(default_factory=dict)

    def steps_of(self, pipelined: bool) -> int | None:
        """The mini-batches of an update per replica."""
        return self.pipeline_steps if pipelined else self.steps

    def reduction_of(self, pipelined: bool) -> str:
        """How the gradients of mini-batches are combined."""
        return self.pipeline_reduction if pipelined else self.reduction

    def to_config(self) -> dict[str, Any]:
        """The options as saved in the configuration of a model."""
        saved = {key: copy(getattr(self, name)) for key, name in _SAVED.items()}
        return {**saved, "replicated_metric_reduction_method": self.metrics.name}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ModelOptions:
        """The options of a configuration."""
        method = ReplicatedMetricReductionMethod.parse(config["replicated_metric_reduction_method"])
        return cls(metrics=method, **{name: config[key] for key, name in _SAVED.items()})


#: The options in the configuration of a model, by their keys in it.
_SAVED = {
    "gradient_accumulation_steps_per_replica": "steps",
    "gradient_accumulation_reduction_method": "reduction",
    "pipelining_gradient_accumulation_steps_per_replica": "pipeline_steps",
    "pipelining_device_mapping": "device_mapping",
    "pipelining_accumulate_outfeed": "accumulate_outfeed",
    "pipelining_gradient_accumulation_reduction_method": "pipeline_reduction",
    "asynchronous_callbacks": "asynchronous",
    "infeed_kwargs": "infeed",
    "outfeed_kwargs": "outfeed",
}


_SET_BY_KERAS = "This argument is automatically set by Keras."
_NOT_IN_KERAS = "This argument is not compatible with Keras."
_STEPS = "Set the `gradient_accumulation_steps_per_replica` argument instead."
_METHOD = "Set the `gradient_accumulation_reduction_method` argument instead."
#: Arguments of the pipeline call that a program must not give, and what to do.
_NOT_OF_PIPELINES = {
    "gradient_accumulation_count": _STEPS,
    "device_mapping": "Set the `device_mapping` argument instead.",
    "accumulate_outfeed": "Set the `accumulate_outfeed` argument instead.",
    "reduction_method": _METHOD,
    "repeat_count": _SET_BY_KERAS,
    "computational_stages": _SET_BY_KERAS,
    "inputs": _SET_BY_KERAS,
    "infeed_queue": _SET_BY_KERAS,
    "outfeed_queue": _SET_BY_KERAS,
    "optimizer_function": _SET_BY_KERAS,
    "batch_serialization_iterations": _NOT_IN_KERAS,
    "outfeed_loss": _NOT_IN_KERAS,
    "outfeed_mask": _NOT_IN_KERAS,
}
#: The same for gradient accumulation optimisers.
_NOT_OF_OPTIMISERS = {"opt": _SET_BY_KERAS, "num_mini_batches": _STEPS, "reduction_method": _METHOD}


def pipelining_options(
    options: ModelOptions,
    steps: Any,
    device_mapping: Any,
    accumulate_outfeed: Any,
    reduction: Any,
    arguments: Mapping[str, Any],
) -> ModelOptions:
    """``options`` with those of ``set_pipelining_options``; raise ValueError for mistakes. None changes nothing."""
    _check_steps(steps)
    if device_mapping is not None and not (
        isinstance(device_mapping, list) and all(isinstance(ipu, int) for ipu in device_mapping)
    ):
        raise ValueError("Expected `device_mapping` to be a list of integers.")
    _refuse(arguments, _NOT_OF_PIPELINES, "pipelining_kwargs")
    return _changed(
        options,
        pipeline_reduction=GradientAccumulationReductionMethod.parse(reduction).name,
        pipeline_steps=steps,
        device_mapping=device_mapping,
        accumulate_outfeed=None if accumulate_outfeed is None else bool(accumulate_outfeed),
        pipelining=dict(arguments) or None,
    )


def accumulation_options(
    options: ModelOptions, steps: Any, reduction: Any, arguments: Mapping[str, Any]
) -> ModelOptions:
    """``options`` with those of ``set_gradient_accumulation_options``; raise ValueError for mistakes."""
    _check_steps(steps)
    _refuse(arguments, _NOT_OF_OPTIMISERS, "gradient_accumulation_optimizer_kwargs")
    method = GradientAccumulationReductionMethod.parse(reduction).name
    return _changed(options, reduction=method, steps=steps, optimiser=dict(arguments) or None)


def _changed(options: ModelOptions, **values: Any) -> ModelOptions:
    """``options`` with other values; None changes nothing."""
    return replace(options, **{name: value for name, value in values.items() if value is not None})


def _refuse(arguments: Mapping[str, Any], refused: Mapping[str, str], kind: str) -> None:
    """Raise ValueError for an argument that is ``refused``."""
    for name, instead in refused.items():
        if name in arguments:
            raise ValueError(f"Found `{name}` key in `{kind}`. {instead}")


def _check_steps(value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(
            f"Expected `gradient_accumulation_steps_per_replica` to be a positive integer, but got {value} instead."
        )
