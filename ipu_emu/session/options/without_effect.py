"""Without effect: settings that only tune a real IPU, its compiler or its reports, which a warning names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from popdist_py.messages.user_warning import warn_user

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def say_without_effect(kind: str, names: Iterable[str]) -> None:
    """Warn that settings of this ``kind`` have no effect; Python shows a warning of the same line and text once."""
    listed = sorted(names)
    if listed:
        warn_user(f"{kind} {', '.join(listed)} {'has' if len(listed) == 1 else 'have'} no effect on emulated IPUs")


def without_effect(*names: str) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Decorate a function: a warning names those of its arguments ``names`` that are off their defaults."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        parameters = inspect.signature(function).parameters
        kind = f"Arguments of {function.__qualname__.removesuffix('.__init__')}"

        @functools.wraps(function)
        def call(*values: Parameters.args, **named: Parameters.kwargs) -> Result:
            bound = dict(zip(parameters, values, strict=False)) | named
            say_without_effect(kind, [name for name in names if _is_off(bound, parameters[name])])
            return function(*values, **named)

        return call

    return decorate


def _is_off(bound: dict[str, object], parameter: inspect.Parameter) -> bool:
    value = bound.get(parameter.name, parameter.default)
    return value is not parameter.default and not (
        isinstance(value, type(parameter.default)) and value == parameter.default
    )
