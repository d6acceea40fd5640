"""Argument checks: the errors of TensorFlow's pipeline call, one row each, in TensorFlow's order and wording.

Types of all arguments are checked first, then their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ipu_emu.errors import ArgumentError, ArgumentTypeError, EmulatorError, UnsupportedError
from ipu_emu.program.schedules import ALL_IPUS
from ipu_emu.tensorflow.run.feeds.queues import OutfeedMode, OutfeedQueue
from ipu_emu.tensorflow.run.pipeline_arguments import (
    GradientAccumulationReductionMethod,
    PipelineArguments,
    PipelineStageOptions,
    StageFunction,
)

#: An error, where it is raised, and its text.
_Rule = tuple[type[EmulatorError], Callable[[PipelineArguments], Any], str | Callable[[PipelineArguments], str]]
_INT32 = 2**31 - 1
_LIST = (list, tuple)
_REDUCTIONS = tuple(GradientAccumulationReductionMethod.__members__)


def check_call(call: PipelineArguments) -> None:
    """Raise the first error of a call."""
    _check_types(call)
    _check(call, _RULES)


def check_when_compiled(call: PipelineArguments) -> None:
    """Raise the first error that depends on what the stages do, or on the configuration."""
    _check(call, _COMPILE_RULES)


def _check(call: PipelineArguments, rules: tuple[_Rule, ...]) -> None:
    for error, wrong, text in rules:
        if wrong(call):
            raise error(text if isinstance(text, str) else text(call))


def check_program(calls: Sequence[PipelineArguments]) -> None:
    """Raise EmulatorError for a program of several pipelines."""
    if len(calls) > 1:
        raise EmulatorError(
            f"Only a single ipu.pipeline() is allowed in a compiled program - this one has {len(calls)}."
        )


def _check_types(call: PipelineArguments) -> None:
    """Raise ArgumentTypeError for the first argument of a wrong type."""
    for argument, fits, text in _TYPES:
        value = getattr(call, argument)
        if not fits(value):
            raise ArgumentTypeError(text if text.endswith(".") else f"{argument} needs to be {text}, not {value!r}.")


def _integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _listed(matches: Callable[[Any], bool], value: Any) -> bool:
    """Whether ``value`` is a list of matching items, or of lists of them."""
    flat = (part for entry in value for part in (entry if isinstance(entry, _LIST) else [entry]))
    return all(matches(part) for part in flat)


def _is_list(value: Any) -> bool:
    return isinstance(value, _LIST)


#: Argument, check, and what the argument must be; a text that ends in a full stop is the whole message.
_TYPES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("computational_stages", _is_list, "computational_stages argument needs to be a list or a tuple."),
    (
        "computational_stages",
        lambda value: _listed(lambda part: isinstance(part, StageFunction), value),
        "computational_stages argument needs to have stages that are a StageFunction, or a list of concurrent ones.",
    ),
    (
        "device_mapping",
        lambda value: value is None or _is_list(value),
        "device_mapping argument needs to be a list or a tuple.",
    ),
    (
        "device_mapping",
        lambda value: value is None or _listed(_integer, value),
        "a list of IPUs, or of lists of them",
    ),
    (
        "gradient_accumulation_count",
        lambda value: value is None or callable(value) or _integer(value),
        "an integer, or a function that gives one",
    ),
    ("repeat_count", _integer, "an integer"),
    ("batch_serialization_iterations", _integer, "an integer"),
    ("optimizer_function", lambda value: value is None or callable(value), "a function"),
    (
        "outfeed_mask",
        lambda value: value is None or (_is_list(value) and all(isinstance(entry, bool) for entry in value)),
        "a list of booleans",
    ),
)


def _of_enumeration(name: str, argument: str, *, optional: bool) -> _Rule:
    """Return the check that an argument is a member of an enumeration; if ``optional``, it may be None."""

    def wrong(call: PipelineArguments) -> bool:
        value = getattr(call, argument)
        return not (optional and value is None) and type(value).__name__ != name

    return ArgumentTypeError, wrong, f"The given {argument} is not a member of the {name} enumeration."


def _options(argument: str) -> _Rule:
    def wrong(call: PipelineArguments) -> bool:
        value, stages = getattr(call, argument), len(call.computational_stages)
        fits = (
            isinstance(value, _LIST)
            and len(value) == stages
            and all(isinstance(o, PipelineStageOptions) for o in value)
        )
        return value is not None and not fits

    return ArgumentError, wrong, f"{argument} must be a list of one PipelineStageOptions per stage."


def _count(call: PipelineArguments) -> int:
    """The count, or 0 if it is only known when the program runs."""
    count = call.gradient_accumulation_count
    return count if isinstance(count, int) else 0


def _ipus(call: PipelineArguments) -> set[int]:
    return {ipu for entry in call.mapping for ipu in entry}


def _shared_ipu(call: PipelineArguments) -> bool:
    every = [ipu for entry in call.mapping for ipu in entry]
    return call.kind.name == "Interleaved" and call.optimizer_function is not None and len(set(every)) < len(every)


def _reduction(call: PipelineArguments) -> str:
    method = call.reduction_method
    return method.upper() if isinstance(method, str) else str(getattr(method, "name", method))


def _outputs(call: PipelineArguments) -> tuple[str, ...]:
    return tuple(name for function in call.functions[-1] for name in function.outputs)


def _captured(call: PipelineArguments) -> list[str]:
    return [name for functions in call.functions for function in functions for name in function.captured]


def _used_twice(call: PipelineArguments) -> Iterator[tuple[str, str, str]]:
    """Find a variable of stages on two IPUs: the later function, the variable, and the earlier function."""
    seen: dict[str, tuple[str, int]] = {}
    for functions, ipus in zip(call.functions, call.mapping, strict=True):
        for number, function in enumerate(functions):
            for name in function.variables:
                ipu = ipus[min(number, len(ipus) - 1)]
                first, home = seen.setdefault(name, (function.name, ipu))
                if home != ipu:
                    yield function.name, name, first


def _shared_variable(call: PipelineArguments) -> str:
    function, name, first = next(_used_twice(call))
    return (
        f"The {function} is trying to use an input ({name}) which is already used by the {first}. This violates the "
        "dataflow constraints because an input can only be used by pipeline stages on the same IPU. Map both to one "
        "IPU."
    )


def _sharded(call: PipelineArguments) -> list[str]:
    pairs = zip(call.functions, call.mapping, strict=True)
    return [f.name for functions, ipus in pairs for f in functions if f.shards and ipus != (ALL_IPUS,)]


def _mask_differs(call: PipelineArguments) -> bool:
    """Whether the number of elements of the mask differs from that of the outputs, if known."""
    known = bool(_outputs(call)) or not call.late
    return known and call.outfeed_mask is not None and len(call.outfeed_mask) != len(_outputs(call))


def _widths_differ(call: PipelineArguments) -> bool:
    pairs = zip(call.functions, call.mapping, strict=True)
    return any(len(functions) != len(ipus) for functions, ipus in pairs)


def _recomputes(schedule: str, mode: str) -> _Rule:
    return (
        UnsupportedError,
        lambda call: call.kind.name == schedule and call.recomputation_mode.value == mode,
        f"Pipeline schedule {schedule} does not support '{mode}' recomputation mode.",
    )


_RULES: tuple[_Rule, ...] = (
    (
        ArgumentError,
        lambda call: call.gradient_accumulation_count is None,
        "gradient_accumulation_count must be specified.",
    ),
    (
        ArgumentError,
        lambda call: _count(call) < 0,
        "gradient_accumulation_count must be >= 0.",
    ),
    (
        ArgumentError,
        lambda call: _count(call) >= _INT32,
        "gradient_accumulation_count must be < max int32.",
    ),
    (
        ArgumentError,
        lambda call: len(call.computational_stages) < 2,
        "Pipeline requires at least two computational stages.",
    ),
    _of_enumeration("PipelineSchedule", "pipeline_schedule", optional=True),
    _of_enumeration("RecomputationMode", "recomputation_mode", optional=False),
    (
        ArgumentError,
        lambda call: _reduction(call) not in _REDUCTIONS,
        lambda call: f"reduction_method {call.reduction_method!r} is unknown; use {', '.join(_REDUCTIONS)}.",
    ),
    (
        ArgumentError,
        lambda call: call.batch_serialization_iterations != 1 and _reduction(call) != "SUM",
        "batch_serialization_iterations != 1 is only supported when reduction_method is "
        "GradientAccumulationReductionMethod.SUM",
    ),
    (
        ArgumentError,
        lambda call: call.batch_serialization_iterations < 1 or call.repeat_count < 1,
        "batch_serialization_iterations and repeat_count must be > 0.",
    ),
    (
        UnsupportedError,
        lambda call: call.batch_serialization_iterations != 1 and call.kind.name != "Sequential",
        "Batch serialization is only supported with the `Sequential` schedule.",
    ),
    (
        UnsupportedError,
        lambda call: call.batch_serialization_iterations != 1 and len(_ipus(call)) > 1,
        "When using batch serialization, all the pipeline stages need to be mapped to a single IPU.",
    ),
    (
        UnsupportedError,
        lambda call: call.continuous_weight_updates,
        "Continuous weight updates are currently not supported.",
    ),
    (
        ArgumentError,
        lambda call: len(call.mapping) != len(call.computational_stages),
        lambda call: (
            f"Each stage must be mapped to an IPU: {len(call.mapping)} mappings != "
            f"{len(call.computational_stages)} stages"
        ),
    ),
    (
        ArgumentError,
        _widths_differ,
        "Each function of a concurrent stage must be mapped to an IPU of its own; give device_mapping a list for it.",
    ),
    (
        UnsupportedError,
        _shared_ipu,
        "The pipelining schedule 'Interleaved' does not currently support multiple pipeline stages on the same "
        "device for training graphs. Give each stage its own IPU, or use another schedule.",
    ),
    (
        ArgumentTypeError,
        lambda call: not isinstance(call.outfeed_queue, OutfeedQueue | None),
        "outfeed_queue is not an instance of OutfeedQueue",
    ),
    _options("forward_propagation_stages_poplar_options"),
    _options("backward_propagation_stages_poplar_options"),
    (
        ArgumentTypeError,
        lambda call: not isinstance(call.weight_update_poplar_options, PipelineStageOptions | None),
        "weight_update_poplar_options must be one PipelineStageOptions.",
    ),
    (
        ArgumentError,
        lambda call: call.outfeed_loss and call.outfeed_mask is not None,
        "outfeed_loss and outfeed_mask exclude each other; give one of them.",
    ),
    (
        ArgumentError,
        lambda call: (call.outfeed_loss or call.outfeed_mask is not None) and call.optimizer_function is None,
        "outfeed_loss and outfeed_mask need an optimizer_function.",
    ),
    (
        ArgumentError,
        lambda call: (call.outfeed_loss or call.outfeed_mask is not None) and call.outfeed_queue is None,
        "outfeed_loss and outfeed_mask need an outfeed_queue.",
    ),
    (
        ArgumentError,
        lambda call: call.accumulate_outfeed and getattr(call.outfeed_queue, "mode", None) is not OutfeedMode.ALL,
        "accumulate_outfeed needs an outfeed_queue in mode ALL.",
    ),
    (
        ArgumentError,
        lambda call: call.replicated_optimizer_state_sharding and call.offload_weight_update_variables is False,
        "replicated_optimizer_state_sharding needs offload_weight_update_variables.",
    ),
    (
        ArgumentError,
        lambda call: _outputs(call) and call.outfeed_queue is None,
        lambda call: (
            f"The last computational stage has tensor outputs: {', '.join(_outputs(call))}, but no outfeed_queue has "
            "been provided."
        ),
    ),
    (
        ArgumentError,
        _mask_differs,
        lambda call: (
            f"The last computational stage has {len(_outputs(call))} outputs, but the `outfeed_mask` has elements "
            f"{len(call.outfeed_mask or ())} - these need to match in size."
        ),
    ),
    (
        ArgumentError,
        _captured,
        lambda call: (
            f"Trying to capture the tensor {_captured(call)[0]} which is not a resource. Pass it from stage to "
            "stage, or as one of the inputs."
        ),
    ),
)  # fmt: skip

_COMPILE_RULES: tuple[_Rule, ...] = (
    _recomputes("Sequential", "Recompute_then_backpropagate"),
    _recomputes("Interleaved", "Recompute_and_backpropagate_interleaved"),
    (UnsupportedError, lambda call: next(_used_twice(call), None), _shared_variable),
    (
        UnsupportedError,
        _sharded,
        lambda call: (
            f"{_sharded(call)[0]} puts ops on shards, but it is a stage of a pipeline on one IPU; map the stage to "
            "-1."
        ),
    ),
    (
        EmulatorError,
        lambda call: call.offload_activations and not call.remote_memory,
        "Activation offloading has been enabled, however the current configuration of the IPU devices does not "
        "support remote memory. Set offload_activations to False.",
    ),
)  # fmt: skip
