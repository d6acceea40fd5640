"""Builder: builds a model op by op, and returns it as an ONNX ModelProto."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.compiler.annotations import EXECUTION_PHASE, IPU_NUMBER, OUTPUT_LOCATION, PIPELINE_STAGE, RECOMPUTE
from ipu_emu.compiler.model_properties import REPLICATION, grouped_variables
from ipu_emu.errors import ArgumentTypeError, EmulatorError, RefusedError
from ipu_emu.graph import Graph, Op, Role, Tensor
from ipu_emu.graph.external_data import DataPlace, append_external, places_beside, places_of, write_external
from ipu_emu.graph.onnx_files import load_light, opset_of, write_model
from ipu_emu.graph.onnx_model import from_model, metadata_of, to_model
from ipu_emu.graph.op import GRAPHCORE
from ipu_emu.ops import append, append_unchecked
from ipu_emu.popart.builder.annotations import SCHEDULE_PRIORITY, Annotations
from ipu_emu.popart.builder.node_attributes import NodeAttributes, is_list_of
from ipu_emu.popart.builder.opsets import OPSETS, AiGraphcore, AiGraphcoreOpset1, AiOnnx, AiOnnxMlOpset1, plain
from ipu_emu.popart.builder.subgraphs import completed
from ipu_emu.popart.options.input_settings import InputArguments, one_of_kind
from ipu_emu.popart.options.tensor_location import TensorLocation
from ipu_emu.popart.options.variable_settings import VariableSettings
from ipu_emu.popart.types.enums import CommGroupType, RecomputeType
from ipu_emu.popart.types.tensor_info import TensorInfo

__all__ = ["Builder"]

#: The ai.onnx opset of ``builder.aiOnnx``.
defaultAiOnnxOpset = 10
_WEIGHT_NAMES = ("initVal", "variableSettings", "debugContext", "debugPrefix")

#: The key of the number of an input in the metadata of a model.
_DEBUG_ID = "__debug_id/input/"
_COMM_GROUP = "__collectiveCommGroup"
_EXCLUDE = "__exclude_patterns"
_PARTIALS, _PROPORTION, _DITHERING = "__partials_type", "__available_memory", "__enable_conv_dithering"
_SERIALIZE = "__serialize_matmul"
_INPLACE_NAMES, _INPLACE_PRIORITIES = "__inplace_op_names", "__inplace_op_priorities"

#: The attribute of every node that names its debug information.
_DEBUG_INFO = "__debug_info_id"
_CHECKPOINT = "Checkpoint"
#: Patterns that would remove an Identity.
_REMOVE_IDENTITIES = ("PreUniRepl", "PostNRepl")
_CONVOLUTIONS = ("Conv", "ConvTranspose", "MultiConv")

_Context = AbstractContextManager[None]


class Builder:
    """``Builder(modelProtoOrFilename=None, opsets=None)``."""

    def __init__(
        self,
        modelProtoOrFilename: bytes | str | None = None,
        opsets: Mapping[str, int] | None = None,
        builderCore: object = None,
    ) -> None:
        self._annotations = Annotations()
        self._use(Graph())
        self._opset = _checked((opsets or {}).get("ai.onnx", defaultAiOnnxOpset))
        self._locked = "ai.onnx" in (opsets or {})
        self._external: dict[str, DataPlace] = {}
        self._children: list[Builder] = []
        self._unfit: dict[str, EmulatorError] = {}
        if modelProtoOrFilename is not None:
            model, large = load_light(modelProtoOrFilename)
            for id, place in places_of(model).items():
                if not os.path.isfile(place.file):
                    raise RuntimeError(
                        f"Data of TensorProto ( tensor name: {id}) should be stored in {place.file}, but it doesn't "
                        "exist or is not accessible."
                    )
            self._use(from_model(model, append, groups=grouped_variables(metadata_of(model)), large=large))
            self._opset, self._locked = opset_of(model), True

    def _use(self, graph: Graph) -> None:
        self._graph, self._nodes = graph, NodeAttributes(graph)

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

    @property
    def aiOnnxMlOpset1(self) -> AiOnnxMlOpset1:
        """The same as ``aiOnnxMl``."""
        return self.aiOnnxMl

    @property
    def aiGraphcore(self) -> AiGraphcore:
        """PopART's own ops (ai.graphcore, opset 1)."""
        return AiGraphcoreOpset1(self._add, 1)

    @property
    def aiGraphcoreOpset1(self) -> AiGraphcore:
        """The same as ``aiGraphcore``."""
        return self.aiGraphcore

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
        child._use(Graph(parent=self._graph))
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
        given = InputArguments.of(values, named)
        id = self._unused(given.name or "input")
        role = Role.INPUT if self._graph.parent is None else Role.COMPUTED
        self._graph.add(Tensor(id, given.info.dtype, tuple(given.info.shape()), role))
        self._graph.inputs.append(id)
        self._graph.metadata |= {_DEBUG_ID + id: str(len(self._graph.tensors))} | given.settings.metadata(id)
        return id

    def addInitializedInputTensor(self, *values: Any, **named: Any) -> str:
        """``(array[, VariableSettings][, debugContext])``; the array is copied."""
        unknown = sorted(set(named) - set(_WEIGHT_NAMES))
        if unknown or not (values or "initVal" in named):
            raise TypeError(
                f"addInitializedInputTensor() takes {', '.join(_WEIGHT_NAMES)}; found {', '.join(unknown)}"
            )
        array, *given = [*values, *(named[name] for name in _WEIGHT_NAMES if name in named)]
        data = _variable_data(array)
        settings = one_of_kind(given, VariableSettings, None) or VariableSettings()
        id = self._unused(one_of_kind(given, str, "") or "init_input")
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
        given = attributes | self._annotations.current
        op = Op(type, tuple(inputs), ids, given, domain, version, prefix + name if name else "")
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
            append_unchecked(self._graph, op)  # errors of the graph are for a session to raise
            self._unfit |= dict.fromkeys(ids, error)
        self._unfit |= {id: self._unfit[source] for source in inputs if source in self._unfit for id in ids}
        return list(ids)

    def _check_inputs(self, inputs: Sequence[str]) -> None:
        for id in inputs:
            if id and not self._graph.knows(id):
                known = [one for one in self._graph.tensors if self._graph.tensors[one].role is not Role.CONSTANT]
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
        asked = [ids] if isinstance(ids, str) else ids
        made = [self._add("", "Identity", [id], {}, 1, _CHECKPOINT)[0] for id in asked]
        for id in made:
            self.recomputeOutput(id, RecomputeType.Checkpoint)
            self._nodes.assign(_EXCLUDE, list(_REMOVE_IDENTITIES), {id})
        return made

    def reshape_const(self, aiOnnx: AiOnnx, args: Sequence[str], shape: Sequence[int], debugContext: str = "") -> str:
        """Reshape to a constant shape."""
        constant = aiOnnx.constant(np.array(shape, np.int64), debugContext=debugContext)
        made = aiOnnx.reshape([args[0], constant], debugContext=debugContext)
        return str(made)

    # The model

    def getModelProto(self) -> bytes:
        """The model as a serialised ONNX ModelProto."""
        return to_model(self._graph, opset=self._opset, external=self._external)

    def saveModelProto(self, filename: str) -> None:
        """Write the model to a file atomically."""
        external = places_beside(filename, self._external)
        write_model(filename, to_model(self._graph, opset=self._opset, external=external))

    def saveInitializersExternally(self, ids: Sequence[str], filename: str) -> None:
        """Keep the data of these weights in the separate file ``filename`` when the model is saved."""
        for id in ids:
            if not self.isInitializer(id):
                raise EmulatorError(f"Tensor '{id}' is not an initializer")
            if id in self._external:
                raise EmulatorError(f"Tensor '{id}' already has an external data_location")
        in_use = any(place.file == filename for place in self._external.values())
        write = append_external if in_use else write_external
        self._external |= write(self._graph.data, ids, filename)

    def embedReplicationFactor(self, replicationFactor: int) -> None:
        """Store the number of replicas in the model; it determines the number of groups of a variable."""
        self._graph.metadata[REPLICATION] = str(replicationFactor)

    def getTensorShape(self, id: str) -> list[int]:
        """The shape of a tensor, as the Builder infers it: unlike a session for Subsample and for labels of Nll."""
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
        """Say whether a tensor is an initialised input (a weight)."""
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

    # Names

    def nameScope(self, name: str) -> _Context:
        """Prefix the ids of everything that is added within the context with ``name``."""
        return self._annotations.scope(name)

    def getNameScope(self, name: str = "") -> str:
        """The current name scopes, followed by ``name``."""
        return self._annotations.prefix + name

    # Placement: annotations of one node, or of all nodes within a context

    def virtualGraph(self, *args: Any) -> _Context | None:
        """``virtualGraph(ids, v)`` for one node, ``with builder.virtualGraph(v):`` for all within."""
        return self._number(IPU_NUMBER, "virtualGraph", args)

    def pipelineStage(self, *args: Any) -> _Context | None:
        """As ``virtualGraph``."""
        return self._number(PIPELINE_STAGE, "pipelineStage", args)

    def executionPhase(self, *args: Any) -> _Context | None:
        """As ``virtualGraph``."""
        return self._number(EXECUTION_PHASE, "executionPhase", args)

    def commGroup(self, type: CommGroupType | int = 0, groupSize: int = 0) -> _Context:
        """The group of replicas for the collectives that are added within the context."""
        return self._annotations.attribute(_COMM_GROUP, [int(type), _integer("groupSize of commGroup", groupSize)])

    def schedulePriority(self, priority: float) -> _Context:
        """The priority of the nodes within; no effect here."""
        return self._annotations.attribute(SCHEDULE_PRIORITY, float(priority))

    def excludePatterns(self, *args: Any) -> _Context | None:
        """``excludePatterns(ids, names)`` or ``with builder.excludePatterns(names):``."""
        return self._annotate(_EXCLUDE, args)

    def outlineAttributes(self, attributes: Mapping[str, str]) -> _Context:
        """Values that keep nodes from being outlined together."""
        return self._annotations.attribute("__outline", [f"{key}={value}" for key, value in attributes.items()])

    def hasPipelineStage(self, *ids: Any) -> bool:
        """Whether a stage is set in this context, or for the node of ``ids``."""
        return self._has(PIPELINE_STAGE, ids)

    def hasVirtualGraph(self, *ids: Any) -> bool:
        """Whether a virtual graph is set in this context, or for the node of ``ids``."""
        return self._has(IPU_NUMBER, ids)

    def hasExecutionPhase(self, *ids: Any) -> bool:
        """Whether an execution phase is set in this context, or for the node of ``ids``."""
        return self._has(EXECUTION_PHASE, ids)

    def getPipelineStage(self, *ids: Any) -> int:
        """The stage of this context, or of the node of ``ids``."""
        return self._get(PIPELINE_STAGE, "Pipeline stage", ids)

    def getVirtualGraph(self, *ids: Any) -> int:
        """The virtual graph of this context, or of the node of ``ids``."""
        return self._get(IPU_NUMBER, "Virtual graph", ids)

    def getExecutionPhase(self, *ids: Any) -> int:
        """The execution phase of this context, or of the node of ``ids``."""
        return self._get(EXECUTION_PHASE, "Execution phase", ids)

    # Memory

    def recomputeOutput(self, *args: Any) -> _Context | None:
        """``recomputeOutput(ids, RecomputeType)`` or ``with builder.recomputeOutput(RecomputeType):``."""
        return self._annotate(RECOMPUTE, (*args[:-1], int(args[-1])))

    def recomputeOutputInBackwardPass(self, ids: Any, value: RecomputeType = RecomputeType.Recompute) -> None:
        """Say whether the outputs of one node are kept or recomputed."""
        self._annotate(RECOMPUTE, (ids, int(value)))

    def getRecomputeOutputInBackwardPass(self, ids: Any) -> bool:
        """Whether the outputs of a node are recomputed."""
        return self.getInt64NodeAttribute(RECOMPUTE, _set_of(ids)) == int(RecomputeType.Recompute)

    def outputTensorLocation(self, *args: Any) -> _Context | None:
        """``outputTensorLocation(ids, TensorLocation)`` or ``with builder.outputTensorLocation(location):``."""
        location: TensorLocation = args[-1]
        group = location.shardingDomain
        sharded = int(location.replicatedTensorSharding)
        value = [int(location.storage), int(location.loadTileSet), int(location.storageTileSet), sharded]
        return self._annotate(OUTPUT_LOCATION, (*args[:-1], [*value, int(group.type), group.replicaGroupSize]))

    # Tuning, without effect on results

    def setPartialsType(self, ids: Any, value: str) -> None:
        """FLOAT or HALF, for convolutions and matrix products; sums are always kept in float32."""
        self._nodes.assign(_PARTIALS, value, _set_of(ids))

    def getPartialsType(self, ids: Any) -> str:
        """The type that ``setPartialsType`` set; FLOAT by default."""
        attributes = self._nodes.of(_set_of(ids))
        return str(attributes.get(_PARTIALS, "FLOAT"))

    def setAvailableMemoryProportion(self, ids: Any, value: float) -> None:
        """The proportion of tile memory that a node may use, from 0 to 1; no effect here."""
        if not 0 < value <= 1:
            raise EmulatorError(f"availableMemoryProportion must be in (0,1], but was: {value}")
        self._nodes.assign(_PROPORTION, float(value), _set_of(ids))

    def setEnableConvDithering(self, ids: Any, value: int) -> None:
        """Whether a convolution starts on varying tiles; no effect here."""
        if value not in (0, 1):
            raise EmulatorError(f"enableConvDithering must be a bool value, but was: {value}")
        type = self._nodes.type(_set_of(ids))
        if type not in _CONVOLUTIONS:
            raise EmulatorError(
                f"Builder::setEnableConvDithering should only be called on convolutions but was given: {type}"
            )
        self._nodes.assign(_DITHERING, int(value), _set_of(ids))

    def setSerializeMatMul(self, ids: Any, mode: str, factor: int = 0, keep_precision: bool = False) -> None:
        """``mode`` is input_channels, reducing_dim, output_channels or none."""
        if mode not in ("input_channels", "reducing_dim", "output_channels", "none"):
            raise EmulatorError(
                f"Unsupported mat mul serialization mode '{mode}'. Supported modes are "
                "'input_channels', 'reducing_dim', 'output_channels' or 'none'"
            )
        self._nodes.assign(_SERIALIZE, [mode, str(factor), str(int(keep_precision))], _set_of(ids))

    def setInplacePreferences(self, ids: Any, preferences: Mapping[str, float]) -> None:
        """The priorities of in-place variants of a node; no effect here."""
        self._nodes.assign(_INPLACE_NAMES, list(preferences), _set_of(ids))
        self._nodes.assign(_INPLACE_PRIORITIES, [float(value) for value in preferences.values()], _set_of(ids))

    def setGraphName(self, name: str) -> None:
        """Name the model."""
        self._graph.name = name

    def _number(self, name: str, asked: str, args: Sequence[Any]) -> _Context | None:
        if len(args) not in (1, 2):
            raise ArgumentTypeError(f"{asked} was called with {args!r}; give an integer, or ids and an integer")
        return self._annotate(name, (*args[:-1], _integer(asked, args[-1])))

    def _annotate(self, name: str, args: Sequence[Any]) -> _Context | None:
        if len(args) == 1:
            return self._annotations.attribute(name, args[0])
        self._nodes.assign(name, args[1], _set_of(args[0]))
        return None

    def _has(self, name: str, ids: Sequence[Any]) -> bool:
        return name in (self._nodes.of(_set_of(ids[0])) if ids else self._annotations.current)

    def _get(self, name: str, what: str, ids: Sequence[Any]) -> int:
        if ids:
            return self.getInt64NodeAttribute(name, _set_of(ids[0]))
        if name not in self._annotations.current:
            raise EmulatorError(f"{what} not set in current scope.")
        return int(self._annotations.current[name])

    # Attributes of nodes, each named by all of its outputs

    def addNodeAttribute(self, name: str, value: Any, outputs: set[str]) -> None:
        """Add an attribute to the node that makes ``outputs``."""
        self._nodes.add(name, value, outputs)

    def nodeHasAttribute(self, name: str, outputs: set[str]) -> bool:
        """Whether the node that makes ``outputs`` has an attribute."""
        return name in self._nodes.of(outputs) or name == _DEBUG_INFO

    def getAllNodeAttributeNames(self, outputs: set[str]) -> list[str]:
        """The names of the attributes of the node that makes ``outputs``."""
        return [*self._nodes.of(outputs), _DEBUG_INFO]

    def removeNodeAttribute(self, name: str, outputs: set[str]) -> None:
        """Remove an attribute of the node that makes ``outputs``."""
        self._nodes.remove(name, outputs)

    def getInt64NodeAttribute(self, name: str, outputs: set[str]) -> int:
        """An attribute that is an integer."""
        value: int = self._nodes.typed(name, outputs, lambda value: isinstance(value, int), "an integer")
        return value

    def getInt64VectorNodeAttribute(self, name: str, outputs: set[str]) -> list[int]:
        """An attribute that is a list of integers."""
        value: list[int] = self._nodes.typed(name, outputs, is_list_of(int), "an integer vector")
        return value

    def getFloatNodeAttribute(self, name: str, outputs: set[str]) -> float:
        """An attribute that is a number."""
        value: float = self._nodes.typed(name, outputs, lambda value: isinstance(value, float), "a float")
        return value

    def getFloatVectorNodeAttribute(self, name: str, outputs: set[str]) -> list[float]:
        """An attribute that is a list of numbers."""
        value: list[float] = self._nodes.typed(name, outputs, is_list_of(float), "a float vector")
        return value

    def getStringNodeAttribute(self, name: str, outputs: set[str]) -> str:
        """An attribute that is a string."""
        value: str = self._nodes.typed(name, outputs, lambda value: isinstance(value, str), "a string")
        return value

    def getStringVectorNodeAttribute(self, name: str, outputs: set[str]) -> list[str]:
        """An attribute that is a list of strings."""
        value: list[str] = self._nodes.typed(name, outputs, is_list_of(str), "a string vector")
        return value

    def getBoolNodeAttribute(self, name: str, outputs: set[str]) -> bool:
        """A boolean attribute, which is stored as an integer."""
        return bool(self.getInt64NodeAttribute(name, outputs))


def _integer(asked: str, value: Any) -> int:
    """Raise ArgumentTypeError for a value that is not an integer."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise ArgumentTypeError(f"{asked} is {value!r}; it must be an integer")
    return int(value)


def _set_of(ids: str | Iterable[str]) -> set[str]:
    return {ids} if isinstance(ids, str) else set(ids)


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
