"""types: what each argument of a pipeline call has to be, a row each, before their values are looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ipu_emu.errors import ArgumentTypeError
from ipu_emu.tensorflow.pipeline_arguments import StageFunction

if TYPE_CHECKING:
    from ipu_emu.tensorflow.pipeline_call import PipelineCall

__all__ = ["check_types"]

_LIST = (list, tuple)


def check_types(call: PipelineCall) -> None:
    """Raise ArgumentTypeError for the first argument of a wrong type."""
    for argument, fits, text in _TYPES:
        value = getattr(call, argument)
        if not fits(value):
            raise ArgumentTypeError(text if text.endswith(".") else f"{argument} needs to be {text}, not {value!r}.")


def _integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _listed(one: Callable[[Any], bool], value: Any) -> bool:
    """A list of what fits, or of lists of it."""
    flat = (part for entry in value for part in (entry if isinstance(entry, _LIST) else [entry]))
    return all(one(part) for part in flat)


def _is_list(value: Any) -> bool:
    return isinstance(value, _LIST)


#: An argument, what fits, and what it needs to be, or the whole text, which ends in a stop.
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
        lambda value: value is None or (_is_list(value) and all(isinstance(one, bool) for one in value)),
        "a list of booleans",
    ),
)
