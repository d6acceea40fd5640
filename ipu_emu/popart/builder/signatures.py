"""Signatures: the parameters of each op of the Builder, which callers may give by position.

A ``num_outputs`` among them means that the op returns a list of ids.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from keyword import iskeyword
from operator import index
from typing import Any

import numpy as np
import onnx

from ipu_emu.errors import ArgumentTypeError, EmulatorError, RefusedError
from ipu_emu.popart.builder.ai_onnx import Row
from popdist_py.messages.suggestion import did_you_mean

#: Marks a parameter without a default.
REQUIRED = object()

#: Ops with a fixed number of outputs, which are returned as a list.
_OUTPUTS = {
    "CtcBeamSearchDecoder": 3,
    "TopK": 2,
    "DynamicQuantizeLinear": 3,
    "GroupNormalization": 3,
    "LSTM": 2,  # of aiGraphcore; the LSTM of ONNX has a num_outputs parameter
    "MultiConv": 1,
    "ReduceMedian": 2,
    "Sort": 2,
    "SplineBasis": 2,
}
#: Older names of the last parameter.
_CONTEXTS = {"debugPrefix": "debugContext", "debugName": "debugContext", "debug_context": "debugContext"}
#: The maximum number of inputs or outputs that ONNX gives for an unlimited number.
_UNBOUNDED = 2**31 - 1
#: Floating-point attributes whose type cannot be derived from a default.
_REAL = frozenset({"clip", "height_scale", "lambda", "scale", "scales", "seed", "width_scale"})
#: List attributes whose type cannot be derived from a default.
_LISTS = frozenset({"axes"})
#: Attributes that are lists of integers, except for multi-convolutions, which have a list of such lists.
_INTEGERS = frozenset({
    "axes", "dilations", "dimensions", "ends", "kernel_shape", "output_padding", "output_shape", "pads", "perm",
    "scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions", "sizes", "split",
    "starts", "strides",
})  # fmt: skip
#: Integer attributes whose type cannot be derived from a default.
_WHOLE = frozenset(
    {"axis", "axis_size", "blocksize", "group_size", "num_groups", "num_outputs", "num_scan_inputs", "k"}
)
#: Ops of aiGraphcore whose args may be one id.
_SINGLE = ("Reshape",)
#: Attributes that are strings, or numbers of element types or enumerations.
_TEXTS = frozenset({"mode", "to"})
_WITHOUT_ARGS = ("Constant", "Init", "RandomNormal", "RandomUniform", "SequenceEmpty")


@dataclass(frozen=True)
class Signature:
    """Parameters of one op in one opset, with their defaults."""

    name: str
    type: str
    takes_args: bool
    defaults: dict[str, Any]

    @classmethod
    def of(cls, name: str, row: Row, opset: int) -> Signature | None:
        """The signature in ``opset``, None if it does not have the op."""
        type, versions = row
        text = versions.get(max((version for version in versions if version <= opset), default=0))
        if text is None:
            return None
        defaults = dict(_parameter(word) for word in text.split())
        return cls(name, type, type not in _WITHOUT_ARGS, defaults)

    @property
    def returns_list(self) -> bool:
        return "num_outputs" in self.defaults or self.type in _OUTPUTS

    @property
    def outputs(self) -> int:
        """The number of outputs, unless the caller gives it."""
        return _OUTPUTS.get(self.type, 1)

    @property
    def python(self) -> inspect.Signature:
        """The signature for ``help``; a parameter named like a Python keyword (lambda) gets a ``_``."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        first = [inspect.Parameter("args", kind)] if self.takes_args else []
        others = [
            inspect.Parameter(
                f"{name}_" if iskeyword(name) else name,
                kind,
                default=inspect.Parameter.empty if value is REQUIRED else value,
            )
            for name, value in ({**self.defaults, "debugContext": ""}).items()
        ]
        return inspect.Signature([*first, *others], return_annotation=list[str] if self.returns_list else str)

    def args(self, values: Sequence[Any], named: dict[str, Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """(args, the other positional values) of a call; raise TypeError if it has no args."""
        if values:
            return values[0], values[1:]
        if "args" not in named:
            raise self._unfit("args, the ids of its inputs, are missing")
        return named.pop("args"), values

    def ids(self, args: object) -> list[str]:
        """The ids of the inputs; raise TypeError for anything but a list of ids."""
        single = self.type in _SINGLE and isinstance(args, str)
        if single:
            return [str(args)]
        if isinstance(args, str) or not isinstance(args, Iterable):
            raise self._unfit(f"args is {args!r}; give a list of ids")
        ids = list(args)
        if not all(isinstance(id, str) for id in ids):
            raise self._unfit(f"args is {args!r}; ids are texts")
        return ids

    def bind(self, values: Sequence[Any], named: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """(attributes, debug context) of a call; raise TypeError as PopART does for a wrong call."""
        names = [*self.defaults, *(["debugContext"] if "debugContext" not in self.defaults else [])]
        if len(values) > len(names):
            raise self._unfit(f"it takes {len(names)} values after args ({', '.join(names)}), not {len(values)}")
        arguments = dict(zip(names, values, strict=False))
        for name, value in named.items():
            name = _CONTEXTS.get(name, name)
            if name not in names:
                raise self._unfit(f"it has no parameter {name!r}{did_you_mean(name, names)}")
            if name in arguments:
                raise self._unfit(f"there are two values for {name!r}")
            arguments[name] = value
        context = arguments.pop("debugContext", "")
        if context is not None and not isinstance(context, str) and not hasattr(context, "getPathName"):
            raise self._unfit(f"debugContext is {context!r}; it must be a text or a DebugContext")
        bound = {name: value for name, value in self.defaults.items() if name != "debugContext"} | arguments
        missing = [name for name, value in bound.items() if value is REQUIRED]
        if missing:
            raise self._unfit(f"{', '.join(missing)} must be given")
        try:
            typed = {name: _typed(name, self.defaults[name], value) for name, value in bound.items()}
            if self.type != "MultiConv":
                typed = {name: _integers(name, value) for name, value in typed.items()}
        except ArgumentTypeError as error:
            raise self._unfit(error.args[0]) from None
        return typed, str(context or "")

    def stored(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes that the node keeps: integers always, others only if they are not the default."""
        return {
            name: value
            for name, value in attributes.items()
            if isinstance(value, np.ndarray)
            or isinstance(self.defaults.get(name), int)
            or value != self.defaults.get(name)
        }

    def _unfit(self, why: str) -> ArgumentTypeError:
        return ArgumentTypeError(
            f"{self.name}(): incompatible function arguments. The following argument types are supported:\n"
            f"    1. {self.name}{self.python}\n\n{why}"
        )


def _parameter(word: str) -> tuple[str, Any]:
    name, _, default = word.partition("=")
    return name, json.loads(default) if default else REQUIRED


def _typed(name: str, default: Any, value: Any) -> Any:
    """A value converted to the type of the attribute, as a Python number: an integer for a float becomes a float."""
    real, listed = isinstance(default, float) or name in _REAL, isinstance(default, list) or name in _LISTS
    integer = (isinstance(default, int) or name in _WHOLE) and not real
    if name in _TEXTS and not isinstance(value, str | int | Enum):
        raise ArgumentTypeError(f"{name} is {value!r}; it must be a text")
    if value is None or isinstance(value, Enum) or not (real or listed or integer):
        return value
    if listed and isinstance(value, Iterable) and not isinstance(value, str | np.ndarray):
        value = list(value)
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if real and isinstance(value, list | tuple):
        return [float(number) for number in value]
    for kind, takes, what in (
        (real, int | float, "a number"),
        (integer, int, "an integer"),
        (listed, list | tuple, "a list"),
    ):
        if kind and not isinstance(value, takes):
            raise ArgumentTypeError(f"{name} is {value!r}; it must be {what}")
    return float(value) if real else value


def _integers(name: str, value: Any) -> Any:
    """A list of integers as Python numbers; any other attribute unchanged."""
    if name not in _INTEGERS or value is None:
        return value
    try:
        return [index(number) for number in value]
    except TypeError:
        raise ArgumentTypeError(f"{name} is {value!r}; it must be a list of integers") from None


def check_inputs(type: str, opset: int, count: int) -> None:
    """Raise EmulatorError for a number of inputs that ONNX does not allow for an op of this opset."""
    schema = onnx.defs.get_schema(type, opset, "")
    if not schema.min_input <= count <= schema.max_input:
        most = "inf" if schema.max_input == _UNBOUNDED else schema.max_input
        raise RefusedError(f"{type} has invalid number of inputs {count}. Must be between {schema.min_input}..{most}")


def check_outputs(type: str, opset: int, count: int) -> None:
    """Raise EmulatorError for a number of outputs that ONNX does not allow for an op of this opset."""
    most = onnx.defs.get_schema(type, opset, "").max_output
    if not 0 <= count <= most:
        raise RefusedError(f"{type} has an invalid number of outputs {count}. Must be between 0..{most}")


def available(table: Mapping[str, Row], opset: int) -> list[str]:
    """Names of the ops of an opset."""
    return sorted(name for name, row in table.items() if Signature.of(name, row, opset))


def signature(name: str, table: Mapping[str, Row], opset: int) -> Signature:
    """Look up an op; raise EmulatorError with the ops of this opset if it is unknown."""
    known = Signature.of(name, table[name], opset) if name in table else None
    if known is None:
        names = available(table, opset)
        raise EmulatorError(
            f"No op '{name}' in opset {opset}; there are {', '.join(names)}{did_you_mean(name, names)}"
        )
    return known
