"""Model methods: the methods that are added to Keras models, such as ``set_pipelining_options``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ipu_emu.session.options.without_effect import without_effect
from ipu_emu.tensorflow.keras import assignments
from ipu_emu.tensorflow.keras.extension import Extension, extension_of
from ipu_emu.tensorflow.keras.options import ReplicatedMetricReductionMethod, accumulation_options, pipelining_options
from ipu_emu.tensorflow.keras.pipeline_stages import forget_functions
from ipu_emu.tensorflow.run.feeds.queues import check_buffer_depth, check_ordinal, check_prefetch_depth


def set_pipelining_options(
    self: Any,
    gradient_accumulation_steps_per_replica: int | None = None,
    device_mapping: list[int] | None = None,
    accumulate_outfeed: bool | None = None,
    gradient_accumulation_reduction_method: Any = "sum",
    **pipelining_kwargs: Any,
) -> None:
    """Set how the stages of the model run; other arguments are those of ``pipelining_ops.pipeline``."""
    extension = _extension(self, "set_pipelining_options")
    extension.options = pipelining_options(
        extension.options, gradient_accumulation_steps_per_replica, device_mapping, accumulate_outfeed,
        gradient_accumulation_reduction_method, pipelining_kwargs,
    )  # fmt: skip
    forget_functions(self)


@without_effect("use_v2_gradient_accumulation_optimizer")
def set_gradient_accumulation_options(
    self: Any,
    gradient_accumulation_steps_per_replica: int | None = None,
    gradient_accumulation_reduction_method: Any = "sum",
    use_v2_gradient_accumulation_optimizer: bool = False,
    **gradient_accumulation_optimizer_kwargs: Any,
) -> None:
    """Set the number of mini-batches per weight update of a model without stages."""
    extension = _extension(self, "set_gradient_accumulation_options")
    extension.options = accumulation_options(
        extension.options, gradient_accumulation_steps_per_replica, gradient_accumulation_reduction_method,
        gradient_accumulation_optimizer_kwargs,
    )  # fmt: skip
    forget_functions(self)


def set_replication_options(self: Any, replicated_metric_reduction_method: Any = "NONE") -> None:
    """Set how the metrics of several replicas are combined."""
    extension = _extension(self, "set_replication_options")
    method = ReplicatedMetricReductionMethod.parse(replicated_metric_reduction_method)
    extension.options = replace(extension.options, metrics=method)
    forget_functions(self)


def set_infeed_queue_options(self: Any, **kwargs: Any) -> None:
    """Set arguments of an IPUInfeedQueue; none changes a result.

    A thread prefetches up to ``prefetch_depth`` elements while an execution runs.
    """
    extension = _extension(self, "set_infeed_queue_options")
    infeed = _checked(kwargs, ("device_ordinal", "prefetch_depth", "optimise_latency"))
    check_ordinal(infeed.get("device_ordinal"))
    if infeed.get("prefetch_depth") is not None:
        check_prefetch_depth(infeed["prefetch_depth"])
    extension.options = replace(extension.options, infeed=infeed)
    forget_functions(self)


def set_outfeed_queue_options(self: Any, **kwargs: Any) -> None:
    """Keep arguments of an IPUOutfeedQueue; none changes a result."""
    extension = _extension(self, "set_outfeed_queue_options")
    outfeed = _checked(kwargs, ("device_ordinal", "buffer_depth", "optimise_latency"))
    check_ordinal(outfeed.get("device_ordinal"))
    check_buffer_depth(outfeed.get("buffer_depth", 1))
    extension.options = replace(extension.options, outfeed=outfeed)


def set_asynchronous_callbacks(self: Any, asynchronous: bool = False) -> None:
    """Call callbacks for every step while an execution runs, instead of after it."""
    extension = _extension(self, "set_asynchronous_callbacks")
    extension.options = replace(extension.options, asynchronous=bool(asynchronous))
    forget_functions(self)


def get_pipeline_stage_assignment(self: Any) -> list[Any]:
    """The pipeline stages of all calls of layers, in post-order."""
    return assignments.assignment_of(self)


def set_pipeline_stage_assignment(self: Any, pipeline_stage_assignment: Any) -> None:
    """Set the pipeline stages of all calls of layers."""
    _extension(self, "set_pipeline_stage_assignment")
    assignments.assign(self, pipeline_stage_assignment)


def reset_pipeline_stage_assignment(self: Any) -> None:
    """Remove the model's pipeline stages."""
    assignments.reset(self)


def print_pipeline_stage_assignment_summary(self: Any, line_length: int | None = None, print_fn: Any = None) -> None:
    """Print the pipeline stages of all calls of layers."""
    assignments.summary(self, line_length, print_fn)


def _extension(model: Any, method: str) -> Extension:
    extension = extension_of(model)
    if extension is None:
        raise RuntimeError(
            f"{method} needs a model for the IPU, and {model.name} was made outside of the scope of an IPUStrategy; "
            "make it in `with strategy.scope():`"
        )
    return extension


def _checked(options: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)}: there is no such option of a queue; the options are {', '.join(known)}"
        )
    return options


METHODS = (
    set_pipelining_options,
    set_gradient_accumulation_options,
    set_replication_options,
    set_infeed_queue_options,
    set_outfeed_queue_options,
    set_asynchronous_callbacks,
    get_pipeline_stage_assignment,
    set_pipeline_stage_assignment,
    reset_pipeline_stage_assignment,
    print_pipeline_stage_assignment_summary,
)
