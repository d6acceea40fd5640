"""Opsets: ``builder.aiOnnx`` and ``builder.aiGraphcore``, whose methods add ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np

from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, dtype_named
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.popart.builder.ai_graphcore import AI_GRAPHCORE
from ipu_emu.popart.builder.ai_onnx import AI_ONNX, Row
from ipu_emu.popart.builder.node_annotations import attribute_value
from ipu_emu.popart.builder.signatures import available, check_inputs, check_outputs, signature
from ipu_emu.popart.types.enums import DataType, ScatterReduction
from ipu_emu.session.options.tensor_location import CommGroup

#: Parameters whose attribute has another name.
_NAMES = {"collectiveOperator": "__collectiveOperator", "commGroup": "__collectiveCommGroup"}
#: Parameters that take the number of an enum, not its name.
_NUMBERED = ("collectiveOperator", "remap_type")
#: Multi-convolutions take lists of lists of tensors, and a list of each attribute.
_MULTI = "MultiConv"


def _unchecked(outputs: int) -> None:
    """Accept any number of outputs."""


class AddOp(Protocol):
    """Adds an op to the model and returns the ids of its outputs."""

    def __call__(
        self, domain: str, type: str, inputs: Sequence[str], attributes: dict[str, Any], outputs: int, name: str
    ) -> list[str]: ...


class _Opset:
    """Methods by name from a table of signatures."""

    domain = ""
    table: ClassVar[Mapping[str, Row]] = AI_ONNX

    def __init__(self, add: AddOp, version: int) -> None:
        self._add, self._version = add, version

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            op = signature(name, self.table, self._version)
        except EmulatorError as error:
            raise AttributeError(error.args[0]) from None
        check = partial(check_outputs, op.type, self._version) if not self.domain else _unchecked

        def add(*arguments: Any, **named: Any) -> str | list[str]:
            values: Sequence[Any] = arguments
            args: Sequence[Any] = ()
            inputs: list[str] = []
            if op.takes_args:
                args, values = op.args(values, named)
                inputs = _triples(args) if op.type == _MULTI else op.ids(args)
            attributes, context = op.bind(values, named)
            if op.takes_args and not self.domain:
                check_inputs(op.type, self._version, len(inputs))
            outputs = int(attributes.pop("num_outputs", op.outputs))
            if op.type == _MULTI:
                attributes, outputs = _numbered(attributes), len(args)
            check(outputs)
            if not self.domain:
                attributes = op.stored(attributes)
            ids = self._add(self.domain, op.type, inputs, plain(attributes), outputs, context)
            return ids if op.returns_list else ids[0]

        described: Any = add
        described.__name__ = described.__qualname__ = name
        described.__doc__ = f"Add {op.type} of {self.domain or 'ai.onnx'} and return the ids of its outputs."
        described.__signature__ = op.python
        return add

    def __str__(self) -> str:
        return f"{type(self).__name__.partition('Opset')[0]}{self._version}"

    def __dir__(self) -> list[str]:
        return available(self.table, self._version)


class AiOnnx(_Opset):
    """Ops of one version of ai.onnx."""


def _triples(args: Sequence[Any]) -> list[str]:
    """Data, weights and (possibly absent) bias of each convolution of a multi-convolution."""
    lists = [[str(id) for id in triple] for triple in args]
    if not lists or any(len(triple) not in (2, 3) for triple in lists):
        raise TypeError("multiconv() takes a list of [data, weights] or [data, weights, bias], one per convolution")
    return [id for triple in lists for id in (*triple, "")[:3]]


def _numbered(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """``name_i`` for the list of convolution i."""
    numbered: dict[str, Any] = {}
    for name, value in attributes.items():
        is_single = not isinstance(value, Sequence) or isinstance(value, str)
        numbered |= {name: value} if is_single else {f"{name}_{i}": item for i, item in enumerate(value)}
    return numbered


class AiOnnxOpset6(AiOnnx):
    """ai.onnx 6."""


class AiOnnxOpset7(AiOnnx):
    """ai.onnx 7."""


class AiOnnxOpset8(AiOnnx):
    """ai.onnx 8."""


class AiOnnxOpset9(AiOnnx):
    """ai.onnx 9."""


class AiOnnxOpset10(AiOnnx):
    """ai.onnx 10."""


class AiOnnxOpset11(AiOnnx):
    """ai.onnx 11."""


class AiOnnxMlOpset1(_Opset):
    """ai.onnx.ml 1, for classical machine learning, none of whose ops is emulated."""

    domain = "ai.onnx.ml"
    table: ClassVar = {}


class AiGraphcoreOpset1(_Opset):
    """ai.graphcore 1: PopART's own ops."""

    domain = GRAPHCORE
    table = AI_GRAPHCORE


#: ai.onnx by version.
OPSETS: dict[int, type[AiOnnx]] = {
    6: AiOnnxOpset6,
    7: AiOnnxOpset7,
    8: AiOnnxOpset8,
    9: AiOnnxOpset9,
    10: AiOnnxOpset10,
    11: AiOnnxOpset11,
}


def plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as ONNX stores them, without those that were not given."""
    values = {_NAMES.get(name, name): _value(name, value) for name, value in attributes.items() if value is not None}
    if values.pop("is_value_sparse", False):
        raise EmulatorError("The Constant op attribute 'sparse_value' is not supported.")
    return values


def _value(name: str, value: Any) -> Any:
    if name == "to":
        value = value.name if isinstance(value, DataType) else value
        return dtype_named(value).onnx if isinstance(value, str) else int(value)
    if name == "value" and not isinstance(value, float):  # for pad, ``value`` is a number
        return np.array(value)
    if isinstance(getattr(value, "graph", None), Graph):  # a builder of a subgraph
        return value.graph
    if isinstance(value, CommGroup):
        return [int(value.type.value), value.replicaGroupSize]
    if isinstance(value, ScatterReduction):
        return value.attribute
    if isinstance(value, Enum):
        return value.value if isinstance(value.value, int) and name in _NUMBERED else value.name
    return attribute_value(value)
