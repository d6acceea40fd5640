"""Pipeline stages: the scope ``PipelineStage``, and the stages that it assigns to layers and calls of layers."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

from tf_keras import Model, Sequential

from ipu_emu.tensorflow.trace.strategies import current_strategy

_ATTRIBUTE = "_ipu_pipeline_stage"
_STAGE: ContextVar[int | None] = ContextVar("stage of the enclosing scope", default=None)


class PipelineStage:
    """``with PipelineStage(k):`` assigns layers that are built inside, and calls of layers, to stage ``k``."""

    def __init__(self, stage: int) -> None:
        if isinstance(stage, bool) or not isinstance(stage, int) or stage < 0:
            raise ValueError(f"A pipeline stage must be an integer of at least 0, not {stage!r}.")
        self._stage = stage

    def __enter__(self) -> PipelineStage:
        if current_strategy() is None:
            raise RuntimeError("PipelineStage may only be used from within an IPUStrategy context.")
        if _STAGE.get() is not None:
            raise RuntimeError("Pipeline stages must not be nested.")
        _STAGE.set(self._stage)
        return self

    def __exit__(self, *error: Any) -> None:
        _STAGE.set(None)


def current_stage() -> int | None:
    """The stage of the enclosing scope."""
    return _STAGE.get()


def stage_of(holder: Any) -> int | None:
    """The stage that a layer, or a node of a layer, was assigned to."""
    return getattr(holder, _ATTRIBUTE, None)


def forget_functions(model: Any) -> None:
    """Discard the functions of a model that is changed, so that they are created again."""
    model.train_function = model.test_function = model.predict_function = None


def set_stage(holder: Any, stage: int | None) -> None:
    """Assign a layer, or a node of a layer, to a stage, or to none."""
    if stage is None:
        holder.__dict__.pop(_ATTRIBUTE, None)
    else:
        holder.__dict__[_ATTRIBUTE] = stage


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
