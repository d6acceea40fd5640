"""Builder: builds a model op by op, and returns it as an ONNX ModelProto."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError, MissingDataError, RefusedError
from ipu_emu.graph import Graph, Op, Role, Tensor
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.onnx.external_data import DataPlace, append_external, relative_places, write_external
from ipu_emu.onnx.files import ModelBytes, Source
from ipu_emu.onnx.properties import REPLICATION, grouped_variables
from ipu_emu.onnx.read import read
from ipu_emu.onnx.write import to_model, write_model
from ipu_emu.ops import append, append_unchecked
from ipu_emu.popart.builder.node_annotations import EXCLUDED_PATTERNS, Annotations, NodeAnnotations
from ipu_emu.popart.builder.opsets import OPSETS, AiGraphcoreOpset1, AiOnnx, AiOnnxMlOpset1, plain
from ipu_emu.popart.builder.subgraphs import completed
from ipu_emu.popart.options.input_settings import InputArguments, one_of_kind
from ipu_emu.popart.options.variable_settings import VariableSettings
from ipu_emu.popart.types.enums import RecomputeType
from ipu_emu.popart.types.tensor_info import TensorInfo
from ipu_emu.session.options.without_effect import without_effect

#: The ai.onnx opset of ``builder.aiOnnx``.
defaultAiOnnxOpset = 10
_WEIGHT_NAMES = ("initVal", "variableSettings", "debugContext", "debugPrefix")

#: The key of the number of an input in the metadata of a model.
_DEBUG_ID = "__debug_id/input/"

_CHECKPOINT = "Checkpoint"
#: Patterns that would remove an Identity.
_REMOVE_IDENTITIES = ("PreUniRepl", "PostNRepl")


class Builder(NodeAnnotations):
    """``Builder(modelProtoOrFilename=None, opsets=None)``."""

    @without_effect("builderCore")
    def __init__(
        self,
        modelProtoOrFilename: Source | None = None,
        opsets: Mapping[str, int] | None = None,
        builderCore: object = None,
    ) -> None:
        self._annotations = Annotations()
        self._graph = Graph()
        self._opset = _checked((opsets or {}).get("ai.onnx", defaultAiOnnxOpset))
        self._locked = "ai.onnx" in (opsets or {})
        self._external: dict[str, DataPlace] = {}
        self._children: list[Builder] = []
        self._unfit: dict[str, EmulatorError] = {}
        if modelProtoOrFilename is not None:
            self._read(modelProtoOrFilename)

    def _read(self, source: Source) -> None:
        try:
            model = read(source, as_written=True)
        except MissingDataError as error:
            raise RuntimeError(
                f"Data of TensorProto ( tensor name: {error.id}) should be stored in {error.file}, but it doesn't "
                "exist or is not accessible."
            ) from error
        self._graph = model.graph
        self._opset, self._locked = model.opset, True

    @property
    def graph(self) -> Graph:
        """The graph built so far. An extension of PopART."""
        return self._graph

    # Opsets

    def __getattr__(self, name: str) -> AiOnnx:
        for version, opset in OPSETS.items():
            if name == f"aiOnnxOpset{version}":
                self._select(version)
                return opset(self._add, version)
        raise AttributeError(f"'Builder' object has no attribute {name!r}")

    @property
    def aiOnnx(self) -> AiOnnx:
        """Ops of ai.onnx in the opset of this builder."""
        self._select(self._opset)
        return OPSETS.get(self._opset, AiOnnx)(self._add, self._opset)

    @property
    def aiOnnxMl(self) -> AiOnnxMlOpset1:
        """The domain ai.onnx.ml, none of whose ops is emulated."""
        return AiOnnxMlOpset1(self._add, 1)

    aiOnnxMlOpset1 = aiOnnxMl

    @property
    def aiGraphcore(self) -> AiGraphcoreOpset1:
        """PopART's own ops (ai.graphcore, opset 1)."""
        return AiGraphcoreOpset1(self._add, 1)

    aiGraphcoreOpset1 = aiGraphcore

    def _select(self, version: int) -> None:
        """Fix the opset at its first use; the opset of a model, or one given to the constructor, is fixed at once."""
        if self._locked and version != self._opset:
            raise RuntimeError(
                f"Invalid opset 'aiOnnxOpset{version}' selected. Opset for domain ai.onnx already defined as "
                f"{self._opset}"
            )
        self._opset, self._locked = version, True

    # Subgraphs

    def createSubgraphBuilder(self) -> Builder:
        """A builder for the body of a call, a loop or a branch; it may use the tensors of this one."""
        child = Builder()
        child._opset = self._opset
        child._graph = Graph(parent=self._graph)
        child._locked = self._locked
        self._children.append(child)
        return child

    def addInputTensorFromParentGraph(self, id: str) -> None:
        """Make a tensor of the parent graph an input of this subgraph: of a call by position, else by name."""
        parent = self._graph.parent
        if parent is None:
            raise EmulatorError("addInputTensorFromParentGraph is for subgraphs; this is the top-level graph")
        if not parent.knows(id):
            raise EmulatorError(
                f"Failed to add unrecognised Tensor {id} from higher scope, as no enclosing graph has such a tensor; "
                "add it there first"
            )
        if id not in self._graph.inputs:
            if id in self._graph.captured:
                self._graph.captured.remove(id)
                self._graph.data.pop(id, None)
            self._graph.tensors[id] = replace(parent.tensor(id), role=Role.COMPUTED)
            self._graph.inputs.append(id)

    # Inputs and outputs

    def addInputTensor(self, *values: Any, **named: Any) -> str:
        """``(TensorInfo[, InputSettings][, debugContext])`` or ``(dtype, shape[, InputSettings][, debugContext])``"""
        arguments = InputArguments.of(values, named)
        id = self._unused(arguments.name or "input")
        role = Role.INPUT if self._graph.parent is None else Role.COMPUTED
        self._graph.add(Tensor(id, arguments.info.dtype, tuple(arguments.info.shape()), role))
        self._graph.inputs.append(id)
        self._graph.metadata |= {_DEBUG_ID + id: str(len(self._graph.tensors))} | arguments.settings.metadata(id)
        return id

    def addInitializedInputTensor(self, *values: Any, **named: Any) -> str:
        """``(array[, VariableSettings][, debugContext])``; the array is copied."""
        unknown = sorted(set(named) - set(_WEIGHT_NAMES))
        if unknown or not (values or "initVal" in named):
            raise TypeError(
                f"addInitializedInputTensor() takes {', '.join(_WEIGHT_NAMES)}; found {', '.join(unknown)}"
            )
        array, *settings_and_name = [*values, *(named[name] for name in _WEIGHT_NAMES if name in named)]
        data = _variable_data(array)
        settings = one_of_kind(settings_and_name, VariableSettings, None) or VariableSettings()
        id = self._unused(one_of_kind(settings_and_name, str, "") or "init_input")
        if not settings.is_default:
            self._graph.metadata |= settings.metadata(id)
        shape = data.shape[1:] if id in grouped_variables(self._graph.metadata) else data.shape
        role = Role.WEIGHT if self._graph.parent is None else Role.CONSTANT
        self._graph.add(Tensor(id, TensorInfo(data).dtype, shape, role), data)
        self._graph.metadata[_DEBUG_ID + id] = str(len(self._graph.tensors))
        return id

    def _unused(self, name: str) -> str:
        """An id that is unused in this graph, its parents and its subgraphs."""
        base = self._annotations.prefix + name
        id, count = base, 0
        while self._graph.knows(id) or any(child.takes(id) for child in self._children):
            count += 1
            id = f"{base}/{count}"
        return id

    def takes(self, id: str) -> bool:
        """Whether an id is used in this graph or its subgraphs. An extension of PopART."""
        return id in self._graph.tensors or any(child.takes(id) for child in self._children)

    def addUntypedInputTensor(self, debugContext: str = "") -> str:
        """An input of a subgraph that gets its type and shape from the op that uses the subgraph."""
        if self._graph.parent is not None:
            id = self.addInputTensor(TensorInfo("FLOAT", []), debugContext)
            self._unfit[id] = EmulatorError("the op that uses the subgraph determines them")
            return id
        raise EmulatorError(
            "Can not add untyped tensors to the top-level graph. Use Builder::addInputTensor(const TensorInfo "
            "&tensorInfo, const std::string &debugPrefix) instead."
        )

    def addOutputTensor(self, id: str) -> None:
        """Make a tensor an output of the model; of a subgraph it may be more than one."""
        self._graph.tensor(id)
        if id not in self._graph.outputs or self._graph.parent is not None:
            self._graph.outputs.append(id)

    # Ops

    def _add(
        self,
        domain: str,
        type: str,
        inputs: Sequence[str],
        attributes: dict[str, Any],
        outputs: int,
        name: str,
        version: int | None = None,
    ) -> list[str]:
        prefix = self._annotations.prefix
        self._check_inputs(inputs)
        ids = tuple(self._unused(f"{type}:{index}") for index in range(outputs))
        version = version or (self._opset if domain == "" else 1)
        annotated = attributes | self._annotations.current
        op = Op(type, tuple(inputs), ids, annotated, domain, version, prefix + name if name else "")
        op, fault = completed(self._graph, op)
        if fault is not None:
            self._unfit |= dict.fromkeys(ids, fault)
        try:
            if any(id in self._unfit for id in inputs):
                append_unchecked(self._graph, op)
            else:
                append(self._graph, op)
        except RefusedError:
            raise
        except EmulatorError as error:
            append_unchecked(self._graph, op)  # a session raises errors of the graph
            self._unfit |= dict.fromkeys(ids, error)
        self._unfit |= {id: self._unfit[source] for source in inputs if source in self._unfit for id in ids}
        return list(ids)

    def _check_inputs(self, inputs: Sequence[str]) -> None:
        for id in inputs:
            if id and not self._graph.knows(id):
                known = [id for id in self._graph.tensors if self._graph.tensors[id].role is not Role.CONSTANT]
                raise EmulatorError(f"Unknown tensor '{id}' (valid tensors are {', '.join(known)}).")

    def customOp(
        self,
        opName: str,
        opVersion: int,
        domain: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Any],
        numOutputs: int = 1,
        name: str = "",
    ) -> list[str]:
        """Add any op that the emulator knows, by its ONNX name; custom ops in C++ cannot be loaded."""
        place = "" if domain == "ai.onnx" else domain
        if place not in ("", GRAPHCORE):
            raise EmulatorError(
                f"Custom op {opName} of domain {domain}: ops in C++ cannot be loaded; build it from "
                "those of ai.onnx and ai.graphcore"
            )
        return self._add(place, opName, inputs, plain(attributes), numOutputs, name, opVersion)

    def checkpointOutput(self, ids: str | Sequence[str]) -> list[str]:
        """Copies of ``args`` that are kept for the backward pass."""
        sources = [ids] if isinstance(ids, str) else ids
        checkpoints = [self._add("", "Identity", [id], {}, 1, _CHECKPOINT)[0] for id in sources]
        for id in checkpoints:
            self.recomputeOutput(id, RecomputeType.Checkpoint)
            self._assign(EXCLUDED_PATTERNS, list(_REMOVE_IDENTITIES), {id})
        return checkpoints

    def reshape_const(self, aiOnnx: AiOnnx, args: Sequence[str], shape: Sequence[int], debugContext: str = "") -> str:
        """Reshape to a constant shape."""
        constant = aiOnnx.constant(np.array(shape, np.int64), debugContext=debugContext)
        reshaped = aiOnnx.reshape([args[0], constant], debugContext=debugContext)
        return str(reshaped)

    # The model

    def getModelProto(self) -> bytes:
        """The model as a serialised ONNX ModelProto."""
        model = to_model(self._graph, opset=self._opset, external=self._external)
        return ModelBytes(model, {place.file for place in self._external.values()})

    def saveModelProto(self, filename: str) -> None:
        """Write the model to a file atomically."""
        external = relative_places(filename, self._external)
        write_model(filename, to_model(self._graph, opset=self._opset, external=external))

    def saveInitializersExternally(self, ids: Sequence[str], filename: str) -> None:
        """Keep the data of these weights in the separate file ``filename`` when the model is saved."""
        for id in ids:
            if not self.isInitializer(id):
                raise EmulatorError(f"Tensor '{id}' is not an initializer")
            if id in self._external:
                raise EmulatorError(f"Tensor '{id}' already has an external data_location")
        file = os.path.realpath(filename)
        same = {id: place for id, place in self._external.items() if os.path.realpath(place.file) == file}
        data = self._graph.data
        self._external |= append_external(data, ids, same) if same else write_external(data, ids, filename)

    def embedReplicationFactor(self, replicationFactor: int) -> None:
        """Store the number of replicas in the model; it determines the number of groups of a variable."""
        self._graph.metadata[REPLICATION] = str(replicationFactor)

    def getTensorShape(self, id: str) -> list[int]:
        """The shape of a tensor, inferred by the Builder; a session differs for Subsample and the labels of Nll."""
        op = next((op for op in reversed(self._graph.ops) if id in op.outputs), None)
        if op is not None and op.type == "Subsample":
            sizes = self._inferred(op.inputs[0]).shape
            return [size // stride for size, stride in zip(sizes, op.attributes["strides"], strict=True)]
        if op is not None and op.type == "Nll" and op.attributes.get("reduction") == "NoReduction":
            return list(self._inferred(op.inputs[1]).shape)
        return list(self._inferred(id).shape)

    def getTensorDtypeString(self, id: str) -> str:
        """The name of the numpy type, such as float32."""
        return str(self._inferred(id).dtype.numpy)

    def _inferred(self, id: str) -> Tensor:
        """The tensor ``id``; raise EmulatorError if it is the result of an op with invalid inputs."""
        if id in self._unfit:
            raise EmulatorError(f"Shape and type of tensor '{id}' are not known: {self._unfit[id].args[0]}")
        return self._graph.tensor(id)

    def isInitializer(self, id: str) -> bool:
        """Whether a tensor is an initialised input (a weight)."""
        return id in self._graph.tensors and self._graph.tensors[id].role is Role.WEIGHT

    def getInputTensorIds(self) -> list[str]:
        """Ids of all inputs, weights included."""
        if self._graph.parent is not None:
            return list(self._graph.inputs)
        return [tensor.id for tensor in self._graph.with_role(Role.INPUT, Role.WEIGHT)]

    def getOutputTensorIds(self) -> list[str]:
        """Ids of the outputs of the model."""
        return list(self._graph.outputs)

    def getValueTensorIds(self) -> list[str]:
        """Ids of the results of ops whose shapes are known, in the order of the ops."""
        return [id for op in self._graph.ops for id in op.outputs if id and id not in self._unfit]

    def getTrainableTensorIds(self) -> list[str]:
        """Ids of the weights."""
        return [tensor.id for tensor in self._graph.with_role(Role.WEIGHT)]


def _checked(opset: int) -> int:
    """Raise EmulatorError for an unknown version of ai.onnx."""
    if opset not in OPSETS:
        raise EmulatorError(
            f"Encountered ONNX opset version {opset}, Maximimum supported opset is {max(OPSETS)}, minimum "
            f"{min(OPSETS)} and default {defaultAiOnnxOpset}."
        )
    return opset


def _variable_data(array: NDArray[Any]) -> NDArray[Any]:
    """A contiguous copy of initial data; raise EmulatorError for a type that no variable can have."""
    data = np.array(array, order="C")
    if data.dtype == np.float64 or data.dtype.kind not in "fiub":
        name = "DOUBLE" if data.dtype == np.float64 else data.dtype
        raise EmulatorError(f"Unsupported data type for initialized data ({name})")
    return data
