"""Estimator specs: the results of model functions, and the modes in which these are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["EstimatorSpec", "IPUEstimatorSpec", "IPUPipelineEstimatorSpec", "ModeKeys"]


class ModeKeys:
    """The modes, by the names of TensorFlow's estimators."""

    TRAIN, EVAL, PREDICT = "train", "eval", "infer"


@dataclass
class EstimatorSpec:
    """``eval_metric_ops`` has (value, update) of each metric; ``eval_metrics`` a function and its tensors."""

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: dict[str, tuple[Any, Any]] | None = None
    export_outputs: Any = None
    training_chief_hooks: Sequence[Any] = ()
    training_hooks: Sequence[Any] = ()
    scaffold: Any = None
    evaluation_hooks: Sequence[Any] = ()
    prediction_hooks: Sequence[Any] = ()
    host_call: Any = None
    eval_metrics: tuple[Callable[..., Any], Any] | None = None


IPUEstimatorSpec = EstimatorSpec


@dataclass
class IPUPipelineEstimatorSpec:
    """The stages of a pipeline, and how it is trained or evaluated; other arguments are those of the pipeline."""

    mode: str
    computational_stages: Sequence[Any]
    gradient_accumulation_count: int | None = None
    eval_metrics_fn: Callable[..., dict[str, Any]] | None = None
    optimizer_function: Callable[..., Any] | None = None
    device_mapping: Sequence[Any] | None = None
    loss_accumulator_dtype: Any = None
    training_hooks: Sequence[Any] = ()
    evaluation_hooks: Sequence[Any] = ()
    prediction_hooks: Sequence[Any] = ()
    reduction_method: Any = None
    options: dict[str, Any] = field(default_factory=dict)

    def __init__(self, mode: str, computational_stages: Sequence[Any], *arguments: Any, **options: Any) -> None:
        names = list(type(self).__dataclass_fields__)[:-1]
        by_name = dict(zip(names, (mode, computational_stages, *arguments), strict=False))
        for name in names:
            default = type(self).__dataclass_fields__[name].default
            setattr(self, name, by_name.get(name, options.pop(name, default)))
        self.options = options
