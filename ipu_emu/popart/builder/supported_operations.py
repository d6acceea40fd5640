"""Supported operations: which versions of which ops a session runs, with their inputs, outputs and attributes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx

from ipu_emu.errors import EmulatorError
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops import TABLE
from ipu_emu.ops.control.unsupported import OPS as REFUSED
from ipu_emu.popart.builder.ai_graphcore import AI_GRAPHCORE
from ipu_emu.popart.builder.opsets import OPSETS
from ipu_emu.popart.builder.signatures import Signature
from ipu_emu.popart.types.enums import DataType

_ONNX = "ai.onnx"
#: Ops that only the transforms add.
_INTERNAL = (
    "Accumulate", "AccumulatorZero", "AdamUpdater", "AdamVarUpdate", "ConvFlipWeights", "ConvWeightsGrad", "HostLoad",
    "HostStore", "IpuCopy", "L1Grad", "NllGrad", "ReluGrad", "Restore", "SGD0VarUpdate", "SGD1AcclUpdate",
    "SGD1VarUpdate", "SoftmaxGrad", "Stash",
)  # fmt: skip
#: ONNX's names of element types.
_TYPES = {
    "tensor(float)": DataType.FLOAT,
    "tensor(float16)": DataType.FLOAT16,
    "tensor(double)": DataType.DOUBLE,
    "tensor(bool)": DataType.BOOL,
    **{
        f"tensor({sign}int{bits})": DataType[f"{sign.upper()}INT{bits}"]
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}
_FLOATS = (DataType.FLOAT16, DataType.FLOAT)


@dataclass(frozen=True, order=True)
class OperatorIdentifier:
    """Domain, type and version of an op."""

    domain: str
    type: str
    version: int

    def __str__(self) -> str:
        return f"{self.domain}.{self.type}:{self.version}"


@dataclass(frozen=True)
class OpOperand:
    """An input or an output; a ``constant`` input must be known when the model is compiled."""

    name: str
    supportedTensors: list[DataType]
    constant: bool = False


@dataclass(frozen=True)
class OpAttribute:
    """The values that an attribute may have; "*" is any."""

    supportedValuesRegex: str = "*"


@dataclass(frozen=True)
class OpDefinition:
    """The inputs, outputs and attributes of an op."""

    inputs: list[OpOperand] = field(default_factory=list)
    outputs: list[OpOperand] = field(default_factory=list)
    attributes: dict[str, OpAttribute] = field(default_factory=dict)


def getSupportedOperations(includeInternal: bool) -> list[OperatorIdentifier]:
    """One identifier for each version of an op, from the oldest opset to the newest."""
    return sorted(getSupportedOperationsDefinition(includeInternal))


def getUnsupportedOperations(opsetVersion: int) -> list[OperatorIdentifier]:
    """The ops of an opset of ai.onnx that are not supported in the version that it has."""
    if opsetVersion not in OPSETS:
        raise EmulatorError(f"There is no opset {opsetVersion} of ai.onnx; use {min(OPSETS)} to {max(OPSETS)}")
    known = set(getSupportedOperations(False))
    everything = {OperatorIdentifier(_ONNX, s.name, s.since_version) for s in _schemas(opsetVersion)}
    return sorted(everything - known)


def getSupportedOperationsDefinition(includeInternal: bool) -> dict[OperatorIdentifier, OpDefinition]:
    """Inputs, outputs and attributes of each supported op."""
    definitions = {
        OperatorIdentifier(_ONNX, schema.name, schema.since_version): _of_schema(schema)
        for opset in OPSETS
        for schema in _schemas(opset)
        if _is_run("", schema.name)
    }
    for name, row in AI_GRAPHCORE.items():
        form = Signature.of(name, row, 1)
        if form is not None and _is_run(GRAPHCORE, row[0]):
            attributes = {attribute: OpAttribute() for attribute in form.defaults if attribute != "num_outputs"}
            inputs = [OpOperand("args", list(_FLOATS))] if form.takes_args else []
            definition = OpDefinition(inputs, [OpOperand("out", list(_FLOATS))], attributes)
            definitions[OperatorIdentifier(GRAPHCORE, row[0], 1)] = definition
    if includeInternal:
        definitions |= {OperatorIdentifier(GRAPHCORE, type, 1): OpDefinition() for type in _INTERNAL}
    return definitions


def _is_run(domain: str, type: str) -> bool:
    return (domain, type) in TABLE.table and all(type != entry.type for entry in REFUSED)


def _schemas(opset: int) -> Iterator[onnx.defs.OpSchema]:
    """The schemas of the ops of ``opset``."""
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.since_version <= opset:
            try:
                newest = onnx.defs.get_schema(schema.name, opset, "")
            except onnx.defs.SchemaError:  # an op that this opset has removed
                continue
            if newest.since_version == schema.since_version and not newest.deprecated:
                yield schema


def _of_schema(schema: onnx.defs.OpSchema) -> OpDefinition:
    entry = TABLE.table["", schema.name]
    inputs = [
        OpOperand(parameter.name, _tensors(parameter), index in entry.constant_inputs)
        for index, parameter in enumerate(schema.inputs)
    ]
    outputs = [OpOperand(parameter.name, _tensors(parameter)) for parameter in schema.outputs]
    return OpDefinition(inputs, outputs, {name: OpAttribute() for name in sorted(schema.attributes)})


def _tensors(parameter: onnx.defs.OpSchema.FormalParameter) -> list[DataType]:
    return [_TYPES[name] for name in sorted(parameter.types) if name in _TYPES]
