"""Node annotations: the Builder's methods that set scopes, placement, memory, tuning and attributes of nodes.

A node is named by all of its outputs; a context annotates every node that is added while it is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from numbers import Integral
from typing import Any, TypeVar

import numpy as np

from ipu_emu.compiler.annotations import EXECUTION_PHASE, IPU_NUMBER, OUTPUT_LOCATION, PIPELINE_STAGE, RECOMPUTE
from ipu_emu.errors import ArgumentTypeError, EmulatorError
from ipu_emu.graph import Graph, Op
from ipu_emu.popart.types.enums import RecomputeType
from ipu_emu.session.options.option_enums import CommGroupType
from ipu_emu.session.options.patterns import Patterns
from ipu_emu.session.options.tensor_location import TensorLocation
from ipu_emu.session.options.without_effect import say_without_effect

_T = TypeVar("_T", int, float, str)

_SCHEDULE_PRIORITY = "__schedule_priority"
#: The name of an attribute's type in messages, by the type of its value.
_KINDS: dict[type, str] = {int: "an integer", float: "a float", str: "a string"}


class Annotations:
    """The current attributes and scopes; leaving a context restores the previous ones."""

    def __init__(self) -> None:
        self.current: dict[str, Any] = {}
        self.scopes: list[str] = []

    @contextmanager
    def attribute(self, name: str, value: Any) -> Iterator[None]:
        before = dict(self.current)
        self.current[name] = attribute_value(value)
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        self.scopes.append(name)
        try:
            yield
        finally:
            self.scopes.pop()

    @property
    def prefix(self) -> str:
        """The prefix of an id: the names of the open name scopes."""
        return "".join(f"{scope}/" for scope in self.scopes)


_COMM_GROUP = "__collectiveCommGroup"
#: The attribute of a node that lists the patterns excluded for it.
EXCLUDED_PATTERNS = "__exclude_patterns"
_PARTIALS, _PROPORTION, _DITHERING = "__partials_type", "__available_memory", "__enable_conv_dithering"
_SERIALIZE = "__serialize_matmul"
_INPLACE_NAMES, _INPLACE_PRIORITIES = "__inplace_op_names", "__inplace_op_priorities"
#: The attribute of every node that names its debug information.
_DEBUG_INFO = "__debug_info_id"
_CONVOLUTIONS = ("Conv", "ConvTranspose", "MultiConv")

_Context = AbstractContextManager[None]


class NodeAnnotations:
    """The part of the Builder that annotates nodes of its graph; ``_annotations`` are those of the open contexts."""

    _annotations: Annotations
    _graph: Graph

    # Names

    def nameScope(self, name: str) -> _Context:
        """Prefix the ids of everything that is added within the context with ``name``."""
        return self._annotations.scope(name)

    def getNameScope(self, name: str = "") -> str:
        """The current name scopes, followed by ``name``."""
        return self._annotations.prefix + name

    # Placement: annotations of one node, or of all nodes within a context

    def virtualGraph(self, *args: Any) -> _Context | None:
        """``virtualGraph(ids, v)`` or, for all nodes added in the block, ``with builder.virtualGraph(v):``."""
        return self._number(IPU_NUMBER, "virtualGraph", args)

    def pipelineStage(self, *args: Any) -> _Context | None:
        """``pipelineStage(ids, stage)`` or ``with builder.pipelineStage(stage):``, as for ``virtualGraph``."""
        return self._number(PIPELINE_STAGE, "pipelineStage", args)

    def executionPhase(self, *args: Any) -> _Context | None:
        """``executionPhase(ids, phase)`` or ``with builder.executionPhase(phase):``, as for ``virtualGraph``."""
        return self._number(EXECUTION_PHASE, "executionPhase", args)

    def commGroup(self, type: CommGroupType | int = 0, groupSize: int = 0) -> _Context:
        """The group of replicas for the collectives that are added within the context."""
        return self._annotations.attribute(_COMM_GROUP, [int(type), _integer("groupSize of commGroup", groupSize)])

    def schedulePriority(self, priority: float) -> _Context:
        """Set the scheduling priority of the nodes added in the block; no effect here."""
        say_without_effect("The node attribute", ["schedulePriority"])
        return self._annotations.attribute(_SCHEDULE_PRIORITY, float(priority))

    def excludePatterns(self, *args: Any) -> _Context | None:
        """``excludePatterns(ids, names)`` or ``with builder.excludePatterns(names):``; names must be known."""
        Patterns(args[-1])
        return self._annotate(EXCLUDED_PATTERNS, args)

    def outlineAttributes(self, attributes: Mapping[str, str]) -> _Context:
        """Values that keep nodes from being outlined together."""
        say_without_effect("The node attribute", ["outlineAttributes"])
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
        """Whether the outputs of one node are kept or recomputed."""
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
        if value != "FLOAT":
            say_without_effect("The node attribute", ["partialsType"])
        self._assign(_PARTIALS, value, _set_of(ids))

    def getPartialsType(self, ids: Any) -> str:
        """The type that ``setPartialsType`` set; FLOAT by default."""
        return str(self._node(_set_of(ids)).attributes.get(_PARTIALS, "FLOAT"))

    def setAvailableMemoryProportion(self, ids: Any, value: float) -> None:
        """The proportion of tile memory that a node may use, from 0 to 1; no effect here."""
        if not 0 < value <= 1:
            raise EmulatorError(f"availableMemoryProportion must be in (0,1], but was: {value}")
        say_without_effect("The node attribute", ["availableMemoryProportion"])
        self._assign(_PROPORTION, float(value), _set_of(ids))

    def setEnableConvDithering(self, ids: Any, value: int) -> None:
        """Whether a convolution starts on varying tiles; no effect here."""
        if value not in (0, 1):
            raise EmulatorError(f"enableConvDithering must be a bool value, but was: {value}")
        type = self._node(_set_of(ids)).type
        if type not in _CONVOLUTIONS:
            raise EmulatorError(
                f"Builder::setEnableConvDithering should only be called on convolutions but was given: {type}"
            )
        if value:
            say_without_effect("The node attribute", ["enableConvDithering"])
        self._assign(_DITHERING, int(value), _set_of(ids))

    def setSerializeMatMul(self, ids: Any, mode: str, factor: int = 0, keep_precision: bool = False) -> None:
        """``mode`` is input_channels, reducing_dim, output_channels or none."""
        if mode not in ("input_channels", "reducing_dim", "output_channels", "none"):
            raise EmulatorError(
                f"Unsupported mat mul serialization mode '{mode}'. Supported modes are "
                "'input_channels', 'reducing_dim', 'output_channels' or 'none'"
            )
        if mode != "none":
            say_without_effect("The node attribute", ["serializeMatMul"])
        self._assign(_SERIALIZE, [mode, str(factor), str(int(keep_precision))], _set_of(ids))

    def setInplacePreferences(self, ids: Any, preferences: Mapping[str, float]) -> None:
        """The priorities of in-place variants of a node; no effect here."""
        say_without_effect("The node attribute", ["inplace preferences"])
        self._assign(_INPLACE_NAMES, list(preferences), _set_of(ids))
        self._assign(_INPLACE_PRIORITIES, [float(value) for value in preferences.values()], _set_of(ids))

    def setGraphName(self, name: str) -> None:
        """Name the model."""
        self._graph.name = name

    def _number(self, name: str, method: str, args: Sequence[Any]) -> _Context | None:
        if len(args) not in (1, 2):
            raise ArgumentTypeError(f"{method} was called with {args!r}; give an integer, or ids and an integer")
        return self._annotate(name, (*args[:-1], _integer(method, args[-1])))

    def _annotate(self, name: str, args: Sequence[Any]) -> _Context | None:
        if len(args) == 1:
            return self._annotations.attribute(name, args[0])
        self._assign(name, args[1], _set_of(args[0]))
        return None

    def _has(self, name: str, ids: Sequence[Any]) -> bool:
        return name in (self._node(_set_of(ids[0])).attributes if ids else self._annotations.current)

    def _get(self, name: str, what: str, ids: Sequence[Any]) -> int:
        if ids:
            return self.getInt64NodeAttribute(name, _set_of(ids[0]))
        if name not in self._annotations.current:
            raise EmulatorError(f"{what} not set in current scope.")
        return int(self._annotations.current[name])

    # Attributes; a node is named by all of its outputs

    def addNodeAttribute(self, name: str, value: Any, outputs: set[str]) -> None:
        """Add an attribute to the node that makes ``outputs``."""
        if name in self._node(outputs).attributes:
            raise EmulatorError(f"Node already has attribute {name}.")
        self._assign(name, value, outputs)

    def nodeHasAttribute(self, name: str, outputs: set[str]) -> bool:
        """Whether the node that makes ``outputs`` has an attribute."""
        return name in self.getAllNodeAttributeNames(outputs)

    def getAllNodeAttributeNames(self, outputs: set[str]) -> list[str]:
        """The names of the attributes of the node that makes ``outputs``."""
        return [*self._node(outputs).attributes, _DEBUG_INFO]

    def removeNodeAttribute(self, name: str, outputs: set[str]) -> None:
        """Remove an attribute of the node that makes ``outputs``."""
        op = self._node(outputs)
        if name not in op.attributes:
            raise EmulatorError(f"Cannot remove attribute {name} as it does not exist.")
        self._replace(op, {key: value for key, value in op.attributes.items() if key != name})

    def getInt64NodeAttribute(self, name: str, outputs: set[str]) -> int:
        """An attribute that is an integer."""
        return self._scalar(name, outputs, int)

    def getInt64VectorNodeAttribute(self, name: str, outputs: set[str]) -> list[int]:
        """An attribute that is a list of integers."""
        return self._vector(name, outputs, int)

    def getFloatNodeAttribute(self, name: str, outputs: set[str]) -> float:
        """An attribute that is a number."""
        return self._scalar(name, outputs, float)

    def getFloatVectorNodeAttribute(self, name: str, outputs: set[str]) -> list[float]:
        """An attribute that is a list of numbers."""
        return self._vector(name, outputs, float)

    def getStringNodeAttribute(self, name: str, outputs: set[str]) -> str:
        """An attribute that is a string."""
        return self._scalar(name, outputs, str)

    def getStringVectorNodeAttribute(self, name: str, outputs: set[str]) -> list[str]:
        """An attribute that is a list of strings."""
        return self._vector(name, outputs, str)

    def getBoolNodeAttribute(self, name: str, outputs: set[str]) -> bool:
        """A boolean attribute, which is stored as an integer."""
        return bool(self.getInt64NodeAttribute(name, outputs))

    def _scalar(self, name: str, outputs: set[str], kind: type[_T]) -> _T:
        value = self._existing(name, outputs)
        if not isinstance(value, kind):
            raise EmulatorError(f"Attribute {name} is not {_KINDS[kind]}.")
        return value

    def _vector(self, name: str, outputs: set[str], kind: type[_T]) -> list[_T]:
        value = self._existing(name, outputs)
        if not (isinstance(value, list) and all(isinstance(item, kind) for item in value)):
            raise EmulatorError(f"Attribute {name} is not {_KINDS[kind]} vector.")
        return value

    def _existing(self, name: str, outputs: set[str]) -> Any:
        attributes = self._node(outputs).attributes
        if name not in attributes:
            raise EmulatorError(f"Node does not have an attribute {name}.")
        return attributes[name]

    def _node(self, outputs: set[str]) -> Op:
        for op in self._graph.ops:
            if set(op.outputs) == set(outputs):
                return op
        raise EmulatorError(
            f"Could not find a node with outputs {', '.join(sorted(outputs))}. Must specify all outputs of a node"
        )

    def _assign(self, name: str, value: Any, outputs: set[str]) -> None:
        """Add an attribute, or change its value."""
        op = self._node(outputs)
        self._replace(op, {**op.attributes, name: attribute_value(value)})

    def _replace(self, op: Op, attributes: dict[str, Any]) -> None:
        index = next(index for index, other in enumerate(self._graph.ops) if other is op)
        self._graph.ops[index] = replace(op, attributes=attributes)


def _integer(method: str, value: Any) -> int:
    """Raise ArgumentTypeError for a value that is not an integer."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise ArgumentTypeError(f"{method} is {value!r}; it must be an integer")
    return int(value)


def _set_of(ids: str | Iterable[str]) -> set[str]:
    return {ids} if isinstance(ids, str) else set(ids)


def attribute_value(value: Any) -> Any:
    """Convert an attribute: a bool to an integer, numpy scalars and arrays to Python numbers and lists."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list | tuple):
        return [attribute_value(item) for item in value]
    return value
