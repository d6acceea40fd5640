"""Op placement: the phase of a step, and the IPU and stage, of each op of a section."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipu_emu.graph import Place, StepPhase
from ipu_emu.tensorflow.importer.graph_writer import StepPosition
from ipu_emu.tensorflow.importer.importer import Importer
from ipu_emu.tensorflow.importer.values import Variable
from ipu_emu.tensorflow.trace.function_trace import FunctionTrace, PipelineSection, Section

_ORDER = (StepPhase.FORWARD, StepPhase.BACKWARD, StepPhase.UPDATE)
#: Ops that TensorFlow creates for the backward pass, and that the forward pass writes to.
_EMPTY = ("EmptyTensorList", "TensorListReserve", "Const")
#: Ops whose values are on the IPU of their readers.
_UNPLACED = ("Placeholder", "Const")


class OpPlacement:
    """``positions`` of the ``ops`` of a section by name; ``importer`` has imported those before the next."""

    def __init__(self, trace: FunctionTrace, section: Section, ops: Sequence[Any], importer: Importer) -> None:
        self.index = {op.name: number for number, op in enumerate(trace.graph.get_operations())}
        self.positions: dict[str, StepPosition] = {}
        self._trace, self._section, self._importer = trace, section, importer
        self._accumulates = any(self._is_total(op) for op in ops)

    def place(self, op: Any) -> StepPosition:
        """Return the position of the next op."""
        phase, pipeline = self._phase(op), self._section.pipeline
        if phase is StepPhase.UPDATE:
            place = self._home(op) or next((position.place for position in self._read(op)), Place())
        elif pipeline is not None:
            place = self._in_pipeline(op, phase, pipeline)
        else:
            place = Place(0, self._shard(op))
        self.positions[op.name] = StepPosition(phase, place)
        return self.positions[op.name]

    def _is_total(self, op: Any) -> bool:
        marker = self._trace.markers.get(op.name)
        return marker is not None and marker.kind == "total"

    def _read(self, op: Any) -> list[StepPosition]:
        """The positions of the ops of this section that an op reads."""
        return [self.positions[t.op.name] for t in op.inputs if t.op.name in self.positions]

    def _phase(self, op: Any) -> StepPhase:
        index = self.index[op.name]
        if op.type in _EMPTY:
            return StepPhase.FORWARD
        if self._accumulates and any(first <= index < end for first, end in self._section.updates):
            return StepPhase.UPDATE
        if op.type in ("ReadVariableOp", "ResourceGather") and self._accumulates:
            value = self._importer.values.get(op.inputs[0].name)
            if isinstance(value, Variable) and self._importer.writer.is_updated(value.name):
                return StepPhase.UPDATE
        if self._is_total(op):
            return StepPhase.BACKWARD
        if any(self._is_total(tensor.op) for tensor in op.inputs):
            return StepPhase.UPDATE
        least = StepPhase.FORWARD if op._original_op is None else StepPhase.BACKWARD
        return max([least, *(position.phase for position in self._read(op))], key=_ORDER.index)

    def _source(self, op: Any) -> Any:
        """The op whose gradient ``op`` computes, else ``op``."""
        while op._original_op is not None and op._original_op.name in self.index:
            op = op._original_op
        return op

    def _shard(self, op: Any) -> int:
        """The IPU of an op: that of the op whose gradient it computes, or of its scope, or of its inputs."""
        shards = self._trace.shard_of(self.index[self._source(op).name])
        if shards is not None:
            return shards[0]
        return max((position.place.ipu for position in self._read(op)), default=0)

    def _in_pipeline(self, op: Any, phase: StepPhase, pipeline: PipelineSection) -> Place:
        source = self._source(op)
        index = self.index[source.name]
        for first, end, stage, ipu in pipeline.ranges:
            if first <= index < end:
                return Place(stage, self._shard(op) if stage in pipeline.sharded else ipu)
        if pipeline.by_inputs and source is not op and source.name in self.positions:
            return self.positions[source.name].place
        first_place, last_place = (Place(*pipeline.ranges[number][2:]) for number in (0, -1))
        if phase is not StepPhase.FORWARD:
            return self._of_gradient(op) or last_place
        if not pipeline.by_inputs:
            return last_place
        return self._of_inputs(op) or (first_place if index < min(pipeline.ranges)[0] else last_place)

    def _of_inputs(self, op: Any) -> Place | None:
        """The place of the variable of an op outside stages, or the last of those of its inputs."""
        placed = [tensor.op.name for tensor in op.inputs if tensor.op.type not in _UNPLACED]
        places = [self.positions[name].place for name in placed if name in self.positions]
        return self._home(op) or max(places, default=None)

    def _of_gradient(self, op: Any) -> Place | None:
        """The place of a gradient without a recorded forward op: the earliest stage of the gradients it reads."""
        read = self._read(op)
        back = [position.place for position in read if position.phase is not StepPhase.FORWARD]
        fore = [position.place for position in read if position.phase is StepPhase.FORWARD]
        if back and fore:
            return min(*back, max(fore))
        return min(back) if back else max(fore, default=None)

    def _home(self, op: Any) -> Place | None:
        """The place of the first variable that an op reads or changes."""
        for tensor in op.inputs:
            value = self._importer.values.get(tensor.name)
            home = self._importer.writer.home_of(value.name) if isinstance(value, Variable) else None
            if home is not None:
                return home
        return None
