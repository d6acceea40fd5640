"""Pipeline models: ``PipelineModel`` and ``PipelineSequential``, which make pipelined models in early releases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tf_keras import Model, Sequential


class PipelineModel:
    """A model whose layers were called in ``PipelineStage`` scopes; ``options`` are those of the pipeline call."""

    def __new__(
        cls, inputs: Any, outputs: Any, gradient_accumulation_count: int, *, name: str | None = None, **options: Any
    ) -> Any:
        """Return a ``Model``."""
        return _pipelined(Model(inputs, outputs, name=name), gradient_accumulation_count, options)


class PipelineSequential:
    """A model of one list of layers per stage; ``options`` are those of the pipeline call."""

    def __new__(
        cls,
        stages: Sequence[Sequence[Any]],
        gradient_accumulation_count: int,
        *,
        name: str | None = None,
        **options: Any,
    ) -> Any:
        """Return a ``Sequential``."""
        model = Sequential([layer for stage in stages for layer in stage], name=name)
        _pipelined(model, gradient_accumulation_count, options)
        model.set_pipeline_stage_assignment([number for number, stage in enumerate(stages) for _ in stage])
        return model


def _pipelined(model: Any, count: int, options: dict[str, Any]) -> Any:
    """Set the options of a model; by default, an execution is one weight update."""
    if options.get("batch_serialization_iterations") == 1:
        del options["batch_serialization_iterations"]
    options["gradient_accumulation_reduction_method"] = options.pop("reduction_method", "sum")
    model.set_pipelining_options(count, **options)
    model.compile = partial(model.compile, steps_per_execution=count)
    return model
