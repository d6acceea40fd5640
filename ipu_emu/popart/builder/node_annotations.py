"""NodeAnnotations: the part of the Builder that says where and how nodes run, alone or for all within a context."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from numbers import Integral
from typing import Any

import numpy as np

from ipu_emu.compiler.annotations import EXECUTION_PHASE, IPU_NUMBER, OUTPUT_LOCATION, PIPELINE_STAGE, RECOMPUTE
from ipu_emu.errors import ArgumentTypeError, EmulatorError
from ipu_emu.graph import Graph
from ipu_emu.popart.builder.annotations import SCHEDULE_PRIORITY, Annotations
from ipu_emu.popart.builder.node_attributes import NodeAttributes
from ipu_emu.popart.options.tensor_location import TensorLocation
from ipu_emu.popart.types.enums import CommGroupType, RecomputeType

__all__ = ["NodeAnnotations"]

_COMM_GROUP = "__collectiveCommGroup"
_EXCLUDE = "__exclude_patterns"
_PARTIALS, _PROPORTION, _DITHERING = "__partials_type", "__available_memory", "__enable_conv_dithering"
_SERIALIZE = "__serialize_matmul"
_INPLACE_NAMES, _INPLACE_PRIORITIES = "__inplace_op_names", "__inplace_op_priorities"

_Context = AbstractContextManager[None]


class NodeAnnotations(NodeAttributes):
    """Each annotation is an attribute of a node, whose name starts with two underscores."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._annotations = Annotations()

    # Names

    def nameScope(self, name: str) -> _Context:
        return self._annotations.scope(name)

    def getNameScope(self, name: str = "") -> str:
        return self._annotations.prefix + name

    # Placement

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
        """The replicas that the collectives within take part with."""
        return self._annotations.attribute(_COMM_GROUP, [int(type), _integer("groupSize of commGroup", groupSize)])

    def schedulePriority(self, priority: float) -> _Context:
        return self._annotations.attribute(SCHEDULE_PRIORITY, float(priority))

    def excludePatterns(self, *args: Any) -> _Context | None:
        """``excludePatterns(ids, names)`` or ``with builder.excludePatterns(names):``."""
        return self._annotate(_EXCLUDE, args)

    def outlineAttributes(self, attributes: Mapping[str, str]) -> _Context:
        """Values that keep nodes from being outlined together."""
        return self._annotations.attribute("__outline", [f"{key}={value}" for key, value in attributes.items()])

    def hasPipelineStage(self, *ids: Any) -> bool:
        """Whether a stage is in force here, or set for the node of ``ids``."""
        return self._has(PIPELINE_STAGE, ids)

    def hasVirtualGraph(self, *ids: Any) -> bool:
        return self._has(IPU_NUMBER, ids)

    def hasExecutionPhase(self, *ids: Any) -> bool:
        return self._has(EXECUTION_PHASE, ids)

    def getPipelineStage(self, *ids: Any) -> int:
        """The stage in force here, or that of the node of ``ids``."""
        return self._get(PIPELINE_STAGE, "Pipeline stage", ids)

    def getVirtualGraph(self, *ids: Any) -> int:
        return self._get(IPU_NUMBER, "Virtual graph", ids)

    def getExecutionPhase(self, *ids: Any) -> int:
        return self._get(EXECUTION_PHASE, "Execution phase", ids)

    # Memory

    def recomputeOutput(self, *args: Any) -> _Context | None:
        """``recomputeOutput(ids, RecomputeType)`` or ``with builder.recomputeOutput(RecomputeType):``."""
        return self._annotate(RECOMPUTE, (*args[:-1], int(args[-1])))

    def recomputeOutputInBackwardPass(self, ids: Any, value: RecomputeType = RecomputeType.Recompute) -> None:
        self._annotate(RECOMPUTE, (ids, int(value)))

    def getRecomputeOutputInBackwardPass(self, ids: Any) -> bool:
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
        self._set_attribute(_set_of(ids), _PARTIALS, value)

    def getPartialsType(self, ids: Any) -> str:
        attributes = self._node(_set_of(ids)).attributes
        return str(attributes.get(_PARTIALS, "FLOAT"))

    def setAvailableMemoryProportion(self, ids: Any, value: float) -> None:
        if not 0 <= value <= 1:
            raise EmulatorError(f"availableMemoryProportion must be in [0,1]. Invalid value: {value}")
        self._set_attribute(_set_of(ids), _PROPORTION, float(value))

    def setEnableConvDithering(self, ids: Any, value: int) -> None:
        self._set_attribute(_set_of(ids), _DITHERING, int(value))

    def setSerializeMatMul(self, ids: Any, mode: str, factor: int = 0, keep_precision: bool = False) -> None:
        """``mode`` is input_channels, reducing_dim, output_channels or none."""
        if mode not in ("input_channels", "reducing_dim", "output_channels", "none"):
            raise EmulatorError(
                f"Unsupported mat mul serialization mode '{mode}'. Supported modes are "
                "'input_channels', 'reducing_dim', 'output_channels' or 'none'"
            )
        self._set_attribute(_set_of(ids), _SERIALIZE, [mode, str(factor), str(int(keep_precision))])

    def setInplacePreferences(self, ids: Any, preferences: Mapping[str, float]) -> None:
        self._set_attribute(_set_of(ids), _INPLACE_NAMES, list(preferences))
        self._set_attribute(_set_of(ids), _INPLACE_PRIORITIES, [float(value) for value in preferences.values()])

    def setGraphName(self, name: str) -> None:
        self._graph.name = name

    # How

    def _number(self, name: str, asked: str, args: Sequence[Any]) -> _Context | None:
        if len(args) not in (1, 2):
            raise ArgumentTypeError(f"{asked} was called with {args!r}; give an integer, or ids and an integer")
        return self._annotate(name, (*args[:-1], _integer(asked, args[-1])))

    def _annotate(self, name: str, args: Sequence[Any]) -> _Context | None:
        if len(args) == 1:
            return self._annotations.attribute(name, args[0])
        self._set_attribute(_set_of(args[0]), name, args[1])
        return None

    def _has(self, name: str, ids: Sequence[Any]) -> bool:
        return name in (self._node(_set_of(ids[0])).attributes if ids else self._annotations.current)

    def _get(self, name: str, what: str, ids: Sequence[Any]) -> int:
        if ids:
            return self.getInt64NodeAttribute(name, _set_of(ids[0]))
        if name not in self._annotations.current:
            raise EmulatorError(f"{what} not set in current scope.")
        return int(self._annotations.current[name])


def _integer(asked: str, value: Any) -> int:
    """Raise ArgumentTypeError for what is no integer."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise ArgumentTypeError(f"{asked} is {value!r}; it has to be an integer")
    return int(value)


def _set_of(ids: str | Iterable[str]) -> set[str]:
    return {ids} if isinstance(ids, str) else set(ids)
