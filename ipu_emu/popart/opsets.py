"""Opsets: ``builder.aiOnnx`` and ``builder.aiGraphcore``, whose methods add ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import dtype_named
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.popart.ai_graphcore import AI_GRAPHCORE
from ipu_emu.popart.ai_onnx import AI_ONNX
from ipu_emu.popart.location import CommGroup
from ipu_emu.popart.node_attributes import NodeAttributes
from ipu_emu.popart.signatures import available, signature

__all__ = ["AiGraphcore", "AiOnnx", "plain"]


#: Parameters whose attribute has another name.
_NAMES = {"collectiveOperator": "__collectiveOperator", "commGroup": "__collectiveCommGroup"}
#: Parameters that take the number of an enum, not its name.
_NUMBERED = ("collectiveOperator",)


class AddOp(Protocol):
    """Adds an op to the model and returns the ids of its outputs."""

    def __call__(
        self, domain: str, type: str, inputs: Sequence[str], attributes: dict[str, Any], outputs: int, name: str
    ) -> list[str]: ...


class _Opset:
    """Methods by name from a table of signatures."""

    domain = ""
    table = AI_ONNX

    def __init__(self, add: AddOp, version: int, select: Callable[[int], None]) -> None:
        self._add, self._version, self._select = add, version, select

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            found = signature(name, self.table, self._version)
        except EmulatorError as error:
            raise AttributeError(error.args[0]) from None

        def add(*values: Any, **named: Any) -> str | list[str]:
            self._select(self._version)
            inputs: list[str] = []
            if found.takes_args:
                inputs = _ids(found.name, named.pop("args") if not values and "args" in named else values[0])
                values = values[1:]
            attributes, context = found.bind(values, named)
            outputs = int(attributes.pop("num_outputs", found.outputs))
            made = self._add(self.domain, found.type, inputs, plain(attributes), outputs, context)
            return made if found.returns_list else made[0]

        return add

    def __dir__(self) -> list[str]:
        return available(self.table, self._version)


class AiOnnx(_Opset):
    """Ops of one version of ai.onnx."""


class AiGraphcore(_Opset):
    """PopART's own ops."""

    domain = GRAPHCORE
    table = AI_GRAPHCORE


def _ids(name: str, args: object) -> list[str]:
    if isinstance(args, str) or not isinstance(args, Sequence):
        raise TypeError(f"{name}() takes a list of tensor ids, found {args!r}")
    return [str(id) for id in args]


def plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as ONNX keeps them; those that were not given are left out."""
    made = {_NAMES.get(name, name): _value(name, value) for name, value in attributes.items() if value is not None}
    made.pop("is_value_sparse", None)
    return made


def _value(name: str, value: Any) -> Any:
    if name == "to":
        return dtype_named(value).onnx if isinstance(value, str) else int(value)
    if name == "value" and not isinstance(value, float):  # a number is what pad fills with
        return np.array(value)
    if isinstance(value, NodeAttributes):
        return value.graph
    if isinstance(value, CommGroup):
        return [int(value.type.value), value.replicaGroupSize]
    if isinstance(value, Enum):
        return value.value if isinstance(value.value, int) and name in _NUMBERED else value.name
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, np.ndarray | tuple):
        return list(np.asarray(value).tolist())
    return value
